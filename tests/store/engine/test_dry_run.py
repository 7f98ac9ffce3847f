"""Dry runs: they answer and refuse as the act would, and nothing is kept."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.domain.batches.unit import UnitState
from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.new_job import NewJob, Unique
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import BatchHeld, DependencyNotFound, NotFound
from tests.store.batches.test_batches import begin, finish, leave
from tests.support.jobs import put


def test_an_enqueue_is_tried(store):
    """It says whether a job would be made; there is none afterwards, and its key is free."""
    tried = store.dry_run_store().jobs
    assert tried.enqueue(NewJob(kind="mail", unique=Unique("k"))).created
    assert list(store.views.all(Selector())) == []
    job_id = put(store, unique=Unique("k"))
    answer = tried.enqueue(NewJob(kind="mail", unique=Unique("k")))
    assert (answer.id, answer.created) == (job_id, False)
    with pytest.raises(DependencyNotFound):
        tried.enqueue(NewJob(kind="mail", after=After(ids=(999,))))


def test_a_batch_is_tried(store):
    """How many units would run again; who holds it is in the way as ever."""
    run = begin(store)
    for n in range(3):
        finish(store, run, n, state=UnitState.FAILED, error="no")
    with pytest.raises(BatchHeld):
        store.dry_run_store().batches.delete(run.batch.id)
    leave(store, run, total=3)
    before = (store.batches.get(run.batch.id), store.batches.counters(run.batch.id))
    assert store.dry_run_store().batches.retry_failed(run.batch.id) == 3
    store.dry_run_store().batches.delete(run.batch.id)
    assert (store.batches.get(run.batch.id), store.batches.counters(run.batch.id)) == before


def test_tried_and_kept_share_a_commit(store):
    """Writers of one process commit in groups: what is taken back takes nothing else along."""
    tried = store.dry_run_store().jobs
    with ThreadPoolExecutor(8) as pool:
        for jobs in [store.jobs, tried] * 50:
            pool.submit(jobs.enqueue, NewJob(kind="mail"))
    assert len(list(store.views.all(Selector()))) == 50


def test_many_jobs_are_tried(store):
    """What was copied in is taken back too."""
    answers = store.dry_run_store().jobs.enqueue_many([NewJob(kind="mail", unique=Unique(f"k{n}")) for n in range(300)])
    assert all(answer.created for answer in answers)
    assert list(store.views.all(Selector())) == []


def test_one_statement_is_tried(store):
    store.dry_run_store().queues.pause("default", note="no")
    assert not store.queues.get("default").paused
    with pytest.raises(NotFound):
        store.dry_run_store().workers.request("nobody", None)


def test_nobody_is_woken(store, listen):
    listener = listen()
    store.dry_run_store().jobs.enqueue(NewJob(kind="mail"))
    assert not listener.hears(within=0.2)
    put(store)
    assert listener.hears()
