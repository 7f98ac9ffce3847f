"""Positions in lanes: where a worker continues, and which better jobs it must not pass."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.jobs.job import JobId, Lease, Token
from holdfast.domain.jobs.lane_position import (
    EARLIEST,
    JOBS_OF_LANE,
    LOWEST_PRIORITY,
    MAX_LANES,
    MAX_POSITIONS,
    MIN_LANES,
    Gap,
    LanePosition,
    LanePositions,
)
from holdfast.domain.jobs.new_job import HIGHEST_PRIORITY

START = datetime(2030, 1, 1, tzinfo=UTC)


def lease(n: int, *, queue: str = "default", kind: str = "mail", priority: int = 0) -> Lease:
    return Lease(JobId(n), Token(1), kind, queue, "{}", 1, False, 0, priority, START + timedelta(seconds=n), None)


def learned(*leases: Lease) -> LanePositions:
    positions = LanePositions()
    positions.learn(leases)
    return positions


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
    positions.learn([lease(3)])
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
    positions.drop_unused()
    positions.learn([lease(1000, kind="kind-0")])
    positions.drop_unused()
    (position,) = positions.route(["default"], ["kind-0", "kind-1"], 10).positions[1:]
    assert position == LanePosition("default", "kind-0", 0, START + timedelta(seconds=1000), JobId(1000), 10)
    positions.drop_unused()
    assert positions.route(["default"], kinds[:2], 10) is not None


def test_a_worker_can_begin_at_the_first_jobs_of_its_lanes():
    """The oldest first; they are behind the positions, not before them."""
    positions = learned(lease(1, kind="gone"))
    heads = [
        LanePosition("default", kind, 0, START + timedelta(seconds=n), JobId(n)) for n, kind in ((9, "a"), (5, "b"))
    ]
    positions.begin_at(heads)
    route = positions.route(["default"], ["a", "b", "gone"], 10)
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
    named = [[each.kind for each in positions.route(["default"], kinds, 10).positions] for _ in range(6)]
    assert named[0] == kinds[:MIN_LANES]
    assert {kind for route in named for kind in route} == set(kinds)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(-3, 3)), min_size=1))
def test_no_priority_above_the_lowest_is_left_out(places):
    """I17: each priority of each lane has a position or lies in a gap, never both."""
    leases = [lease(n, kind=kind, priority=priority) for n, (kind, priority) in enumerate(places)]
    route = learned(*leases).route(["default"], ["a", "b"], 10)
    lowest = min(each.priority for each in route.positions)
    for kind in "ab":
        for priority in range(-9, 9):
            known = any((each.kind, each.priority) == (kind, priority) for each in route.positions)
            assert known is not _lies_in(route.elsewhere, kind, priority)
            assert _lies_in(route.better, kind, priority) is (priority > lowest and not known)


def _lies_in(gaps, kind, priority) -> bool:
    return any(each.kind == kind and each.low <= priority <= each.high for each in gaps)
