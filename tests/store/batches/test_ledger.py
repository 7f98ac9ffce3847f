"""The ledger: counters from the states that it had, and the order of units in a resumed batch."""

from __future__ import annotations

import json

import pytest
from msgspec import structs

from holdfast.domain.batches.batch import AbortedBy
from holdfast.domain.batches.done_units import DoneUnits
from holdfast.domain.batches.unit import UnitState, unit_key
from holdfast.domain.jobs.verdict import Done
from holdfast.store.batches.state import FIRST_PLACE
from holdfast.store.batches.unit_choice import NextUnits
from tests.store.batches.test_batches import WORKER, begin, check, done, finish, keys, leave, take, taken
from tests.store.batches.test_runs import launch, shard, work
from tests.support.jobs import lapse


def again(store, run, *, after=FIRST_PLACE, limit=100, in_hand=(), **options):
    """Take units that an earlier run began."""
    return store.batches.flush(run, next_units=NextUnits(after=after, limit=limit, in_hand=in_hand, **options))


def meet(store, run, *values, limit=100, **options):
    """Take the new ones of these units, and mark the others for later."""
    return store.batches.flush(run, next_units=NextUnits(candidates=keys(*values), limit=limit, defer=True, **options))


@pytest.mark.parametrize("end", [UnitState.DONE, UnitState.FAILED, UnitState.SKIPPED])
def test_a_failed_unit_that_a_person_retries_in_flight_is_counted_once(store, end):
    """K10: the run has it in hand as failed; its counters change by the state in the ledger, not by what it knew."""
    first = begin(store)
    finish(store, first, 1, 2, state=UnitState.FAILED, error="no")
    leave(store, first, total=2)
    second = begin(store)
    units = take(store, second, 1, 2).taken
    assert store.ledger.retry(second.batch.id, [units[0].key]) == 1
    check(store, second.batch.id)
    store.batches.flush(second, [done(unit, end) for unit in units])
    counters = check(store, second.batch.id)
    assert (counters.done, counters.failed, counters.skipped) == tuple(
        2 * (end is state) for state in (UnitState.DONE, UnitState.FAILED, UnitState.SKIPPED)
    )


def test_a_streak_that_a_person_retries_is_counted_once(store):
    """K10: "retry failed" between the flush of a failure and the breaker that returns it."""
    run = begin(store)
    first, second = take(store, run, 1, 2).taken
    store.batches.flush(run, [done(first, UnitState.FAILED, error="no")], NextUnits(in_hand=keys(1, 2)[1:]))
    assert store.batches.retry_failed(run.batch.id) == 1
    streak = [done(first, UnitState.PENDING, error="no"), done(second, UnitState.PENDING, error="no")]
    store.batches.flush(run, streak, NextUnits(abort=AbortedBy.MAX_FAILURES))
    counters = check(store, run.batch.id)
    assert (counters.failed, counters.returned) == (0, 2)


def test_a_unit_that_a_person_skips_in_flight_stays_skipped(store):
    """K10: its outcome is discarded, and the run is told."""
    first = begin(store)
    finish(store, first, 1, state=UnitState.FAILED, error="no")
    leave(store, first, total=1)
    second = begin(store)
    (unit,) = take(store, second, 1).taken
    assert store.ledger.skip(second.batch.id, [unit.key]) == 1
    assert store.batches.flush(second, [done(unit)]).discarded == {unit.key}
    counters = check(store, second.batch.id)
    assert (counters.done, counters.skipped) == (0, 1)


@pytest.mark.parametrize("retried", [False, True])
def test_every_unit_of_a_lost_holder_is_in_doubt(store, clock, retried):
    """K11: with on_lost=hold also a unit that had failed before, whatever its row says."""
    first = begin(store)
    finish(store, first, 1, state=UnitState.FAILED, error="no")
    leave(store, first, total=1)
    second = begin(store)
    take(store, second, 1, 2, in_doubt_if_lost=True)
    if retried:
        store.ledger.retry(second.batch.id, [unit_key(1)])
    lapse(clock)
    store.leases.take_over()
    units = store.batches.units(second.batch.id)
    assert [unit.state for unit in units] == [UnitState.IN_DOUBT, UnitState.IN_DOUBT], "K11 is broken"
    counters = check(store, second.batch.id)
    assert (counters.in_doubt, counters.failed) == (2, 0)
    third = begin(store)
    meet(store, third, 1, 2)
    assert taken(again(store, third)) == []


def test_a_slow_poison_suspect_stays_alone(store):
    """A flush while it runs does not take away that it runs alone: its crashes count, and it is set aside."""
    dead = ()
    for _ in range(4):
        run = begin(store, dead=dead)
        assert taken(take(store, run, 666)) == [666]
        store.batches.flush(run, next_units=NextUnits(in_hand=keys(666), isolated=bool(dead)))
        dead = (run.lease.job_id,)
    last = begin(store, dead=dead)
    failed = [(unit.crashes, unit.label) for unit in store.batches.units(last.batch.id, state=UnitState.FAILED)]
    assert failed == [(3, "crashed")], "I10 is broken: its crashes are not counted"


def test_units_that_an_earlier_run_began_come_last(store):
    """U2: failed, returned, interrupted and lost ones; the longest ago first; and only those whose keys were met."""
    first = begin(store)
    units = {int(unit.key): unit for unit in take(store, first, *range(6)).taken}
    ends = [
        done(units[0], UnitState.FAILED, error="no"),
        done(units[1], UnitState.PENDING, error="no"),
        done(units[2]),
        done(units[5], UnitState.FAILED, error="no"),
    ]
    store.batches.flush(first, ends, interrupted=[(units[3].key, 3)])
    leave(store, first, AbortedBy.SIGNAL, total=9, complete=False)
    second = begin(store)
    flushed = meet(store, second, *range(5), 6, 7)
    assert (taken(flushed), flushed.examined) == ([4, 6, 7], 7)
    flushed = again(store, second, limit=2)
    assert taken(flushed) == [0, 1]
    flushed = again(store, second, after=flushed.choice.last, limit=2)
    assert (taken(flushed), again(store, second, after=flushed.choice.last, limit=2).choice.last) == ([3], None)
    check(store, second.batch.id)


def test_a_retried_unit_comes_after_those_that_wait_longer(store):
    """U2: a run that stops among the retried units begins with the others next time."""
    first = begin(store)
    finish(store, first, 1, 2, 3, state=UnitState.FAILED, error="no")
    leave(store, first)
    second = begin(store)
    meet(store, second, 1, 2, 3)
    (unit,) = again(store, second, limit=1).taken
    store.batches.flush(second, [done(unit, UnitState.FAILED, error="no")])
    leave(store, second, AbortedBy.LIMIT, complete=False)
    third = begin(store)
    meet(store, third, 1, 2, 3)
    assert [int(unit.key) for unit in again(store, third).taken] == [2, 3, 1]


def test_failed_units_are_left_alone_when_they_are_not_to_be_retried(store):
    """U2: with retry_failed=False only units that are pending come again."""
    first = begin(store)
    one, two = take(store, first, 1, 2).taken
    store.batches.flush(first, [done(one, UnitState.FAILED, error="no"), done(two, UnitState.PENDING, error="no")])
    leave(store, first, AbortedBy.MAX_FAILURES, complete=False)
    second = begin(store)
    meet(store, second, 1, 2, retry_failed=False)
    assert taken(again(store, second, retry_failed=False)) == [2]


def test_shards_take_untouched_units_first(store):
    """U2: on workers, returned units and failed ones that are submitted again come last."""
    batch = launch(store, *range(6), shards=1)
    run = shard(store, batch)
    zero, one = store.batches.flush(run, next_units=NextUnits(limit=2)).taken
    ends = [done(zero, UnitState.PENDING, error="no"), done(one, UnitState.FAILED, error="no")]
    store.batches.flush(run, ends, NextUnits(abort=AbortedBy.MAX_FAILURES))
    store.batches.leave(run, AbortedBy.MAX_FAILURES)
    store.leases.settle(run.lease, Done())
    run = shard(store, launch(store, *range(6), shards=1))
    order = [work(store, run, limit=1) for _ in range(6)]
    assert order == [[2], [3], [4], [5], [0], [1]], "U2 is broken: the order of a shard"
    check(store, batch.id)


def test_a_lost_unit_waits_behind_untouched_ones(store):
    """U2: a unit that kills its process does not keep the others from running."""
    first = begin(store)
    take(store, first, 1, 2)
    second = begin(store, dead=(first.lease.job_id,))
    assert taken(meet(store, second, 1, 2, 3)) == [3]
    assert taken(again(store, second)) == [1], "a suspect runs alone"


def test_a_unit_knows_its_last_attempt_and_its_earlier_errors(store):
    """E4: the time, the worker, and the errors of attempts before, in this run and in earlier ones."""
    run = begin(store)
    (unit,) = take(store, run, 1).taken
    end = done(unit, UnitState.FAILED, error="third", earlier_errors=("first", "second"))
    store.batches.flush(run, [end])
    (failed,) = store.batches.units(run.batch.id)
    assert failed.attempted_at is not None
    assert (failed.worker, failed.error, failed.earlier_errors) == (WORKER, "third", '["first","second"]')
    leave(store, run, total=1)
    again = begin(store)
    (unit,) = take(store, again, 1).taken
    store.batches.flush(again, [done(unit)])
    (ended,) = store.batches.units(run.batch.id)
    assert (ended.state, ended.error, ended.earlier_errors) == ("done", None, '["first","second","third"]')


def test_a_unit_keeps_few_earlier_errors(store):
    """E4: five of 600 characters, so that a ledger stays small."""
    run = begin(store)
    (unit,) = take(store, run, 1).taken
    many = tuple(f"{n} {'x' * 1000}" for n in range(9))
    store.batches.flush(run, [done(unit, UnitState.FAILED, error="last", earlier_errors=many)])
    (failed,) = store.batches.units(run.batch.id)
    kept = json.loads(failed.earlier_errors)
    assert [error[0] for error in kept] == ["4", "5", "6", "7", "8"]
    assert all(len(error) == 600 for error in kept)


def test_plainly_done_units_have_a_time_and_a_worker(store):
    """E4: also those that are written in bulk, without a row before."""
    run = begin(store)
    units = take(store, run, 1, 2, fresh=True).taken
    store.batches.flush(run, [done(unit) for unit in units], NextUnits(fresh=True))
    rows = store.batches.units(run.batch.id)
    assert [(row.worker, row.attempted_at is None) for row in rows] == [(WORKER, False)] * 2


@pytest.mark.parametrize("shape", ["alike", "one longer", "all different", "out of order"])
def test_new_units_keep_their_places_and_durations(store, shape):
    """They are written by column, and units with one duration and consecutive places by one statement."""
    run = begin(store)
    take(store, run, *range(120), fresh=True)
    places = [*range(0, 120, 2), *range(1, 120, 2)] if shape == "out of order" else [*range(120)]
    durations = {"one longer": [0] * 50 + [7] + [0] * 69, "all different": [*range(120)]}.get(shape, [0] * 120)
    units = DoneUnits([unit_key(place) for place in places], places, durations)
    assert [each.key for each in units] == [str(place) for place in places]
    store.batches.flush(run, units, NextUnits(fresh=True))
    assert check(store, run.batch.id).done == 120
    rows = {row.position: row for row in store.batches.units(run.batch.id, limit=200)}
    for place, duration in zip(places, durations, strict=True):
        row = rows[place]
        assert (int(row.key), row.state, row.attempts, row.duration_ms) == (place, UnitState.DONE, 1, duration)


def test_plainly_done_units_of_shards_are_written_by_their_states(store):
    """Planned units have rows. Those that a person changed in flight are counted by the states in the ledger."""
    batch = launch(store, *range(6), shards=1)
    run = shard(store, batch)
    zero, one = store.batches.flush(run, next_units=NextUnits(limit=2)).taken
    ends = [done(zero, UnitState.FAILED, error="no"), done(one, UnitState.FAILED, error="not")]
    store.batches.flush(run, ends, NextUnits(planned=True))
    assert store.ledger.retry(batch.id, [zero.key]) == 1
    assert store.ledger.skip(batch.id, [one.key]) == 1
    units = store.batches.flush(run, next_units=NextUnits(limit=5, planned=True)).taken
    assert len(units) == 5
    ends = [structs.replace(done(unit), attempts=1, duration_ms=3) for unit in [*units, one]]
    flushed = store.batches.flush(run, ends, NextUnits(planned=True))
    counters = check(store, batch.id)
    assert (counters.done, counters.skipped, counters.failed) == (5, 1, 0)
    assert flushed.discarded == {one.key}
    rows = {unit.key: unit for unit in store.batches.units(batch.id)}
    assert json.loads(rows[zero.key].earlier_errors) == ["no"]
    assert {
        (row.attempts, row.last_run, row.worker, row.duration_ms) for row in (rows[unit.key] for unit in units)
    } == {(1, 1, WORKER, 3)}
    again = store.batches.flush(run, ends[:5], NextUnits(planned=True))
    assert again.discarded == {unit.key for unit in units}
    assert check(store, batch.id).done == 5


def test_planned_units_keep_their_durations(store):
    """Each has its own, whatever its key looks like."""
    batch = launch(store, 1, 'a"b', "pending", "ü", shards=1)
    run = shard(store, batch)
    units = store.batches.flush(run, next_units=NextUnits(limit=9)).taken
    ends = [structs.replace(done(unit), duration_ms=10 * place) for place, unit in enumerate(units)]
    store.batches.flush(run, ends, NextUnits(planned=True))
    rows = {unit.key: unit.duration_ms for unit in store.batches.units(batch.id)}
    assert rows == {end.key: end.duration_ms for end in ends}
    assert check(store, batch.id).done == 4
