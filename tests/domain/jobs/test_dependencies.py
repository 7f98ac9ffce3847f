"""When a waiting job may start."""

from __future__ import annotations

import pytest

from holdfast.domain.jobs.dependencies import After, DependencyState, DependencyStep, IfNot, When, next_step, reason_for
from holdfast.domain.jobs.job import JobId, State
from holdfast.errors import InvalidInput

READY, DONE, DEAD, CANCELLED = State.READY, State.DONE, State.DEAD, State.CANCELLED


@pytest.mark.parametrize(
    ("when", "states", "step"),
    [
        (When.DONE, [DONE, DONE], DependencyStep.START),
        (When.DONE, [DONE, READY], DependencyStep.WAIT),
        (When.DONE, [DEAD, READY], DependencyStep.CANCEL),
        (When.DONE, [CANCELLED], DependencyStep.CANCEL),
        (When.DONE, [None], DependencyStep.CANCEL),
        (When.FINISHED, [DEAD, DONE, CANCELLED], DependencyStep.START),
        (When.FINISHED, [DEAD, READY], DependencyStep.WAIT),
        (When.FAILED, [DEAD, READY], DependencyStep.START),
        (When.FAILED, [CANCELLED], DependencyStep.START),
        (When.FAILED, [DONE, READY], DependencyStep.WAIT),
        (When.FAILED, [DONE, DONE], DependencyStep.CANCEL),
    ],
)
def test_conditions(when, states, step):
    """Each condition starts, waits or gives up as its needs stand."""
    assert next_step(when, IfNot.CANCEL, states) is step


def test_giving_up_can_mean_holding():
    """A job may be held for a person where another is cancelled."""
    assert next_step(When.DONE, IfNot.HOLD, [DEAD]) is DependencyStep.HOLD
    assert next_step(When.FAILED, IfNot.HOLD, [DONE]) is DependencyStep.HOLD


def test_the_reason_names_the_need():
    """Whoever asks why a job was cancelled is told by which need."""
    dependencies = [DependencyState(JobId(9), JobId(1), DONE), DependencyState(JobId(9), JobId(2), DEAD)]
    assert reason_for(When.DONE, dependencies) == "dependency 2 is dead"
    assert reason_for(When.DONE, [DependencyState(JobId(9), JobId(3), None)]) == "dependency 3 is gone"
    assert "only if one fails" in reason_for(When.FAILED, dependencies[:1])


def test_conditions_may_be_written_as_words():
    """And a word that means nothing is refused at once."""
    after = After(ids=(JobId(1),), when="finished", if_not="hold")
    assert (after.when, after.if_not) == (When.FINISHED, IfNot.HOLD)
    for wrong in ({"when": "sometimes"}, {"if_not": "cry"}):
        with pytest.raises(InvalidInput):
            After(ids=(JobId(1),), **wrong)


def test_after_nothing_is_a_mistake():
    """An empty list was not meant."""
    with pytest.raises(InvalidInput):
        After()
