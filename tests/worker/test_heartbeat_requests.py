"""Requests to a worker: quiet, resume, stop."""

from __future__ import annotations

import holdfast
from holdfast.domain.jobs.job import State, WorkerRequest
from holdfast.worker import clock
from holdfast.worker.heartbeat import RemoteControl

PATIENCE = 60


def until(condition, effect):
    """Wait for an effect of the worker's own threads."""
    assert clock.wait_until(condition, every=0.05, deadline=clock.now() + PATIENCE), effect


def test_a_request_is_applied_once():
    """A repeated request changes nothing; without a request the worker resumes."""
    stops = []
    control = RemoteControl(lambda: stops.append(1))
    for request, quiet in ((None, False), (WorkerRequest.QUIET, True), (WorkerRequest.QUIET, True), (None, False)):
        control.apply(request)
        assert control.quiet is quiet
    control.apply(WorkerRequest.STOP)
    control.apply(WorkerRequest.STOP)
    assert stops == [1]


def test_a_worker_applies_requests_at_its_heartbeat(real_database):
    """A quiet worker claims nothing and is not ready; then it resumes; then it stops."""
    with holdfast.Holdfast(real_database.url) as app:

        @app.job(lease="1s")
        def mail() -> None:
            """Nothing to do."""

        worker = app.worker(slots=3, poll=0.05)
        with worker:
            until(app.store.workers.list, "it announces itself")
            (announced,) = app.store.workers.list()
            assert announced.slots == 3
            app.store.workers.request(worker.id, WorkerRequest.QUIET)
            until(lambda: not worker.ready, "it becomes quiet")
            job = mail.enqueue()
            app.store.workers.request(worker.id, None)
            until(lambda: app.views.get(job.id).state is State.DONE, "it goes on")
            app.store.workers.request(worker.id, WorkerRequest.STOP)
            worker.join(PATIENCE)
            assert not worker.ready
            assert app.store.workers.list() == []
