"""Overlap: which new plans start, wait, or are skipped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.jobs.job import JobId, State
from holdfast.domain.schedules.overlap import Overlap, PlanStatus, Turn, arrange, plan_status


def earlier(*statuses):
    """Jobs with these statuses, numbered from 1."""
    return {each: [JobId(n) for n, one in enumerate(statuses, start=1) if one is each] for each in statuses}


def turns(overlap, *statuses, count=3):
    return [str(turn) for turn in arrange(overlap, earlier(*statuses), count).turns]


RUNNING, QUEUED, APART = PlanStatus.RUNNING, PlanStatus.QUEUED, PlanStatus.APART


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
