"""Readiness: a worker is ready when it can claim jobs, and says why when it cannot."""

from __future__ import annotations

import threading

import pytest

import holdfast
from tests.support.processes import wait_until
from tests.support.workers import working


@pytest.fixture
def app(real_database):
    with holdfast.Holdfast(real_database.url) as app:

        @app.job()
        def double(n: int) -> int:
            return 2 * n

        assert app.store
        yield app


def test_a_worker_whose_claims_fail_is_not_ready(app, real_database):
    """K85, I20: the schema is not what its version says; heartbeats still reach the store."""
    with working(app, heartbeat=1) as worker:
        wait_until(lambda: worker.ready)
        real_database.execute("ALTER TABLE holdfast.live RENAME TO elsewhere")
        wait_until(lambda: worker.counts.ticks["claimer", "error"] > 1)
        reason = worker.health.not_ready()
        real_database.execute(f"ALTER TABLE {there(real_database)} RENAME TO {back(real_database)}")
        wait_until(lambda: worker.ready)
    assert "the claimer fails" in (reason or ""), "I20 is broken: it is ready and cannot claim"
    assert worker.alive


def there(database):
    return "elsewhere" if database.name == "sqlite" else "holdfast.elsewhere"


def back(database):
    return "holdfast_live" if database.name == "sqlite" else "live"


@pytest.mark.one_backend
def test_a_worker_is_ready_from_its_start_to_its_stop(app):
    """I20: neither before nor after, nor while it is quiet."""
    worker = app.worker(poll=0.02)
    assert worker.health.not_ready() == "it has not started"
    with worker:
        wait_until(lambda: worker.ready)
        worker._remote_control.quiet = True
        assert worker.health.not_ready() == "a request stops its claims"
        worker._remote_control.quiet = False
        worker.services.watchdog.service.fenced = True
        assert "renewed" in worker.health.not_ready()
        worker.services.watchdog.tick()
        worker._lifecycle.shortage.release(OSError(24, "Too many open files"))
        assert "Too many open files" in worker.health.not_ready()
    assert worker.health.not_ready() == "it is stopping"


@pytest.mark.one_backend
def test_a_scheduler_is_ready_when_it_can_plan(app):
    """I20: its planner takes the place of the claimer."""
    worker = app.scheduler(heartbeat=1)
    thread = threading.Thread(target=worker.run)
    thread.start()
    wait_until(lambda: worker.ready)
    worker.services.helpers[-1].error = "no such table"
    assert worker.health.not_ready() == "the planner fails: no such table"
    worker.stop()
    thread.join()


@pytest.mark.one_backend
def test_a_worker_is_alive_through_a_long_grace_period(app, monkeypatch):
    """S10: services that have stopped do not hang; a liveness probe must not end running jobs."""
    begun, free = threading.Event(), threading.Event()

    @app.job()
    def long() -> None:
        begun.set()
        free.wait(60)

    with working(app, grace=60) as worker:
        long.enqueue()
        assert begun.wait(60)
        worker.stop()
        wait_until(lambda: all(thread.stopped for thread in worker.services.helpers))
        for thread in worker.services.helpers:
            monkeypatch.setattr(thread, "_ticked_at", 0.0)
        reason = worker.health.not_alive()
        free.set()
    assert reason is None, "S10 is broken"
