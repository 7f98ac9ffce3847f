"""A worker inside another process: ticks by hand, starts and stops, slow threads, refused options."""

from __future__ import annotations

import threading

import pytest

import holdfast
from holdfast import State
from holdfast.errors import InvalidInput
from tests.support.processes import wait_until
from tests.support.workers import drain, working


@pytest.fixture
def app(real_database):
    with holdfast.Holdfast(real_database.url) as app:

        @app.job()
        def double(n: int) -> int:
            return n * 2

        yield app


def test_one_tick_by_hand_counts_its_work(app):
    """For tests and admin (W11)."""
    refs = [app.enqueue("double", {"n": n}) for n in range(3)]
    worker = app.worker()
    ticked = worker.tick()
    assert (ticked.considered, ticked.processed, ticked.skipped) == (6, 6, False)
    assert [ref.state for ref in refs] == [State.DONE] * 3
    assert worker.tick().processed == 0


def test_a_worker_can_be_switched_off(app, monkeypatch):
    """In a process that embeds it (W11)."""
    monkeypatch.setenv("HOLDFAST_WORKER", "off")
    ref = app.enqueue("double", {"n": 1})
    drain(app)
    assert ref.state is State.READY


def test_a_second_start_does_nothing(app):
    worker = app.worker(poll=0.02)
    with worker:
        worker.start()
        assert app.enqueue("double", {"n": 2}).result(120) == 4
        assert len(app.store.workers.list()) == 1
    assert not app.store.workers.list(), "the end of the block waits for the worker"


def test_an_embedded_worker_keeps_the_lease_of_a_thread_that_does_not_end(app):
    """No other worker may run the job meanwhile."""
    begun, free = threading.Event(), threading.Event()

    @app.job(lease=5)
    def deaf() -> str:
        begun.set()
        free.wait(30)
        return "late"

    ref = deaf.enqueue()
    with working(app, grace=0.1):
        assert begun.wait(120)
    first = ref.job().lease_expires_at
    wait_until(lambda: ref.job().lease_expires_at > first)
    assert ref.state is State.RUNNING
    free.set()
    assert ref.result(120) == "late"


def test_jobs_behind_a_long_job_are_released(app):
    """Another worker may be idle. The kind was known to be short, but this job was not."""
    begun, free = threading.Event(), threading.Event()

    @app.job()
    def surprise(n: int) -> None:
        if n == 0:
            begun.set()
            free.wait(30)

    worker = app.worker(slots=1, poll=0.02)
    worker._lifecycle.run_times.learn("surprise", 0.001)
    refs = surprise.enqueue_many([{"n": n} for n in range(20)])
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert begun.wait(120)
    wait_until(lambda: sum(ref.state is State.READY for ref in refs) == 19)
    assert [ref.job().attempts for ref in refs[1:]] == [0] * 19
    free.set()
    worker.stop()
    thread.join(120)


@pytest.mark.parametrize("options", [{"queues": "default"}, {"slots": 0}, {"slots": "x"}, {"queues": [""]}])
def test_invalid_options_are_refused(app, options):
    with pytest.raises(InvalidInput):
        app.worker(**options)
