"""The last moments of a worker."""

from __future__ import annotations

import threading

import pytest

import holdfast
from holdfast import State
from holdfast.admin.views.jobs import list_jobs
from holdfast.worker import shutdown as module
from tests.support.processes import wait_until

#: Grace period, stop delay of a command (None: another handler), and seconds until the stop request.
STOP_REQUESTS = [
    (30, 10, 20),  # the defaults
    (30, 0, 30),  # killed without a signal before
    (30, 30, 0),
    (8, 10, 0),  # a grace period that is shorter than the delay is all that there is
    (0, 10, 0),
    (30, None, 29),  # other handlers: one second
    (2, None, 1.5),  # or a quarter of a short period
    (0.5, None, 0.3),
    (0, None, 0),
]


@pytest.mark.parametrize(("grace", "stop_delay", "after"), STOP_REQUESTS)
def test_the_stop_request_comes_a_stop_delay_before_the_end(grace, stop_delay, after):
    """Y6."""
    assert module.stop_request_after(grace, stop_delay=stop_delay) == pytest.approx(after)


READY = holdfast.Selector(states=(State.READY,))


@pytest.fixture
def app(real_database):
    with holdfast.Holdfast(real_database.url) as app:
        yield app


def test_a_run_that_finishes_in_the_last_moment_is_settled(app, monkeypatch):
    """S13: neither its settlement nor a release may be missing, or a job that is done runs again."""
    begun, free = threading.Event(), threading.Event()

    @app.job(max_attempts=1)
    def stubborn() -> str:
        begun.set()
        free.wait(60)
        return "done"

    worker = app.worker(grace=0.1, poll=0.02)
    settler, stop = worker.services.settler, worker.services.settler.stop

    def stop_then_finish(timeout: float | None = None) -> None:
        stop(timeout)
        free.set()
        wait_until(lambda: not worker.running)

    monkeypatch.setattr(settler, "stop", stop_then_finish)
    thread = threading.Thread(target=worker.run, kwargs={"exits": True})
    thread.start()
    ref = stubborn.enqueue()
    assert begun.wait(60)
    worker.stop()
    thread.join(60)
    assert ref.job().state is State.DONE, "S13 is broken"


@pytest.mark.one_backend
def test_a_worker_does_not_wait_for_a_silent_store(app, monkeypatch):
    """S11: the last writes have a time limit of their own."""
    answer = threading.Event()
    monkeypatch.setattr(module, "LAST_WRITE_TIMEOUT_S", 0.05)
    worker = app.worker(grace=0.1, poll=0.02)
    monkeypatch.setattr(app.store.workers, "record_stop", lambda worker_id: answer.wait(60))
    thread = threading.Thread(target=worker.run, kwargs={"exits": True})
    thread.start()
    wait_until(lambda: worker.ready)
    worker.stop()
    thread.join(30)
    ended = not thread.is_alive()
    answer.set()
    assert ended, "S11 is broken"


def test_released_jobs_of_handlers_that_go_on_are_counted(app):
    """A3: the worker said "finished; 1 released" where it had released three jobs."""
    begun, free = threading.Semaphore(0), threading.Event()

    @app.job()
    def stubborn(n: int) -> None:
        begun.release()
        free.wait(60)

    worker = app.worker(slots=3, grace=0.1, poll=0.02)
    refs = stubborn.enqueue_many([{"n": n} for n in range(3)])
    thread = threading.Thread(target=worker.run, kwargs={"exits": True})
    thread.start()
    assert all(begun.acquire(timeout=60) for _ in refs)
    worker.stop()
    thread.join(60)
    counted = dict(worker.counts.results)
    free.set()
    assert [ref.state for ref in refs] == [State.READY] * 3
    assert counted == {"released": 3}, "A3 is broken"


def test_a_busy_worker_that_stops_leaves_no_lease(app):
    """No job keeps its lease, and none loses an attempt."""
    jobs = 6000

    @app.job()
    def step(n: int) -> None: ...

    step.enqueue_many([{"n": n} for n in range(jobs)])
    with app.worker(slots=4):
        wait_until(lambda: app.store.views.count(READY).count < jobs)
    counts = {state: app.store.views.count(holdfast.Selector(states=(state,))).count for state in State}
    assert {state for state, count in counts.items() if count} <= {State.DONE, State.READY}
    assert sum(counts.values()) == jobs
    assert {job.attempts for job in list_jobs(app.store, READY)} <= {0}
