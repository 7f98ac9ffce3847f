"""Batches on workers: one test per promise of store/batches/runs.py."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.domain.batches.batch import AbortedBy, BatchId, BatchState, Sharding, sharding_of
from holdfast.domain.batches.turns import ClaimableJob
from holdfast.domain.batches.unit import HandedResult, UnitOutcome, UnitState
from holdfast.domain.fleet.stop_switch import StopMode
from holdfast.domain.jobs.job import State, WorkerId
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.verdict import Done, Released
from holdfast.errors import BatchHeld, LeaseLost
from holdfast.store.batches.unit_choice import NextUnits
from tests.store.batches.test_batches import WORKER, begin, check, done, keys, leave
from tests.support.jobs import lapse, put, take

KIND = "shard:resync"


def launch(store, *values, shards=2, until=None, **options):
    """A batch of these units on the workers."""
    run = begin(store, **options)
    store.batches.plan(run, keys(*values), retry_failed=True)
    batch = store.batches.launch(run, Sharding(kind=KIND, shards=shards, until=until))
    store.leases.settle(run.lease, Done())
    return batch


def shard(store, batch):
    """One shard begins to work."""
    (lease,) = take(store, kinds=(KIND,))
    return store.batches.join(batch.id, lease, owner="{}", worker=WORKER)


def work(store, run, limit=100, state=UnitState.DONE):
    units = store.batches.flush(run, next_units=NextUnits(limit=limit)).taken
    store.batches.flush(run, [done(unit, state) for unit in units])
    return sorted(int(unit.key) for unit in units)


def part(store, run, aborted_by=None):
    """A shard ends, and its job."""
    batch = store.batches.leave(run, aborted_by)
    store.leases.settle(run.lease, Done())
    return batch


def shards_of(store):
    return [job.id for job in store.views.all(Selector(kinds=(KIND,), states=(State.READY, State.RUNNING)))]


def test_shards_share_the_units(store):
    """Each is a job; none takes what another has; the last one ends the batch."""
    batch = launch(store, 1, 2, 3, 4)
    assert (batch.state, batch.total) == (BatchState.RUNNING, 4)
    one, two = shard(store, batch), shard(store, batch)
    first = store.batches.flush(one, next_units=NextUnits(limit=2)).taken
    assert work(store, two) == [3, 4]
    assert part(store, two).state is BatchState.RUNNING
    store.batches.flush(one, [done(unit) for unit in first])
    assert part(store, one).state is BatchState.DONE
    check(store, batch.id)


def test_a_batch_with_no_units_ends_at_once(store):
    batch = launch(store)
    assert (batch.state, batch.total, shards_of(store)) == (BatchState.DONE, 0, [])


def test_a_batch_on_the_workers_is_a_conflict(store):
    """Also while no shard has begun; one that joins takes what they have not."""
    batch = launch(store, 1, 2)
    with pytest.raises(BatchHeld, match="on the workers"):
        begin(store)
    with pytest.raises(BatchHeld, match="on the workers"):
        begin(store, fresh=True)
    joined = begin(store, join=True)
    assert joined.batch.run_number == batch.run_number
    assert work(store, shard(store, batch), limit=1) == [1]
    assert work(store, joined) == [2]


def test_a_shard_that_comes_late_finds_nothing_to_do(store):
    batch = launch(store, 1)
    run = shard(store, batch)
    assert work(store, run) == [1]
    part(store, run)
    assert shard(store, batch) is None


def test_a_breaker_stops_all_shards(store):
    """The others hear of it with their next flush, and the batch can be resumed."""
    batch = launch(store, 1, 2, 3)
    one, two = shard(store, batch), shard(store, batch)
    part(store, one, AbortedBy.MAX_FAILURES)
    flushed = store.batches.flush(two, next_units=NextUnits(limit=1))
    assert (flushed.taken, flushed.stop) == ([], AbortedBy.MAX_FAILURES)
    finished = part(store, two, flushed.stop)
    assert (finished.state, finished.aborted_by) == (BatchState.STOPPED, "max_failures")
    assert store.batches.resume(batch.id)
    again = shard(store, batch)
    assert work(store, again) == [1, 2, 3]
    finished = part(store, again)
    assert (finished.state, finished.aborted_by) == (BatchState.DONE, None)


def test_a_batch_is_aborted_from_outside(store):
    """At once where nobody works on it, else when its shards have left."""
    batch = launch(store, 1, 2)
    run = shard(store, batch)
    store.batches.abort(batch.id, AbortedBy.SIGNAL)
    assert store.batches.get(batch.id).state is BatchState.RUNNING
    assert store.batches.flush(run, next_units=NextUnits(limit=1)).stop is AbortedBy.SIGNAL
    assert part(store, run, AbortedBy.SIGNAL).state is BatchState.STOPPED
    store.batches.resume(batch.id)
    store.batches.abort(batch.id, AbortedBy.SIGNAL)
    assert store.batches.get(batch.id).state is BatchState.STOPPED


def test_pause_and_resume(store):
    batch = launch(store, 1, 2)
    run = shard(store, batch)
    assert store.batches.pause(batch.id)
    assert store.batches.flush(run, next_units=NextUnits(limit=1)).stop is AbortedBy.PAUSE
    assert part(store, run, AbortedBy.PAUSE).state is BatchState.PAUSED
    assert shard(store, batch) is None
    assert store.batches.resume(batch.id)
    assert store.batches.get(batch.id).state is BatchState.RUNNING
    assert len(shards_of(store)) == 2


def test_a_pause_that_is_withdrawn_starts_the_shards_that_have_left(store):
    """B12: one shard has a long unit in hand. The others have obeyed, and their jobs are done."""
    batch = launch(store, 1, 2, 3, shards=3)
    one, two, three = shard(store, batch), shard(store, batch), shard(store, batch)
    store.batches.flush(one, next_units=NextUnits(limit=1))
    store.batches.pause(batch.id)
    for each in (two, three):
        part(store, each, AbortedBy.PAUSE)
    assert store.batches.resume(batch.id)
    assert work(store, shard(store, batch)) == [2, 3], "B12 is broken: pending units wait for the long one"


def test_retried_units_do_not_wait_for_a_long_unit(store):
    """B12: a shard is busy with a long unit and the others are done. Workers begin at once."""
    batch = launch(store, 1, 2, 3)
    one, two = shard(store, batch), shard(store, batch)
    store.batches.flush(one, next_units=NextUnits(limit=1))
    assert work(store, two, state=UnitState.FAILED) == [2, 3]
    part(store, two)
    assert store.batches.retry_failed(batch.id) == 2
    assert work(store, shard(store, batch)) == [2, 3], "B12 is broken: retried units wait for the long one"


def test_a_pause_that_nobody_has_to_obey_is_told_all_the_same(store):
    """Whoever watches learns why it does not go on."""
    batch = launch(store, 1)
    assert store.batches.pause(batch.id)
    found = store.batches.get(batch.id)
    assert (found.state, found.aborted_by) == (BatchState.PAUSED, AbortedBy.PAUSE)


def test_what_goes_back_is_taken_by_nobody(store):
    """The stop is written with the streak that a breaker gives back."""
    batch = launch(store, 1, 2)
    one, two = shard(store, batch), shard(store, batch)
    (unit,) = store.batches.flush(one, next_units=NextUnits(limit=1)).taken
    store.batches.flush(one, [done(unit, UnitState.PENDING)], NextUnits(abort=AbortedBy.MAX_FAILURES))
    flushed = store.batches.flush(two, next_units=NextUnits(limit=2))
    assert (flushed.taken, flushed.stop) == ([], AbortedBy.MAX_FAILURES)


def test_a_batch_on_the_workers_is_not_removed(store):
    batch = launch(store, 1)
    with pytest.raises(BatchHeld, match="on the workers"):
        store.batches.delete(batch.id)
    store.batches.cancel(batch.id)
    store.batches.delete(batch.id)


def test_a_paused_batch_with_nothing_left_ends_when_it_is_resumed(store):
    batch = launch(store, 1, shards=1)
    run = shard(store, batch)
    (unit,) = store.batches.flush(run, next_units=NextUnits(limit=1)).taken
    handed = UnitOutcome(key=unit.key, position=unit.position, state=UnitState.RUNNING, handed=HandedResult("box", "1"))
    store.batches.flush(run, [handed])
    part(store, run)
    assert store.batches.pause(batch.id)
    (result,) = store.inbox.take("box")
    store.inbox.accept(result)
    assert store.batches.get(batch.id).state is BatchState.PAUSED
    assert store.batches.resume(batch.id)
    assert store.batches.get(batch.id).state is BatchState.DONE


def test_cancel_ends_every_unit_that_nobody_has_in_hand(store):
    """SPEC 8.13: what is under way may finish, and counts."""
    batch = launch(store, 1, 2, 3)
    run = shard(store, batch)
    (unit,) = store.batches.flush(run, next_units=NextUnits(limit=1)).taken
    assert store.batches.cancel(batch.id) == 2
    assert store.batches.flush(run, [done(unit)]).stop is AbortedBy.CANCEL
    assert part(store, run, AbortedBy.CANCEL).state is BatchState.CANCELLED
    counted = store.batches.counters(batch.id)
    assert (counted.done, counted.cancelled) == (1, 2)
    check(store, batch.id)


def test_cancel_of_a_batch_whose_shards_wait(store):
    batch = launch(store, 1, 2, 3)
    assert store.batches.cancel(batch.id) == 3
    assert store.batches.get(batch.id).state is BatchState.CANCELLED
    assert shard(store, batch) is None


def test_what_a_lost_shard_had_in_hand_comes_back(store, clock):
    """Its job is run again, without a limit of crashes; its units run one by one."""
    batch = launch(store, 1, 2, shards=1)
    run = shard(store, batch)
    store.batches.flush(run, next_units=NextUnits(limit=2))
    lapse(clock)
    store.leases.take_over()
    with pytest.raises(LeaseLost):
        store.batches.flush(run)
    clock.advance(minutes=5)
    store.leases.promote(limit=10)
    (lease,) = take(store, kinds=(KIND,), started=True)
    again = store.batches.join(batch.id, lease, owner="{}", worker=WORKER)
    assert work(store, again) == [1]
    assert work(store, again) == [2]
    assert part(store, again).state is BatchState.DONE
    check(store, batch.id)


def test_shards_that_were_removed_come_back(store):
    """A sweep finds batches with pending units that nobody works on; it starts none twice."""
    batch = launch(store, 1, 2)
    assert store.batches.revive() == (0, None)
    assert len(shards_of(store)) == 1
    store.control.cancel(Selector(kinds=(KIND,)), actor="ada")
    assert shards_of(store) == []
    assert store.batches.revive() == (1, None)
    assert len(shards_of(store)) == 1
    run = shard(store, batch)
    assert store.batches.revive() == (0, None)
    work(store, run)
    part(store, run)
    assert store.batches.revive() == (0, None)


def test_failed_units_run_again_when_it_is_submitted_again(store):
    """Only those whose keys are still there; and what kills its process stays aside."""
    batch = launch(store, 1, 2, 3, shards=1)
    run = shard(store, batch)
    work(store, run, state=UnitState.FAILED)
    assert part(store, run).state is BatchState.FAILED
    again = launch(store, 2, 3, shards=1)
    assert (again.id, store.batches.counters(batch.id).failed) == (batch.id, 1)
    run = shard(store, again)
    assert work(store, run) == [2, 3]
    assert part(store, run).state is BatchState.PARTIAL
    check(store, batch.id)


def test_retry_failed_puts_it_back_on_the_workers(store):
    batch = launch(store, 1, 2, shards=1)
    run = shard(store, batch)
    work(store, run, state=UnitState.FAILED)
    part(store, run)
    assert store.batches.retry_failed(batch.id) == 2
    assert work(store, shard(store, batch)) == [1, 2]


def test_a_deadline_that_has_passed_does_not_stop_what_a_person_continues(store, clock):
    """Units that are retried the next day would never run. Until it has passed, a deadline stays in force."""
    until = clock.now() + timedelta(hours=1)
    batch = launch(store, 1, 2, shards=1, until=until)
    run = shard(store, batch)
    work(store, run, state=UnitState.FAILED)
    part(store, run)
    assert store.batches.retry_failed(batch.id) == 2
    assert sharding_of(store.batches.get(batch.id)).until == until
    store.batches.pause(batch.id)
    clock.advance(timedelta(hours=2))
    assert store.batches.resume(batch.id)
    assert sharding_of(store.batches.get(batch.id)).until is None
    assert work(store, shard(store, batch)) == [1, 2]


def test_a_foreground_run_takes_a_stopped_batch_from_the_workers(store):
    batch = launch(store, 1, 2)
    store.batches.abort(batch.id, AbortedBy.SIGNAL)
    run = begin(store)
    assert run.batch.id == batch.id
    assert shard(store, batch) is None
    assert store.batches.revive() == (0, None)
    leave(store, run, AbortedBy.SIGNAL, complete=False)


def test_one_shard_waits_at_most(store):
    """K83: a job that is enqueued later waits behind one shard, not behind all; each shard starts the next one."""
    batch = launch(store, *range(50), shards=3)
    running = []
    for begun in range(3):
        assert len(shards_of(store)) == begun + 1, "K83 is broken"
        running.append(shard(store, batch))
    assert len(shards_of(store)) == 3
    for run in running:
        work(store, run)
        store.batches.leave(run, None)
    assert store.batches.get(batch.id).state is BatchState.DONE


def test_every_batch_is_revived_in_its_turn(store):
    """To check: batches whose shards wait do not hide newer ones that have lost theirs."""
    launch(store, 1, identity="old")
    newer = launch(store, 2, identity="new")
    store.control.cancel(Selector(labels=(f"batch-{newer.id}",)), actor="ada")
    revived, following = store.batches.revive(limit=1)
    assert (revived, following) == (0, BatchId(newer.id - 1))
    assert store.batches.revive(after=following, limit=1) == (1, newer.id)
    assert store.batches.revive(after=newer.id, limit=1) == (0, None)


def waiting(store, **options):
    values = {"queues": ["default", "online"], "kinds": ["mail", KIND], "shards": {}, "limit": 10} | options
    return store.batches.waiting_jobs(WorkerId("w"), **values)


def test_jobs_that_a_worker_could_claim_wait_beside_its_shards(store):
    """K83: of all queues of the worker, the best first; none of unknown kinds and none of paused queues."""
    put(store)
    put(store, queue="online", priority=3, label="x")
    put(store, "unknown")
    put(store, queue="elsewhere")
    assert waiting(store) == [ClaimableJob("online", 3, "x", None), ClaimableJob("default", 0, None, None)]
    assert len(waiting(store, limit=1)) == 1
    store.queues.pause("online")
    assert [job.queue for job in waiting(store)] == ["default"]
    assert store.batches.paused_queues(["online", "default"]) == {"online"}
    store.stop_switch.set(StopMode.DRAIN, actor="ada")
    assert waiting(store) == []


def test_a_full_queue_hides_no_other(store):
    """K83: its jobs count only as far as it has room, or shards of this worker that can make room."""
    for _ in range(3):
        put(store)
    ping = put(store, queue="online")
    store.queues.set_limits("default", limit=1)
    assert [(job.queue, job.room) for job in waiting(store, limit=2)] == [("default", 1), ("online", None)]
    take(store)
    assert [(job.queue, job.room) for job in waiting(store)] == [("online", None)]
    full = waiting(store, shards={"default": 1})
    assert [(job.queue, job.room) for job in full] == [("default", 0), ("online", None)]
    assert ping


def test_a_released_shard_goes_behind_jobs_that_wait(store, clock):
    """K83: its due time moves; a shard that a shutdown interrupts keeps its place."""
    batch = launch(store, 1, 2, shards=1)
    (lease,) = take(store, kinds=(KIND,))
    clock.advance(seconds=1)
    ping = put(store)
    store.leases.settle(lease, Released(interrupted=True))
    (lease,) = take(store, kinds=(KIND, "mail"))
    assert lease.kind == KIND
    clock.advance(seconds=1)
    store.leases.settle(lease, Released(delay=timedelta(0)))
    assert [lease.job_id for lease in take(store, kinds=(KIND, "mail"))] == [ping], "K83 is broken"
    assert shard(store, batch) is not None
