"""Autoscaling: slots that follow how a host bears them, and who gives way when memory is short."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.domain.fleet.autoscaler import (
    EVICTION_INTERVAL_S,
    MAX_FROZEN_S,
    SETTLE_S,
    STEP_INTERVAL_S,
    WATCH_S,
    Bounds,
    HostCondition,
    HostLoad,
    Relief,
    ReliefAction,
    RunningLoad,
    Slots,
    Strain,
    relieve,
    step,
    strain,
)
from holdfast.domain.fleet.queue import parse_bounds
from holdfast.errors import InvalidInput

CALM = HostLoad(total=1000, used=100, cores=8, load=1.0, cpu_pressure=1.0, memory_pressure=0.0)
FULL_USE = HostCondition(CALM, requested=True)
BOUNDS = Bounds(1, 8)
TROUBLE = {
    "load": HostCondition(replace(CALM, load=7.5), requested=True),
    "pressure": HostCondition(replace(CALM, cpu_pressure=60.0), requested=True),
    "swap": HostCondition(CALM, swapping=True, requested=True),
    "failures": HostCondition(CALM, failures=4, requested=True),
}


@pytest.mark.parametrize("text", ["", "8", "0-3", "4-2", "1-99999", "a-b", "1-2-3", "-1-2"])
def test_bounds_that_make_no_sense(text):
    """They are refused."""
    with pytest.raises(InvalidInput, match="not a valid range"):
        parse_bounds(text)


def test_bounds():
    assert parse_bounds("1-8") == Bounds(1, 8)
    assert parse_bounds("off") is None
    assert str(Bounds(2, 4)) == "2-4"


def test_one_slot_at_a_time_up_to_the_most():
    """While all are in use and something waits; not sooner than ten seconds after the last."""
    slots, now, counts = Slots(1, 0.0), 0.0, []
    for _ in range(20):
        now += STEP_INTERVAL_S / 2
        slots, _ = step(slots, FULL_USE, Bounds(1, 4), now)
        counts.append(slots.count)
    assert counts == [1, 2, 2, 3, 3, *[4] * 15]


def test_no_slot_is_added_that_nobody_wants():
    """Slots that are not in use are not tried."""
    assert step(Slots(2, 0.0), HostCondition(CALM), BOUNDS, 1000.0) == (Slots(2, 0.0), None)


@pytest.mark.parametrize("trouble", TROUBLE.values(), ids=TROUBLE)
def test_a_step_that_brings_trouble_is_taken_back(trouble):
    """Within five minutes; and for five minutes none is added."""
    up, _ = step(Slots(4, 0.0), FULL_USE, BOUNDS, 100.0)
    assert (up.count, up.before) == (5, 4)
    back, why = step(up, trouble, BOUNDS, 100.0 + WATCH_S - 1)
    assert (back.count, bool(why)) == (4, True)
    assert step(back, FULL_USE, BOUNDS, back.changed_at + WATCH_S - 1)[0].count == 4
    assert step(back, FULL_USE, BOUNDS, back.changed_at + WATCH_S)[0].count == 5


def test_pressure_that_comes_by_itself_takes_a_quarter():
    """Again and again, with time between for the host to settle; never below the least."""
    slots, now, counts = Slots(8, 0.0), 1000.0, []
    for _ in range(12):
        slots, _ = step(slots, TROUBLE["pressure"], Bounds(2, 8), now)
        counts.append(slots.count)
        now += SETTLE_S / 2
    assert counts == [8 * 3 // 4, 6, 4, 4, 3, 3, 2, 2, 2, 2, 2, 2]


def test_without_pressure_figures_the_load_counts():
    """Where the kernel tells of none."""
    host = replace(CALM, cpu_pressure=None, load=7.5)
    assert step(Slots(8, 0.0), HostCondition(host), BOUNDS, 1000.0)[0].count == 6
    assert step(Slots(8, 0.0), HostCondition(replace(CALM, load=7.5)), BOUNDS, 1000.0)[0].count == 8


@given(st.integers(1, 50), st.integers(1, 20), st.integers(0, 20), st.sampled_from([FULL_USE, *TROUBLE.values()]))
def test_slots_are_always_within_their_bounds(count, least, more, bearing):
    """Also when these are changed while it works."""
    bounds = Bounds(least, least + more)
    slots, _ = step(Slots(count, 0.0, before=max(1, count - 1)), bearing, bounds, 100.0)
    assert bounds.least <= slots.count <= bounds.most


@pytest.mark.parametrize(
    ("used", "pressure", "level"),
    [
        (850, 0.0, Strain.EASY),
        (910, 0.0, Strain.TIGHT),
        (940, 0.0, Strain.FULL),
        (960, None, Strain.SPENT),
        (100, 6.0, Strain.TIGHT),
        (100, 12.0, Strain.FULL),
        (100, 30.0, Strain.SPENT),
    ],
)
def test_how_short_memory_is(used, pressure, level):
    """By what is in use, or by how long everybody waits for it, whichever is worse."""
    assert strain(replace(CALM, used=used, memory_pressure=pressure), 800) is level


def test_the_one_that_has_worked_least_gives_way():
    """It is frozen, and evicted when that has not helped; the others go on."""
    commands = [RunningLoad(1, 100.0), RunningLoad(2, 5.0), RunningLoad(3, 50.0)]
    assert relieve(Strain.TIGHT, commands, since_eviction=1e9) is None
    assert relieve(Strain.FULL, commands, since_eviction=1e9) == Relief(ReliefAction.FREEZE, 2)
    commands[1] = RunningLoad(2, 5.0, frozen=MAX_FROZEN_S - 1)
    assert relieve(Strain.FULL, commands, since_eviction=1e9) is None
    assert relieve(Strain.SPENT, commands, since_eviction=1e9) == Relief(ReliefAction.EVICT, 2)
    assert relieve(Strain.SPENT, commands, since_eviction=EVICTION_INTERVAL_S - 1) is None
    commands[1] = RunningLoad(2, 5.0, frozen=MAX_FROZEN_S)
    assert relieve(Strain.FULL, commands, since_eviction=1e9) == Relief(ReliefAction.EVICT, 2)


def test_when_memory_is_easy_the_frozen_go_on():
    """First the one that has worked most; also when only frozen ones are left."""
    commands = [RunningLoad(1, 10.0), RunningLoad(2, 5.0, frozen=9.0), RunningLoad(3, 7.0, frozen=3.0)]
    assert relieve(Strain.EASY, commands, since_eviction=1e9) == Relief(ReliefAction.THAW, 3)
    assert relieve(Strain.FULL, commands[1:], since_eviction=1e9) == Relief(ReliefAction.THAW, 3)
    assert relieve(Strain.EASY, commands[:1], since_eviction=1e9) is None


WORKING = st.builds(
    RunningLoad, st.integers(1, 100), st.floats(0, 1e6), evictable=st.booleans(), frozen=st.none() | st.floats(0, 100)
)


@given(st.sampled_from(Strain), st.lists(WORKING, max_size=10, unique_by=lambda each: each.job_id))
def test_commands_that_must_not_run_twice_are_never_stopped(level, commands):
    """Nor is a program that is alone."""
    relief = relieve(level, commands, since_eviction=1e9)
    if relief is not None and relief.action is not ReliefAction.THAW:
        (chosen,) = (each for each in commands if each.job_id == relief.job_id)
        assert chosen.evictable
        assert len(commands) > 1
