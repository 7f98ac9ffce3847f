"""The pool when an executor cannot be made."""

from __future__ import annotations

import asyncio
import errno
import threading

import pytest

import holdfast
from holdfast import State
from holdfast.worker.executors import pool
from tests.support.processes import wait_until
from tests.support.workers import drain, working


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
        failure = "S3 is broken: a run never begins, and its lease is kept"
        wait_until(lambda: {ref.state for ref in refs} == {State.DONE}, seconds=20, failure=failure)
        assert [ref.job().attempts for ref in refs] == [1, 1]
        wait_until(lambda: len(worker._active_runs) == 0)


def test_executors_share_the_slots_of_the_worker(app):
    """S8: jobs that were claimed ahead begin in no second executor while all slots are busy."""
    running, most, lock = [0], [0], threading.Lock()

    def count(change: int) -> None:
        with lock:
            running[0] += change
            most[0] = max(most[0], running[0])

    @app.job()
    def plain() -> None:
        count(+1)
        threading.Event().wait(0.005)
        count(-1)

    @app.job()
    async def coroutine() -> None:
        count(+1)
        await asyncio.sleep(0.005)
        count(-1)

    for _ in range(60):
        plain.enqueue()
        coroutine.enqueue()
    worker = drain(app, slots=2)
    assert (worker.counts.results, most[0]) == ({"done": 120}, 2), "S8 is broken"


def test_nothing_is_claimed_for_a_loop_that_is_blocked(app):
    """S9: jobs beside a coroutine that blocks the loop are not claimed and released again and again."""
    begun, free = threading.Event(), threading.Event()

    @app.job()
    async def blocks() -> None:
        begun.set()
        free.wait(60)

    @app.job()
    async def coroutine() -> None: ...

    @app.job()
    def plain() -> None: ...

    with working(app, slots=4) as worker:
        blocks.enqueue()
        assert begun.wait(60)
        refs = [coroutine.enqueue() for _ in range(3)]
        wait_until(lambda: worker._pool.is_blocked(coroutine.kind))
        wait_until(lambda: all(ref.job().state is State.READY for ref in refs))
        ticks = worker.counts.ticks["claimer", "processed"]
        assert plain.enqueue().wait(60).state is State.DONE
        wait_until(lambda: worker.counts.ticks["claimer", "processed"] > ticks + 5)
        assert {ref.job().token for ref in refs} <= {0, 1}, "S9 is broken"
        free.set()
        assert {ref.wait(60).state for ref in refs} == {State.DONE}
