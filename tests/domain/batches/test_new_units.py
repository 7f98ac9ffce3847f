"""Groups of new units, the record of units in flight, and the units that a run has taken."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.domain.batches.new_units import HeldUnits, NewUnits, TakenUnits
from holdfast.domain.batches.unit import unit_key


@pytest.mark.parametrize("span", [range(3), range(9, 3, -2), range(10**30, 10**30 + 2)])
def test_the_units_of_a_range_have_its_keys(span):
    """Their record is short, and reads the same."""
    units = NewUnits.of(span, 7)
    assert [*units] == [(unit_key(value), place) for place, value in enumerate(span, start=7)]
    assert units.all_keys == [key for key, _ in units]
    assert read(units) == [*units]


@pytest.mark.parametrize("units", [[], NewUnits(), [("5", 1), ('"a"', 0)], NewUnits.of(range(4), 0)[1:]])
def test_the_record_of_units_in_flight_has_keys_and_places(units):
    """Also of a part of a group."""
    assert read(units) == [*units]


def read(units):
    record = msgspec.json.encode(HeldUnits.of(units))
    return [*msgspec.json.decode(record, type=HeldUnits).placed()]


def taken(*groups):
    hand = TakenUnits()
    for group in groups:
        hand.take(group)
    return hand


def new(first, end):
    return NewUnits.of(range(first, end), first)


def test_a_group_finishes_at_once():
    """Its results are the group itself."""
    group = new(0, 3)
    hand = taken(group)
    assert hand.finish_all([*group]) is group
    assert len(hand) == 0
    assert hand.items() == []


def test_a_group_in_another_order_or_with_times_finishes_too():
    for results in ([("1", 1), ("0", 0)], [("0", 0), ("1", 1, 0.2)]):
        hand = taken(new(0, 2))
        assert hand.finish_all(results) == results
        assert len(hand) == 0


def test_some_results_finish_only_their_units():
    """Nothing finishes at once while a unit is missing, or has more than a time."""
    hand = taken(new(0, 3), new(3, 4))
    assert hand.finish_all([("0", 0), ("1", 1)]) == ()
    assert hand.finish_all([("0", 0), ("1", 1), ("3", 3), object()]) == ()
    hand.finish("1")
    assert sorted(hand.items()) == [("0", 0), ("2", 2), ("3", 3)]
    assert len(hand) == 3
    assert hand.finish_all([("0", 0), ("2", 2), ("3", 3)])
    assert hand.finish_all([]) == ()
