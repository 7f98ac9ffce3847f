"""The pool when an executor cannot be made."""

from __future__ import annotations

import errno

import pytest

import holdfast
from holdfast import State
from holdfast.worker.executors import pool
from tests.support.processes import wait_until
from tests.support.workers import working


@pytest.fixture
def app(real_database):
    with holdfast.Holdfast(real_database.url) as app:
        yield app


@pytest.mark.parametrize("shortage", [True, False])
def test_runs_without_an_executor_are_released(app, monkeypatch, shortage):
    """S3: their leases are not kept for a run that never begins. The worker says why it is not ready."""

    @app.job(max_attempts=1)
    async def good() -> str:
        return "good"

    @app.job(max_attempts=1, on_lost="hold")
    async def careful() -> str:
        return "careful"

    make, made = pool.LoopExecutor, []

    def fail(*args, **options):
        made.append(1)
        if len(made) == 1:
            raise OSError(errno.EMFILE, "Too many open files") if shortage else ValueError("a bug")
        return make(*args, **options)

    monkeypatch.setattr(pool, "LoopExecutor", fail)
    with working(app, slots=2) as worker:
        refs = [good.enqueue(), careful.enqueue()]
        wait_until(lambda: made)
        if shortage:
            wait_until(lambda: "Too many open files" in (worker.health.not_ready() or ""))
        states = [ref.wait(20).state for ref in refs]
        assert states == [State.DONE] * 2, "S3 is broken: a run never begins, and its lease is kept"
        assert [ref.job().attempts for ref in refs] == [1, 1]
        wait_until(lambda: len(worker._active_runs) == 0)
