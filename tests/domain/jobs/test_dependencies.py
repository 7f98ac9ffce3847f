"""When a waiting job may start."""

from __future__ import annotations

import pytest

from holdfast.domain.jobs.dependencies import After, IfNot, NeedState, Step, When, next_step, reason_for
from holdfast.domain.jobs.job import JobId, State
from holdfast.errors import InvalidInput

READY, DONE, DEAD, CANCELLED = State.READY, State.DONE, State.DEAD, State.CANCELLED


@pytest.mark.parametrize(
    ("when", "states", "step"),
    [
        (When.DONE, [DONE, DONE], Step.START),
        (When.DONE, [DONE, READY], Step.WAIT),
        (When.DONE, [DEAD, READY], Step.CANCEL),
        (When.DONE, [CANCELLED], Step.CANCEL),
        (When.DONE, [None], Step.CANCEL),
        (When.ENDED, [DEAD, DONE, CANCELLED], Step.START),
        (When.ENDED, [DEAD, READY], Step.WAIT),
        (When.FAILED, [DEAD, READY], Step.START),
        (When.FAILED, [CANCELLED], Step.START),
        (When.FAILED, [DONE, READY], Step.WAIT),
        (When.FAILED, [DONE, DONE], Step.CANCEL),
    ],
)
def test_conditions(when, states, step):
    """Each condition starts, waits or gives up as its needs stand."""
    assert next_step(when, IfNot.CANCEL, states) is step


def test_giving_up_can_mean_holding():
    """A job may be held for a person where another is cancelled."""
    assert next_step(When.DONE, IfNot.HOLD, [DEAD]) is Step.HOLD
    assert next_step(When.FAILED, IfNot.HOLD, [DONE]) is Step.HOLD


def test_the_reason_names_the_need():
    """Whoever asks why a job was cancelled is told by which need."""
    needs = [NeedState(JobId(9), JobId(1), DONE), NeedState(JobId(9), JobId(2), DEAD)]
    assert reason_for(When.DONE, needs) == "needed job 2 is dead"
    assert reason_for(When.DONE, [NeedState(JobId(9), JobId(3), None)]) == "needed job 3 is gone"
    assert "only if one failed" in reason_for(When.FAILED, needs[:1])


def test_conditions_may_be_written_as_words():
    """And a word that means nothing is refused at once."""
    after = After(ids=(JobId(1),), when="ended", if_not="hold")
    assert (after.when, after.if_not) == (When.ENDED, IfNot.HOLD)
    for wrong in ({"when": "sometimes"}, {"if_not": "cry"}):
        with pytest.raises(InvalidInput):
            After(ids=(JobId(1),), **wrong)


def test_after_nothing_is_a_mistake():
    """An empty list was not meant."""
    with pytest.raises(InvalidInput):
        After()
