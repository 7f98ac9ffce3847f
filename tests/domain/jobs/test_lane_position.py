"""Positions in lanes: where a worker continues, and which better jobs it must not pass."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.jobs.job import HIGHEST_PRIORITY, JobId, Lease, Token
from holdfast.domain.jobs.lane_position import (
    EARLIEST,
    FIRST,
    JOBS_OF_LANE,
    LAST,
    LOWEST_PRIORITY,
    MAX_LANES,
    MAX_POSITIONS,
    MIN_LANES,
    STEP_BACK,
    EarlierJobs,
    Gap,
    LaneHead,
    LanePosition,
    LanePositions,
    merged,
)

START = datetime(2030, 1, 1, tzinfo=UTC)


def lease(n: int, *, queue: str = "default", kind: str = "mail", priority: int = 0) -> Lease:
    return Lease(JobId(n), Token(1), kind, queue, "{}", 1, False, 0, priority, START + timedelta(seconds=n), None)


def learned(*leases: Lease) -> LanePositions:
    return LanePositions().behind(leases)


def test_a_route_continues_behind_the_last_job_of_each_lane():
    positions = learned(lease(1), lease(2), lease(3, kind="post"))
    route = positions.route(["default"], ["mail", "post"], 10)
    assert [(each.kind, each.job_id) for each in route.positions] == [("mail", 2), ("post", 3)]


def test_without_a_position_there_is_no_route():
    """Those of lanes that the worker serves no longer do not count."""
    assert LanePositions().route(["default"], ["mail"], 10) is None
    assert learned(lease(1)).route(["other"], ["mail"], 10) is None


def test_the_lane_that_was_served_last_comes_last():
    positions = learned(lease(1), lease(2, kind="post"))
    positions = positions.behind([lease(3)])
    route = positions.route(["default"], ["mail", "post"], 10)
    assert [each.kind for each in route.positions] == ["post", "mail"]


def test_all_jobs_of_a_higher_priority_come_first():
    """Lanes of the lowest priority of a route share the rest."""
    positions = learned(lease(1, priority=5), lease(2), lease(3, kind="post"))
    route = positions.route(["default"], ["mail", "post"], 100)
    assert [(each.priority, each.most) for each in route.positions] == [(5, 100), (0, 102), (0, 102)]
    assert positions.route(["default"], ["mail", "post", "new"], 100).positions[1].kind == "new"
    assert learned(lease(1)).route(["default"], ["mail"], 100).positions[0].most == 100


def test_gaps_are_the_priorities_without_a_position():
    route = learned(lease(1, priority=5), lease(2)).route(["default"], ["mail"], 10)
    assert route.better == [Gap("default", "mail", 6, HIGHEST_PRIORITY), Gap("default", "mail", 1, 4)]


def test_a_lane_without_a_position_begins_at_its_start():
    route = learned(lease(1)).route(["default", "other"], ["mail"], 10)
    assert route.positions[0] == LanePosition("other", "mail", 0, EARLIEST, JobId(0), 10)
    assert Gap("other", "mail", 1, HIGHEST_PRIORITY) in route.better
    assert Gap("other", "mail", LOWEST_PRIORITY, -1) in route.elsewhere


def test_positions_that_gave_no_job_are_dropped_if_there_are_many():
    kinds = [f"kind-{n}" for n in range(MAX_POSITIONS + 1)]
    positions = learned(*(lease(n, kind=kind) for n, kind in enumerate(kinds)))
    positions = positions.without_unused().behind([lease(1000, kind="kind-0")]).without_unused()
    (position,) = positions.route(["default"], ["kind-0", "kind-1"], 10).positions[1:]
    assert position == LanePosition("default", "kind-0", 0, START + timedelta(seconds=1000), JobId(1000), 10)
    assert positions.without_unused().route(["default"], kinds[:2], 10) is not None


def test_a_worker_can_begin_at_the_first_jobs_of_its_lanes():
    """The oldest first; they are behind the positions, not before them."""
    positions = learned(lease(1, kind="gone"))
    heads = [LaneHead("default", kind, 0, START + timedelta(seconds=n), JobId(n)) for n, kind in ((9, "a"), (5, "b"))]
    route = positions.begin_at(heads).route(["default"], ["a", "b", "gone"], 10)
    assert [(each.kind, each.job_id) for each in route.positions] == [("gone", 0), ("b", 4), ("a", 8)]


def test_routes_are_bounded():
    """They cover all lanes of a worker that has few of them, and as many as a large claim needs otherwise."""
    kinds = [f"kind-{n}" for n in range(2 * MAX_POSITIONS)]
    positions = learned(*(lease(n, kind=kind) for n, kind in enumerate(kinds)))
    for jobs, most in ((10, MIN_LANES), (JOBS_OF_LANE * 200, 200), (JOBS_OF_LANE * 10_000, MAX_POSITIONS)):
        route = positions.route(["default"], kinds, jobs)
        assert (len(route.positions), len(route.better), route.continues) == (most, most, True)
    few = positions.route(["default"], kinds[:MAX_LANES], 10)
    assert (len(few.positions), few.continues) == (MAX_LANES, False)


def test_with_many_lanes_every_lane_gets_its_turn():
    """Also behind lanes that have no more jobs."""
    kinds = [f"kind-{n}" for n in range(MAX_LANES + 1)]
    positions = learned(*(lease(n, kind=kind) for n, kind in enumerate(kinds)))
    named = []
    for _ in range(6):
        route = positions.route(["default"], kinds, 10)
        named.append([each.kind for each in route.positions])
        positions = positions.behind([], route)
    assert named[0] == kinds[:MIN_LANES]
    assert {kind for route in named for kind in route} == set(kinds)


#: Priorities in the middle and at both ends of the column.
priorities = st.one_of(
    st.integers(-3, 3),
    st.integers(LOWEST_PRIORITY, LOWEST_PRIORITY + 2),
    st.integers(HIGHEST_PRIORITY - 2, HIGHEST_PRIORITY),
)


@given(st.lists(st.tuples(st.sampled_from("ab"), priorities), min_size=1))
def test_no_priority_above_the_lowest_is_left_out(places):
    """I17, D3: each priority of each lane has a position or lies in a gap, never both. No gap leaves the column."""
    leases = [lease(n, kind=kind, priority=priority) for n, (kind, priority) in enumerate(places)]
    route = learned(*leases).route(["default"], ["a", "b"], 10)
    lowest = min(each.priority for each in route.positions)
    for gap in (*route.better, *route.elsewhere):
        assert LOWEST_PRIORITY <= gap.low <= gap.high <= HIGHEST_PRIORITY, "D3 is broken"
    for kind in "ab":
        for priority in (
            *range(-9, 9),
            *(LOWEST_PRIORITY + n for n in range(5)),
            *(HIGHEST_PRIORITY - n for n in range(5)),
        ):
            known = any((each.kind, each.priority) == (kind, priority) for each in route.positions)
            assert known is not _lies_in(route.elsewhere, kind, priority)
            assert _lies_in(route.better, kind, priority) is (priority > lowest and not known)


def _lies_in(gaps, kind, priority) -> bool:
    return any(each.kind == kind and each.low <= priority <= each.high for each in gaps)


def earlier(oldest=None, newest=None, *, kind="mail", priority=0) -> EarlierJobs:
    times = [None if each is None else START + timedelta(seconds=each) for each in (oldest, newest)]
    return EarlierJobs("default", kind, priority, *times)


def places(span) -> tuple[float, int, float, int]:
    """The limits of a span in seconds and ids."""
    (after, after_id), (until, until_id) = span.after, span.until
    return (after - START).total_seconds(), after_id, (until - START).total_seconds(), until_id


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        (earlier(3, 5), [(3, FIRST, 5, LAST)]),
        (earlier(3, 20), [(3, FIRST, 9, 9)]),  # what comes behind the position is claimed from there
        (earlier(9, 9), [(9, FIRST, 9, 9)]),
        (earlier(10, 11), []),
        (earlier(), [(9 - STEP_BACK.total_seconds(), FIRST, 9, 9)]),
        (earlier(3, 5, kind="post"), []),  # its lane begins at its start
    ],
)
def test_jobs_that_became_ready_before_a_position_are_a_span(jobs, expected):
    positions, spans = learned(lease(9)).with_earlier([jobs])
    assert list(map(places, spans)) == expected
    assert positions == learned(lease(9))


def test_at_a_higher_priority_an_empty_lane_begins_at_jobs_that_became_ready():
    """At a lower one, older jobs may wait there."""
    known = learned(lease(9))
    positions, spans = known.with_earlier([earlier(3, 5, priority=1), earlier(3, 5, priority=-1)])
    assert (positions.at(1, ("default", "mail")), spans) == ((START + timedelta(seconds=3), FIRST), [])
    assert positions.at(-1, ("default", "mail")) is None


def test_spans_of_one_lane_are_joined_and_end_at_its_position():
    """No job comes twice in a claim."""
    known = learned(lease(9))
    _, spans = known.with_earlier([earlier(5, 6), earlier(1, 2)])
    (joined,) = known.route(["default"], ["mail"], 10, spans).spans
    assert places(joined) == (1, FIRST, 6, LAST)
    (joined,) = known.behind([lease(4)]).route(["default"], ["mail"], 10, spans).spans
    assert places(joined) == (1, FIRST, 4, 4)


def test_jobs_of_a_span_move_no_position():
    known = learned(lease(9))
    _, spans = known.with_earlier([earlier(3, 5)])
    route = known.route(["default"], ["mail"], 10, spans)
    assert known.behind([lease(4), lease(11)], route).at(0, ("default", "mail")) == (START + timedelta(seconds=11), 11)
    assert known.behind([lease(4)], route).at(0, ("default", "mail")) == (START + timedelta(seconds=9), 9)


def test_a_route_names_spans_before_the_positions_of_their_priority():
    known = learned(lease(9), lease(8, priority=5))
    _, spans = known.with_earlier([earlier(3, 5), earlier(2, 2, priority=5)])
    columns = known.route(["default"], ["mail"], 10, spans).columns(["mail"], 10)
    assert columns["lane_priority"] == [5, 5, 0, 0]
    assert columns["lane_job_id"] == [FIRST, 8, FIRST, 9]
    assert columns["lane_most"] == [10, 10, 10, 10]


def test_places_of_one_lane_and_priority_are_merged():
    merged_places = merged([earlier(3, 5), earlier(1, 2), earlier(), earlier(), earlier(4, 4, kind="post")])
    assert merged_places == [earlier(1, 5), earlier(), earlier(4, 4, kind="post")]
