"""Changes of many units: in steps that are short, that others continue, and that a dry run only counts."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.domain.batches.batch import AbortedBy, BatchState
from holdfast.domain.batches.unit import HandedResult, UnitOutcome, UnitState, unit_key
from holdfast.domain.retention import Retention
from holdfast.errors import BatchHeld, NoSuchBatch, ResultLost
from holdfast.store.batches import queries, state, unit_steps
from holdfast.store.batches.unit_choice import NextUnits
from tests.store.batches.test_batches import begin, check, done, finish, keys, leave, take
from tests.store.batches.test_runs import launch, shard
from tests.support.jobs import prune

UNITS = 10


@pytest.fixture(autouse=True)
def small_steps(monkeypatch):
    monkeypatch.setattr(state, "STEP_SIZE", 3)
    monkeypatch.setattr(queries, "CHUNK_SIZE", 3)


@pytest.fixture
def steps():
    """The numbers that a change reports."""
    return []


def tables(database, batch_id):
    """The number of rows of a batch."""
    names = ("batch WHERE id", "unit WHERE batch_id", "unit_count WHERE batch_id", "inbox WHERE batch_id")
    return [
        database.execute(f"SELECT count(*) FROM holdfast.{name} = {batch_id}")[0][0]
        for name in (*names, "deleted_batch WHERE id")
    ]


def test_cancel_goes_in_steps(store, steps):
    """K33: no statement touches more units than a step, and the batch is cancelled with the last one."""
    batch = launch(store, *range(UNITS))
    assert store.batches.cancel(batch.id, on_step=steps.append) == UNITS
    assert steps == [3, 6, 9, 10], "K33 is broken"
    assert store.batches.get(batch.id).state is BatchState.CANCELLED
    assert check(store, batch.id).cancelled == UNITS


def test_units_of_one_place_are_all_cancelled(store):
    """K33: keys that came and went share places in the input; a step may end between two of them."""
    run = begin(store)
    store.batches.plan(run, [(unit_key(n), n // 5) for n in range(UNITS)])
    assert store.batches.cancel(run.batch.id) == UNITS


def test_results_are_cancelled_in_steps_too(store, steps):
    run = begin(store)
    units = take(store, run, *range(UNITS)).taken
    handed = [
        UnitOutcome(key=unit.key, position=unit.position, state=UnitState.RUNNING, handed=HandedResult("box", "1"))
        for unit in units
    ]
    store.batches.flush(run, handed)
    leave(store, run, total=UNITS)
    assert store.batches.cancel(run.batch.id, on_step=steps.append) == UNITS
    assert (steps, store.inbox.size("box")) == ([3, 6, 9, 10], 0)
    assert store.batches.get(run.batch.id).state is BatchState.CANCELLED
    check(store, run.batch.id)


@pytest.mark.parametrize("place", ["workers", "here", "paused"])
def test_a_worker_continues_a_cancel(store, place):
    """K33: whoever cancels may die after any step; nothing of the batch runs meanwhile, and no resume withdraws it."""
    if place == "workers":
        batch_id = launch(store, *range(UNITS)).id
    else:
        run = begin(store)
        batch_id = run.batch.id
        store.batches.plan(run, keys(*range(UNITS)))
        leave(store, run, total=UNITS, complete=False)
    if place == "paused":
        store.batches.pause(batch_id)
    step = store.backend.write(unit_steps.cancel_step, batch_id, None, state.START, 3)
    assert (step.changed, step.cursor is None) == (3, False)
    assert not store.batches.get(batch_id).state.finished
    assert not store.batches.resume(batch_id)
    assert store.batches.retry_failed(batch_id) == 0
    if place == "workers":
        assert shard(store, store.batches.get(batch_id)) is None
    for _ in range(4):
        assert store.batches.continue_cancel(), "K33 is broken"
        if store.batches.get(batch_id).state is BatchState.CANCELLED:
            break
    assert (store.batches.continue_cancel(), check(store, batch_id).cancelled) == (0, UNITS)
    assert store.batches.get(batch_id).state is BatchState.CANCELLED


def test_a_run_that_ends_leaves_the_rest_of_a_cancel_to_others(store):
    """K33: the last holder cancels one step of units, and a worker the others."""
    batch = launch(store, *range(UNITS), shards=1)
    run = shard(store, batch)
    (unit,) = store.batches.flush(run, next_units=NextUnits(limit=1)).taken
    store.backend.write(unit_steps.cancel_step, batch.id, None, state.START, 3)
    store.batches.flush(run, [done(unit)])
    left = store.batches.leave(run, None)
    assert not left.state.finished
    while store.batches.continue_cancel():
        pass
    counted = check(store, batch.id)
    assert (counted.done, counted.cancelled) == (1, UNITS - 1)
    assert store.batches.get(batch.id).state is BatchState.CANCELLED


def test_failed_units_are_retried_in_steps(store, steps):
    """K33: the batch reopens with the first step, so a call that dies leaves nothing behind that is out of reach."""
    run = begin(store)
    finish(store, run, *range(UNITS), state=UnitState.FAILED)
    leave(store, run, total=UNITS)
    step = store.backend.write(unit_steps.retry_step, run.batch.id, UnitState.FAILED, None, state.START, 3)
    assert (step.changed, store.batches.get(run.batch.id).state) == (3, BatchState.STOPPED)
    assert store.batches.retry_failed(run.batch.id, on_step=steps.append) == 7
    assert steps[:3] == [3, 6, 7]
    assert store.batches.recount(run.batch.id) == {"pending": UNITS}
    check(store, run.batch.id)


def test_chosen_units_are_retried_in_steps(store):
    """K33: a call that dies after its first step has reopened the batch already."""
    run = begin(store)
    finish(store, run, *range(UNITS), state=UnitState.FAILED)
    leave(store, run, total=UNITS)
    store.backend.write(unit_steps.change_units, run.batch.id, [unit_key(1)], UnitState.PENDING, None, None)
    assert store.batches.get(run.batch.id).state is BatchState.STOPPED
    assert store.ledger.retry(run.batch.id, [unit_key(n) for n in range(UNITS)]) == UNITS - 1


def test_a_batch_is_deleted_in_steps(store, database):
    """K33: it is gone at once, also for consumers of its results; its rows go in steps, which a worker continues."""
    run = begin(store)
    units = take(store, run, *range(UNITS)).taken
    handed = UnitOutcome(
        key=units[0].key, position=0, state=UnitState.RUNNING, handed=HandedResult("box", "1"), attempts=1
    )
    store.batches.flush(run, [handed, *(done(unit) for unit in units[1:])])
    leave(store, run, total=UNITS)
    (result,) = store.inbox.take("box")
    store.backend.write(unit_steps.delete, run.batch.id)
    with pytest.raises(NoSuchBatch):
        store.batches.get(run.batch.id)
    with pytest.raises(ResultLost):
        store.inbox.accept(result)
    assert not [finding for finding in store.database.check() if not finding.ok]
    assert tables(database, run.batch.id)[:2] == [0, UNITS]
    assert begin(store).batch.generation == 1
    assert prune(store, "units", limit=3) == 3
    assert tables(database, run.batch.id)[1] == UNITS - 3
    while prune(store, "units", limit=3):
        pass
    assert tables(database, run.batch.id) == [0, 0, 0, 0, 0], "K33 is broken"


def test_delete_reports_its_steps(store, database, steps):
    run = begin(store)
    finish(store, run, *range(UNITS))
    with pytest.raises(BatchHeld):
        store.batches.delete(run.batch.id)
    leave(store, run, total=UNITS)
    store.batches.delete(run.batch.id, on_step=steps.append)
    assert (steps, tables(database, run.batch.id)) == ([3, 6, 9, 10], [0, 0, 0, 0, 0])


def test_a_dry_run_ends_and_counts(store):
    """K33: it counts each unit once."""
    batch = launch(store, *range(UNITS))
    with store.dry_run() as dry:
        assert dry.batches.cancel(batch.id) == UNITS
    assert store.batches.recount(batch.id) == {"pending": UNITS}
    store.batches.cancel(batch.id)
    with store.dry_run() as dry:
        dry.batches.delete(batch.id)
    assert store.batches.recount(batch.id) == {"cancelled": UNITS}


def test_units_that_vanished_are_skipped_in_steps(store):
    """K33: of a batch that is submitted again, with other keys."""
    batch = launch(store, *range(UNITS))
    store.batches.abort(batch.id, AbortedBy.SIGNAL)
    again = launch(store, 8, 9, 10, shards=1)
    assert (again.id, again.total) == (batch.id, UNITS + 1)
    assert store.batches.recount(batch.id) == {"pending": 3, "skipped": 8}
    check(store, batch.id)


def test_finished_batches_are_pruned_with_their_ledgers(store, database, clock):
    """K39: after 90 days, in steps; those that can be resumed stay, and so do those of zero retention."""
    run = begin(store)
    finish(store, run, *range(UNITS))
    leave(store, run, total=UNITS)
    stopped = begin(store, "stopped")
    leave(store, stopped, "signal", complete=False)
    clock.advance(days=89)
    assert prune(store, "batches") == 0
    clock.advance(days=2)
    assert prune(store, "batches", limit=1) == 1, "K39 is broken"
    assert prune(store, "batches") == 0
    while prune(store, "units", limit=4):
        pass
    assert tables(database, run.batch.id) == [0, 0, 0, 0, 0]
    assert store.batches.get(stopped.batch.id).state is BatchState.STOPPED
    forever = Retention(batches=timedelta(0))
    assert prune(store, "batches", retention=forever) == 0
