"""A notification wakes the services whose data has changed, and no others."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from holdfast.domain.commands.command import COMMAND
from holdfast.store.engine.changes import JOBS, QUEUES, REQUESTS, SCHEDULES, Change, jobs_in
from holdfast.worker import clock
from tests.support.fleet import make_app


@pytest.fixture
def worker(database):
    """A worker that serves the queue ``post``; its threads are not started."""
    with make_app(database.url) as app:
        worker = app.worker(commands=True, queues=["post"])
        assert COMMAND in worker.kinds
        for thread in worker.services.helpers:
            thread.tick()
        yield worker


def woken(worker) -> set[str]:
    services = [worker.services.claimer, worker.services.heartbeat, *worker.services.helpers]
    names = {thread.service.name for thread in services if thread.service.wake.is_set()}
    for thread in services:
        thread.service.wake.clear()
    return names


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        (jobs_in(["post"]), {"claimer"}),
        (jobs_in(["elsewhere"]), set()),
        (JOBS, {"claimer", "maintenance"}),
        (frozenset({Change.DELAYED}), {"maintenance"}),
        (SCHEDULES, {"planner"}),
        (QUEUES, {"claimer", "autoscaler"}),
        (frozenset({"test:1"}), set()),
    ],
    ids=["job here", "job elsewhere", "jobs", "delayed", "schedules", "queues", "test"],
)
@pytest.mark.one_backend
def test_a_change_wakes_only_those_who_have_to_know(worker, monkeypatch, changes, names):
    """K50: an enqueue does not tick the planner. K66: nor a worker of another queue."""
    woken(worker)
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now + 10)  # past the least intervals of services
    worker.services.on_notify(changes)
    assert woken(worker) == names


@pytest.mark.one_backend
def test_only_requests_tick_the_heartbeat(worker):
    """K65: enqueues do not renew every lease."""
    worker._active_runs.add([SimpleNamespace(lease=SimpleNamespace(job_id=1))])
    for changes, names in ((jobs_in(["elsewhere"]), set()), (JOBS, {"claimer"}), (REQUESTS, {"heartbeat"})):
        worker.services.on_notify(changes)
        assert woken(worker) - {"maintenance"} == names


@pytest.mark.one_backend
def test_a_claim_in_vain_is_not_repeated_at_once(worker):
    """K66: of many idle workers one gets a new job; the others claim once and poll on as before."""
    claimer = worker.services.claimer
    while claimer.tick().next_in < 0.5:
        """Until it polls at its full interval."""
    claimer.service.on_notify()
    assert claimer.tick().next_in >= 0.5
