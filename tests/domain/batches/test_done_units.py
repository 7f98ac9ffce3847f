"""Units that are done at the first attempt, by column."""

from __future__ import annotations

import pytest

from holdfast.domain.batches.done_units import DoneUnits, outcome_of, outcomes_of
from holdfast.domain.batches.new_units import NewUnits
from holdfast.domain.batches.unit import UnitOutcome, UnitState


def test_a_short_form_means_the_same_as_its_outcome():
    """Seconds are missing if they were almost none."""
    units = [("1", 0), ("2", 1, 0.0024), ("3", 2)]
    outcomes = outcomes_of(units)
    assert isinstance(outcomes, DoneUnits)
    assert list(outcomes) == [*map(outcome_of, units)]
    assert [each.duration_ms for each in outcomes] == [0, 2, 0]
    assert {each.state for each in outcomes} == {UnitState.DONE}


def test_one_long_form_makes_all_long():
    failed = UnitOutcome(key="2", position=1, state=UnitState.FAILED, error="no")
    assert outcomes_of([("1", 0), failed]) == [outcome_of(("1", 0)), failed]
    assert outcomes_of([]) == []


@pytest.mark.parametrize("more", [{"label": "new"}, {"warning": "slow"}, {"data": "1"}, {"attempts": 2}])
def test_units_with_notes_have_no_columns(more):
    plain = UnitOutcome(key="1", position=0, state=UnitState.DONE)
    assert list(DoneUnits.of([plain])) == [plain]
    assert DoneUnits.of([plain, UnitOutcome(key="2", position=1, state=UnitState.DONE, **more)]) is None


def test_a_group_has_one_duration_and_consecutive_places():
    assert DoneUnits("abc", (4, 5, 6), [0, 0, 0]).groups() == [(0, 3)]
    assert DoneUnits("abcd", (4, 5, 6, 7), [0, 0, 9, 9]).groups() == [(0, 2), (2, 4)]
    assert DoneUnits("abcd", (4, 5, 9, 8), [0] * 4).groups() == [(0, 2), (2, 3), (3, 4)]


def test_new_units_that_took_no_time_are_their_own_columns():
    """The outcomes are those of the same units one by one."""
    units = NewUnits.of(range(5, 8), 5)
    assert [*units] == [("5", 5), ("6", 6), ("7", 7)]
    outcomes = outcomes_of(units)
    assert isinstance(outcomes, DoneUnits)
    assert [*outcomes] == [*map(outcome_of, units)] == [*outcomes_of([*units])]
    assert outcomes.groups() == [(0, 3)]
