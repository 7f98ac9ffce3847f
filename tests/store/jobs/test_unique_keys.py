"""Reruns: a trigger for a running job gets a run that sees it (K14, SPEC F5)."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from holdfast.domain.jobs.job import JobId, State
from holdfast.domain.jobs.new_job import Enqueued, EnqueueOutcome, KeyScope, NewJob, OnConflict, Unique
from holdfast.domain.jobs.verdict import Done, Failed, Released, Stopped
from holdfast.errors import InvalidInput
from tests.support.jobs import lapse, only, put, state, states, take, take_one

FATAL = Failed(error="boom", permanent=True)


def trigger(store, payload: str = "{}", on_conflict: OnConflict = OnConflict.RERUN, **options) -> Enqueued:
    return store.jobs.enqueue(
        NewJob(kind="mail", payload=payload, unique=Unique("k"), on_conflict=on_conflict, **options)
    )


def test_a_trigger_for_a_running_job_runs_after_it(store):
    """K14: a new job has the new payload. It starts when the running one has finished."""
    first = trigger(store, '{"n":1}')
    lease = take_one(store)
    second = trigger(store, '{"n":2}')
    assert first.outcome is EnqueueOutcome.CREATED
    assert second.outcome is EnqueueOutcome.RERUN, "K14 is broken: the last trigger is dropped"
    assert (second.waits_for, second.created) == (first.id, True)
    assert second.id != first.id
    assert states(store) == {first.id: State.RUNNING, second.id: State.WAITING}
    assert take(store) == []
    store.leases.settle(lease, Done("1"))
    assert [(lease.job_id, lease.payload) for lease in take(store, 5)] == [(second.id, '{"n":2}')]
    assert store.views.get(first.id).result == "1"


def test_further_triggers_change_the_job_that_waits(store):
    """K14: however many triggers arrive, one run follows, with the newest payload."""
    trigger(store)
    lease = take_one(store)
    second = trigger(store, '{"n":2}')
    third = trigger(store, '{"n":3}')
    skipped = trigger(store, '{"n":4}', OnConflict.SKIP)
    assert (third.id, third.outcome) == (second.id, EnqueueOutcome.REPLACED)
    assert (skipped.id, skipped.outcome) == (second.id, EnqueueOutcome.EXISTING)
    store.leases.settle(lease, Done())
    follower = take_one(store)
    assert (follower.job_id, follower.payload) == (second.id, '{"n":3}')
    fifth = trigger(store, '{"n":5}')
    assert (fifth.outcome, fifth.waits_for) == (EnqueueOutcome.RERUN, second.id)


def test_a_trigger_for_a_job_that_waits_its_turn_replaces_its_payload(store):
    """K14: the run is still to come, so it sees the newest payload."""
    first = trigger(store, '{"n":1}')
    again = trigger(store, '{"n":2}')
    assert (again.id, again.outcome) == (first.id, EnqueueOutcome.REPLACED)
    assert take_one(store).payload == '{"n":2}'


def test_replace_of_a_running_job_says_that_it_changed_nothing(store):
    """K14: it was dropped without a word."""
    first = trigger(store)
    take_one(store)
    answer = trigger(store, '{"n":2}', OnConflict.REPLACE)
    assert (answer.id, answer.outcome, answer.replaced) == (first.id, EnqueueOutcome.EXISTING, False)


@pytest.mark.parametrize("outcome", [FATAL, Stopped()])
def test_the_trigger_gets_its_run_however_the_running_one_ends(store, outcome):
    """K14: dead and cancelled are ends like done."""
    trigger(store)
    lease = take_one(store)
    second = trigger(store, '{"n":2}')
    store.leases.settle(lease, outcome)
    assert take_one(store).job_id == second.id


def test_the_rerun_waits_for_the_retries_of_the_running_job(store, clock):
    """K14: a failure, a release and a loss do not end the running job: no two runs of a key overlap."""
    first = trigger(store)
    second = None
    for end in (lambda lease: store.leases.settle(lease, Failed(error="boom")),
                lambda lease: store.leases.settle(lease, Released()),
                lambda lease: (lapse(clock), store.leases.take_over())):  # fmt: skip
        lease = take_one(store, started=True)
        assert lease.job_id == first.id
        second = trigger(store, '{"n":2}') if second is None else second
        end(lease)
        assert state(store, second.id) is State.WAITING
        assert trigger(store, '{"n":3}').id == second.id
        clock.advance(hours=2)
        store.leases.promote()
    store.leases.settle(take_one(store, started=True), Done())
    assert take_one(store).payload == '{"n":3}'


def test_a_cancelled_rerun_leaves_the_key_to_the_running_job(store):
    """K14: a new trigger does not run beside it."""
    first = trigger(store)
    lease = take_one(store)
    second = trigger(store)
    store.control.cancel(only(second.id), actor="ada")
    skipped = trigger(store, on_conflict=OnConflict.SKIP)
    assert (skipped.id, skipped.outcome) == (first.id, EnqueueOutcome.EXISTING)
    third = trigger(store)
    assert (third.outcome, third.waits_for) == (EnqueueOutcome.RERUN, first.id)
    assert take(store) == []
    store.leases.settle(lease, Done())
    assert take_one(store).job_id == third.id


def test_a_deleted_rerun_leaves_the_key_to_the_running_job(store):
    """K14: the key's row outlives the job that waited."""
    first = trigger(store)
    take_one(store)
    second = trigger(store)
    store.control.cancel(only(second.id), actor="ada")
    store.control.delete(only(second.id))
    assert trigger(store, on_conflict=OnConflict.SKIP).id == first.id


def test_a_retry_by_a_person_respects_both_jobs_of_a_key(store):
    """K14: an old job of the key stays finished while another one is live; a cancelled rerun waits again."""
    old = trigger(store)
    store.leases.settle(take_one(store), FATAL)
    first = trigger(store)
    lease = take_one(store)
    second = trigger(store)
    store.control.cancel(only(second.id), actor="ada")
    assert store.control.retry(only(old.id), actor="ada") == []
    assert store.control.retry(only(second.id), actor="ada") == [second.id]
    assert states(store) == {old.id: State.DEAD, first.id: State.RUNNING, second.id: State.WAITING}
    store.leases.settle(lease, Done())
    assert take_one(store).job_id == second.id


def test_a_key_that_is_taken_for_ever_stays_so(store):
    """K14: a rerun of a running job keeps the scope of the key; a finished job is not run again."""
    first = trigger(store, on_conflict=OnConflict.SKIP)
    store.leases.settle(take_one(store), Done())
    put(store, unique=Unique("k", KeyScope.FOREVER))
    lease = take_one(store)
    second = trigger(store)
    assert second.outcome is EnqueueOutcome.RERUN
    store.leases.settle(lease, Done())
    store.leases.settle(take_one(store), Done())
    last = trigger(store)
    assert (last.id, last.outcome) == (second.id, EnqueueOutcome.EXISTING)
    assert last.id != first.id


def test_a_rerun_that_contradicts_itself_is_refused(store):
    """K14: a key that stays taken, and other dependencies."""
    first = put(store)
    for options in (
        {"unique": Unique("k", KeyScope.FOREVER)},
        {"unique": Unique("k", KeyScope.PERIOD, timedelta(hours=1))},
        {"unique": Unique("k"), "after": _after(first)},
    ):
        with pytest.raises(InvalidInput, match="rerun"):
            put(store, on_conflict=OnConflict.RERUN, **options)
    twice = NewJob(kind="mail", unique=Unique("k"), on_conflict=OnConflict.RERUN)
    with pytest.raises(InvalidInput, match="two requests"):
        store.jobs.enqueue_many([twice, twice])


def _after(job_id: JobId):
    from holdfast.domain.jobs.dependencies import After

    return After(ids=(job_id,))


def test_a_replacement_forgets_the_steps_of_the_old_payload(store):
    """K14: a new payload must not find results of the old one."""
    first = trigger(store, '{"n":1}')
    lease = take_one(store)
    store.steps.keep(lease, "fetch", '"old"')
    store.leases.settle(lease, Released())
    assert trigger(store, '{"n":2}').id == first.id
    assert store.steps.kept(take_one(store)) == {}


def test_triggers_race_with_the_end_of_the_run(make_store, database):
    """K14: whatever comes first, the payload of the last trigger is run last."""
    store, other = make_store(), make_store()
    for number in range(10):
        trigger(store, "-1")
        lease = take_one(store)
        barrier = threading.Barrier(2)

        def settle(lease=lease, barrier=barrier) -> None:
            barrier.wait()
            other.leases.settle(lease, Done())

        thread = threading.Thread(target=settle)
        thread.start()
        barrier.wait()
        trigger(store, str(number))
        thread.join()
        follower = take_one(store)
        assert follower.payload == str(number)
        store.leases.settle(follower, Done())
        assert take(store) == []
