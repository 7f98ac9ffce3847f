"""Lapsed leases: who is shut out, and what it costs."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.domain.jobs.job import OnLost, State
from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.verdict import Done, Failed, Released, Stopped
from holdfast.errors import LeaseLost
from holdfast.store.jobs.enqueue import EnqueueCall
from tests.support.jobs import BOOM, lapse, only, put, record_start, state, take, take_one


def test_silent_worker_is_shut_out(make_store, clock):
    """Once its lease is taken over, a worker can no longer record an outcome (SPEC 8.1)."""
    slow, sweeper = make_store(), make_store()
    job_id = put(slow)
    stale = take_one(slow)

    lapse(clock)
    sweeper.leases.take_over()

    for outcome in (Done(), BOOM, Released(), Stopped()):
        with pytest.raises(LeaseLost):
            slow.leases.settle(stale, outcome)
    assert sweeper.views.get(job_id).token > stale.token


def test_the_old_holder_writes_nothing_while_the_new_one_runs(make_store, clock):
    """Every write of a holder is refused under the old token, and the new run is untouched."""
    slow, other = make_store(), make_store()
    job_id = put(slow)
    stale = take_one(slow)
    lapse(clock)
    other.leases.take_over()
    fresh = take_one(other, started=True)
    before = other.views.get(job_id)

    assert slow.leases.renew([stale]) == []
    assert slow.leases.release([stale]).released == 0
    assert slow.leases.settle_many([]).lost == set()
    for write in (
        lambda: record_start(slow, stale),
        lambda: slow.leases.report(stale, done=1),
        lambda: slow.leases.settle(stale, Done()),
        lambda: slow.leases.settle(stale, BOOM),
        lambda: slow.jobs.enqueue_child(NewJob(kind="child"), EnqueueCall(stale)),
    ):
        with pytest.raises(LeaseLost):
            write()
    assert other.views.get(job_id) == before
    other.leases.settle(fresh, Done())
    assert state(other, job_id) is State.DONE


def test_a_lease_in_time_is_left_alone(store, clock):
    """Nothing is taken over before it lapses."""
    put(store)
    take_one(store)
    clock.advance(seconds=59)
    assert store.leases.take_over() == []


def test_a_marked_start_costs_an_attempt(store, clock):
    """The loss is on record, and the job is tried again after a delay."""
    job_id = put(store)
    take_one(store, started=True)
    lapse(clock)
    (taken,) = store.leases.take_over()
    job = store.views.get(job_id)
    assert (taken.job_id, taken.state) == (job_id, State.SCHEDULED)
    assert (job.state, job.attempts, job.crashes) == (State.SCHEDULED, 1, 1)
    (attempt,) = store.views.attempts(job_id)
    assert (attempt.reason, attempt.worker) == ("lease_lost", "worker-1")
    assert [event.name for event in store.views.events(job_id)] == ["enqueued", "started", "taken_over"]


def test_a_job_that_kills_its_worker_becomes_dead(store, clock):
    """After its limit of crashes, whatever its attempts say (SPEC 8.6)."""
    job_id = put(store, max_attempts=None, max_crashes=2)
    for _ in range(2):
        take_one(store, started=True)
        lapse(clock)
        store.leases.take_over()
        clock.advance(hours=2)
        store.leases.promote()
    assert state(store, job_id) is State.DEAD


def test_neighbours_of_a_poison_job_lose_no_attempt(store, clock):
    """Of a prefetched hundred, only the marked start pays; the others come back, each as a suspect (SPEC 8.30)."""
    ids = [put(store) for _ in range(100)]
    leases = take(store, 100)
    record_start(store, leases[0])
    lapse(clock)
    store.leases.take_over(limit=1000)
    jobs = [store.views.get(job_id) for job_id in ids]
    assert jobs[0].attempts == 1
    assert all((job.state, job.attempts, job.losses) == (State.READY, 0, 1) for job in jobs[1:])
    assert store.views.attempts(ids[1]) == []


def test_each_loss_without_a_start_raises_the_level_of_suspicion(store, clock):
    """K18: up to 3. A release keeps the level, a failure clears it: the worker has survived the run."""
    put(store)
    levels = []
    for _ in range(4):
        levels.append(take_one(store).losses)
        lapse(clock)
        store.leases.take_over()
    assert levels == [0, 1, 2, 3]
    store.leases.settle(take_one(store), Released())
    lease = take_one(store)
    assert (lease.losses, lease.starts_recorded) == (3, True)
    store.leases.settle(lease, Failed(error="boom", after=timedelta(0)))
    assert take_one(store).losses == 0


def test_a_suspect_of_the_highest_level_pays_and_stays_one(store, clock):
    """K18: its start is recorded, so the loss of its worker costs an attempt and a crash."""
    job_id = put(store)
    for _ in range(3):
        take_one(store)
        lapse(clock)
        store.leases.take_over()
    take_one(store, started=True)
    lapse(clock)
    store.leases.take_over()
    job = store.views.get(job_id)
    assert (job.attempts, job.crashes, job.losses) == (1, 1, 3)


def test_work_that_had_not_started_for_certain_is_no_suspect(store, clock):
    """K21: such a job starts durably before it runs. Without a start it has not run: it is as it was."""
    job_id = put(store, on_lost=OnLost.DEAD)
    take_one(store)
    lapse(clock)
    store.leases.take_over()
    job = store.views.get(job_id)
    assert (job.state, job.attempts, job.crashes, job.losses) == (State.READY, 0, 0, 0)


@pytest.mark.parametrize(("on_lost", "expected"), [(OnLost.HOLD, State.HELD), (OnLost.DEAD, State.DEAD)])
def test_work_that_must_not_run_twice_waits_for_a_person(store, clock, on_lost, expected):
    """It is never run again by itself (SPEC 8.8)."""
    job_id = put(store, on_lost=on_lost)
    take_one(store, started=True)
    lapse(clock)
    store.leases.take_over()
    assert state(store, job_id) is expected
    clock.advance(days=1)
    store.leases.promote()
    assert take(store, 9, started=True) == []


def test_a_shutdown_does_not_rerun_such_work_either(store):
    """An interrupted run is as doubtful as a lost one."""
    job_id = put(store, on_lost=OnLost.HOLD)
    store.leases.settle(take_one(store, started=True), Released(interrupted=True))
    assert state(store, job_id) is State.HELD


def test_a_job_that_finished_meanwhile_is_never_overwritten(make_store, clock):
    """A sweep that comes late finds nothing to take (SPEC 8.23)."""
    worker, sweeper = make_store(), make_store()
    job_id = put(worker)
    lease = take_one(worker)
    lapse(clock)
    worker.leases.settle(lease, Done())
    assert sweeper.leases.take_over() == []
    assert state(sweeper, job_id) is State.DONE


def test_a_wanted_cancel_is_carried_out_by_the_take_over(store, clock):
    """A job that shall be cancelled is not tried again."""
    job_id = put(store)
    take_one(store, started=True)
    store.control.cancel(only(job_id), actor="ada")
    lapse(clock)
    store.leases.take_over()
    assert state(store, job_id) is State.CANCELLED


def test_a_take_over_goes_in_steps(store, clock):
    """The longest lapsed first, no more than the limit."""
    first = put(store)
    take_one(store)
    clock.advance(seconds=1)
    put(store)
    take_one(store)
    clock.advance(minutes=2)
    assert [taken.job_id for taken in store.leases.take_over(limit=1)] == [first]
    assert len(store.leases.take_over(limit=9)) == 1


def test_a_take_over_needs_no_knowledge_of_the_kind(store, clock):
    """Any worker may sweep for all."""
    job_id = put(store, kind="only-elsewhere", retry='{"steps":[5.0],"jitter":0.0}')
    take_one(store, kinds=("only-elsewhere",), started=True)
    lapse(clock)
    store.leases.take_over()
    assert store.views.get(job_id).due_at - clock.now() == timedelta(seconds=5)


def test_a_crash_that_the_worker_saw_counts(store):
    """A child that died under its worker costs an attempt and a crash."""
    from holdfast.domain.jobs.verdict import Lost

    job_id = put(store, max_crashes=1)
    store.leases.settle(take_one(store), Lost("crashed", begun=True))
    job = store.views.get(job_id)
    assert (job.state, job.crashes, job.reason) == (State.DEAD, 1, "crashed")


def test_a_failure_after_a_loss_goes_on_counting(store, clock):
    """Attempts add up over losses and failures."""
    job_id = put(store, max_attempts=2)
    take_one(store, started=True)
    lapse(clock)
    store.leases.take_over()
    clock.advance(hours=2)
    store.leases.promote()
    store.leases.settle(take_one(store, started=True), Failed(error="again"))
    assert state(store, job_id) is State.DEAD


@pytest.mark.parametrize("outcome", [Done(), BOOM])
def test_the_new_holders_end_is_not_the_old_ones(store, clock, outcome):
    """The same outcome under another token is no settle sent again: the old holder is told that it lost."""
    put(store)
    stale = take_one(store)
    lapse(clock)
    store.leases.take_over()
    store.leases.settle(take_one(store, started=True), outcome)
    with pytest.raises(LeaseLost):
        store.leases.settle(stale, outcome)
