"""Workers: one test per promise of store/fleet/registry.py."""

from __future__ import annotations

import pytest

from holdfast.domain.jobs.job import State, WorkerId, WorkerRequest
from holdfast.domain.jobs.verdict import Done
from holdfast.errors import Conflict, NotFound
from tests.support.jobs import put, state, take_one

OTHER = WorkerId("worker-2")


def announce(store, worker=OTHER, **facts):
    store.workers.announce(worker, **{"host": "h", "pid": 7, "queues": ["default"], "kinds": ["mail"], **facts})


def test_a_worker_is_seen_while_it_lives(store, clock):
    """One that fell silent, or said good-bye, is no longer listed."""
    announce(store, version="1.2")
    (worker,) = store.workers.list()
    assert (worker.id, worker.host, worker.pid, worker.version, worker.kinds) == (OTHER, "h", 7, "1.2", '["mail"]')
    clock.advance(seconds=50)
    assert store.workers.heartbeat(OTHER)
    clock.advance(seconds=50)
    assert len(store.workers.list()) == 1
    clock.advance(seconds=50)
    assert store.workers.list() == []
    store.workers.heartbeat(OTHER)
    store.workers.record_stop(OTHER)
    assert store.workers.list() == []


def test_a_worker_id_is_never_reused(store):
    """A second start needs a new id, also after a good-bye (SPEC 8.24)."""
    announce(store)
    store.workers.record_stop(OTHER)
    with pytest.raises(Conflict):
        announce(store)
    assert not store.workers.heartbeat(WorkerId("nobody"))


def test_attempts_tell_where_they_ran(store):
    """Host, pid and code version, for those under way and those that ended."""
    announce(store, version="1.2")
    job_id = put(store)
    lease = take_one(store, worker=OTHER, started=True)
    (running,) = store.views.attempts(job_id)
    store.leases.settle(lease, Done())
    (finished,) = store.views.attempts(job_id)
    for attempt in (running, finished):
        assert (attempt.host, attempt.pid, attempt.version) == ("h", 7, "1.2")
    assert (running.reason, finished.reason) == (None, "done")
    assert state(store, job_id) is State.DONE


def test_a_worker_hears_what_people_want(store, clock):
    """With its heartbeat, until somebody wants it to go on; one that is gone cannot be asked."""
    worker = WorkerId("w-1")
    store.workers.announce(worker, host="h", pid=1, queues=["default"], kinds=["mail"], slots=4)
    assert store.workers.heartbeat(worker).requested is None
    store.workers.request(worker, WorkerRequest.QUIET)
    assert store.workers.heartbeat(worker).requested is WorkerRequest.QUIET
    (told,) = store.workers.list()
    assert (told.slots, told.requested) == (4, "quiet")
    store.workers.request(worker, None)
    assert store.workers.heartbeat(worker).requested is None
    clock.advance(minutes=5)
    with pytest.raises(NotFound, match="is alive"):
        store.workers.request(worker, WorkerRequest.STOP)


def test_a_late_worker_does_not_count_as_one_that_serves(store, clock):
    """A killed worker is live for a minute: a batch on workers said nothing about it."""
    store.workers.announce(WorkerId("w"), host="h", pid=1, queues=["default"], kinds=["mail"], version=None)
    assert store.workers.count_serving("default", "mail") == 1
    clock.advance(seconds=31)
    assert store.workers.count_serving("default", "mail") == 0
