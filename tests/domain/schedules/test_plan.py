"""Plans: their keys, their jitter, and how they meet earlier plans."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.jobs.job import JobId, State
from holdfast.domain.schedules.plan import EarlierPlans, Overlap, Plan, PlanStatus, Turn, arrange, jittered, plan_status

HOUR = timedelta(hours=1)
T0 = datetime(2030, 1, 1, tzinfo=UTC)
RUNNING, QUEUED, APART = PlanStatus.RUNNING, PlanStatus.QUEUED, PlanStatus.APART


def test_jitter_is_the_same_everywhere():
    first = jittered(Plan("mail", T0), HOUR)
    assert first == jittered(Plan("mail", T0, "global"), HOUR) != jittered(Plan("mail", T0, "other"), HOUR)
    assert timedelta(0) <= first < HOUR
    assert jittered(Plan("mail", T0), timedelta(0)) == timedelta(0)


def test_a_plan_has_one_key_wherever_it_is_read():
    plan = Plan("mail", T0, "a")
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan).key == plan.key
    others = [Plan("post", T0, "a"), Plan("mail", T0 + HOUR, "a"), Plan("mail", T0, "b")]
    assert len({plan.key, *(other.key for other in others)}) == 4


# -- overlap -----------------------------------------------------------------------------------


def earlier(*statuses):
    """Jobs with these statuses, numbered from 1."""
    by_status = {each: [JobId(n) for n, one in enumerate(statuses, start=1) if one is each] for each in PlanStatus}
    queued = by_status[QUEUED]
    return EarlierPlans(by_status[RUNNING], queued, len(queued))


def turns(overlap, *statuses, count=3):
    return [str(turn) for turn in arrange(overlap, earlier(*statuses), count).turns]


@pytest.mark.parametrize(
    ("overlap", "statuses", "expected"),
    [
        ("skip", [], ["start", "skip", "skip"]),
        ("skip", [RUNNING], ["skip", "skip", "skip"]),
        ("skip", [APART], ["start", "skip", "skip"]),
        ("queue_one", [], ["start", "wait", "skip"]),
        ("queue_one", [RUNNING], ["wait", "skip", "skip"]),
        ("queue_one", [RUNNING, QUEUED], ["skip", "skip", "skip"]),
        ("queue_all", [], ["start", "wait", "wait"]),
        ("queue_all", [RUNNING], ["wait", "wait", "wait"]),
        ("queue_all", [APART], ["start", "wait", "wait"]),
        ("cancel_running", [], ["skip", "skip", "start"]),
        ("cancel_running", [RUNNING], ["skip", "skip", "wait"]),
        ("allow", [RUNNING, QUEUED], ["start", "start", "start"]),
    ],
)
def test_each_way_to_meet(overlap, statuses, expected):
    """A plan that waits for its retry blocks nothing."""
    assert turns(Overlap(overlap), *statuses) == expected


def test_who_waits_waits_for_the_last_in_the_line():
    assert arrange(Overlap.QUEUE_ALL, earlier(RUNNING, QUEUED, QUEUED), 1).after == [3]
    assert arrange(Overlap.QUEUE_ALL, earlier(RUNNING, RUNNING), 1).after == [1, 2]
    assert arrange(Overlap.QUEUE_ALL, earlier(APART, RUNNING), 1).after == [2]


def test_a_line_is_no_longer_than_its_backlog():
    """V3: further plans are skipped; a plan that starts at once is not in the line."""
    line = EarlierPlans([JobId(1)], [JobId(9)], 8)
    assert [str(turn) for turn in arrange(Overlap.QUEUE_ALL, line, 4, max_backlog=10).turns] == [
        *["wait"] * 2,
        *["skip"] * 2,
    ]
    assert arrange(Overlap.QUEUE_ALL, line, 1, max_backlog=5).turns == [Turn.SKIP]
    assert arrange(Overlap.QUEUE_ALL, EarlierPlans(), 3, max_backlog=1).turns == [Turn.START, Turn.WAIT, Turn.SKIP]


def test_who_is_cancelled_is_waited_for():
    arranged = arrange(Overlap.CANCEL_RUNNING, earlier(APART, RUNNING, QUEUED), 1)
    assert (arranged.cancel, arranged.after) == ([2, 3], [2])


@given(st.sampled_from(Overlap), st.lists(st.sampled_from([RUNNING, QUEUED, APART])), st.integers(1, 5))
def test_no_two_run_at_once_unless_they_may(overlap, statuses, count):
    """At most one plan starts, and none while another runs; each new plan has a turn."""
    arranged = arrange(overlap, earlier(*statuses), count)
    assert len(arranged.turns) == count
    if overlap is not Overlap.ALLOW:
        left = {status for n, status in enumerate(statuses, start=1) if n not in arranged.cancel}
        busy = bool(left - {APART})
        assert arranged.turns.count(Turn.START) <= (0 if busy else 1)
    waits = [index for index, turn in enumerate(arranged.turns) if turn is Turn.WAIT]
    assert not waits or arranged.after or Turn.START in arranged.turns[: waits[0]]


@pytest.mark.parametrize(
    ("state", "attempts", "expected"),
    [
        (State.READY, 0, PlanStatus.RUNNING),
        (State.RUNNING, 3, PlanStatus.RUNNING),
        (State.SCHEDULED, 0, PlanStatus.RUNNING),
        (State.SCHEDULED, 1, PlanStatus.APART),
        (State.HELD, 0, PlanStatus.APART),
        (State.WAITING, 0, PlanStatus.QUEUED),
        (State.DEAD, 3, PlanStatus.FINISHED),
        (None, 0, PlanStatus.FINISHED),
    ],
)
def test_how_a_plan_stands(state, attempts, expected):
    assert plan_status(state, attempts) is expected
