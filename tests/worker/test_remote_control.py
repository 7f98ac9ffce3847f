"""Workers obey from afar: quiet, go on, stop."""

from __future__ import annotations

import threading

import holdfast
from holdfast.domain.jobs.job import State, WorkerRequest
from holdfast.worker.remote_control import RemoteControl

PATIENCE = 60


def until(condition, what):
    """Wait for something that a worker does by itself."""
    bell = threading.Event()
    for _ in range(PATIENCE * 20):
        if condition():
            return
        bell.wait(0.05)
    raise AssertionError(what)


def test_orders_are_obeyed_once():
    """Hearing the same again changes nothing; no wish lets it go on."""
    stops = []
    orders = RemoteControl(lambda: stops.append(1))
    for request, quiet in ((None, False), (WorkerRequest.QUIET, True), (WorkerRequest.QUIET, True), (None, False)):
        orders.hear(request)
        assert orders.quiet is quiet
    orders.hear(WorkerRequest.STOP)
    orders.hear(WorkerRequest.STOP)
    assert stops == [1]


def test_a_worker_obeys_with_its_heartbeat(real_database):
    """Quiet: it claims nothing, and is not ready; then it goes on; then it stops by itself."""
    with holdfast.Holdfast(real_database.url) as app:

        @app.job(lease="1s")
        def mail() -> None:
            """Nothing to do."""

        worker = app.worker(slots=3, poll=0.05)
        with worker:
            until(app.store.workers.list, "it announces itself")
            (told,) = app.store.workers.list()
            assert told.slots == 3
            app.store.workers.request(worker.id, WorkerRequest.QUIET)
            until(lambda: not worker.ready, "it becomes quiet")
            job = mail.enqueue()
            app.store.workers.request(worker.id, None)
            until(lambda: app.views.get(job.id).state is State.DONE, "it goes on")
            app.store.workers.request(worker.id, WorkerRequest.STOP)
            worker.join(PATIENCE)
            assert not worker.ready
            assert app.store.workers.list() == []
