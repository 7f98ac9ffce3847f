"""Dry runs: one transaction that answers and refuses as usual, and is rolled back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.domain.batches.unit import UnitState
from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.job import State
from holdfast.domain.jobs.new_job import NewJob, Unique
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import BatchHeld, DependencyNotFound, NotFound
from tests.store.batches.test_batches import begin, finish, leave
from tests.support.jobs import put


def test_a_dry_run_sees_its_own_changes(store):
    """E1.3: an operation of several transactions decides as it would without a dry run."""
    job_id = put(store)
    with store.dry_run() as dry:
        assert dry.control.cancel(Selector(ids=(job_id,)), actor="ada") == [job_id]
        assert dry.control.cancel(Selector(ids=(job_id,)), actor="ada") == []
        assert dry.views.get(job_id).state is State.CANCELLED
    assert store.views.get(job_id).state is State.READY


def test_a_dry_enqueue_creates_no_job(store):
    """It reports whether a job would be created; there is none afterwards, and its key is free."""
    with store.dry_run() as dry:
        assert dry.jobs.enqueue(NewJob(kind="mail", unique=Unique("k"))).created
    assert list(store.views.all(Selector())) == []
    job_id = put(store, unique=Unique("k"))
    with store.dry_run() as dry:
        answer = dry.jobs.enqueue(NewJob(kind="mail", unique=Unique("k")))
        with pytest.raises(DependencyNotFound):
            dry.jobs.enqueue(NewJob(kind="mail", after=After(ids=(999,))))
    assert (answer.id, answer.created) == (job_id, False)


def test_a_dry_run_changes_no_batch(store):
    """It counts the units that would run again, and refuses a batch that is held."""
    run = begin(store)
    for n in range(3):
        finish(store, run, n, state=UnitState.FAILED, error="no")
    with pytest.raises(BatchHeld), store.dry_run() as dry:
        dry.batches.delete(run.batch.id)
    leave(store, run, total=3)
    before = (store.batches.get(run.batch.id), store.batches.counters(run.batch.id))
    with store.dry_run() as dry:
        assert dry.batches.retry_failed(run.batch.id) == 3
    with store.dry_run() as dry:
        dry.batches.delete(run.batch.id)
    assert (store.batches.get(run.batch.id), store.batches.counters(run.batch.id)) == before


def test_dry_runs_and_changes_at_the_same_time(store):
    """A rollback takes nothing else back."""

    def dry_enqueue() -> None:
        with store.dry_run() as dry:
            dry.jobs.enqueue(NewJob(kind="mail"))

    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(change) for change in (lambda: put(store), dry_enqueue) * 25]
    assert [future.exception() for future in futures if future.exception()] == []
    assert len(list(store.views.all(Selector()))) == 25


def test_a_dry_run_of_many_jobs(store):
    """Rows that were copied in are rolled back, too."""
    with store.dry_run() as dry:
        answers = dry.jobs.enqueue_many([NewJob(kind="mail", unique=Unique(f"k{n}")) for n in range(300)])
    assert all(answer.created for answer in answers)
    assert list(store.views.all(Selector())) == []


def test_a_dry_run_of_one_statement(store):
    with store.dry_run() as dry:
        dry.queues.pause("default", note="no")
    assert not store.queues.get("default").paused
    with pytest.raises(NotFound), store.dry_run() as dry:
        dry.workers.request("nobody", None)


def test_a_dry_run_wakes_no_worker(store, listen):
    listener = listen()
    with store.dry_run() as dry:
        dry.jobs.enqueue(NewJob(kind="mail"))
    assert not listener.hears(within=0.2)
    put(store)
    assert listener.hears()
