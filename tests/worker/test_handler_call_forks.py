"""A handler that forks and returns on both sides."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

import holdfast
from holdfast import State
from tests.support.processes import wait_until
from tests.support.workers import working


@pytest.fixture
def app(real_database):
    with holdfast.Holdfast(real_database.url) as app:
        yield app


@pytest.mark.parametrize("how", ["thread", "coroutine", "coroutine that waits"])
def test_a_fork_that_returns_from_its_handler_ends(app, tmp_path, how):
    """S1: it runs no job that waits in its copy of the worker, and does not live on."""
    log, go, forks = tmp_path / "log", threading.Event(), []

    def note() -> None:
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        os.close(descriptor)

    def split() -> None:
        note()
        if not forks:
            go.wait(60)
            forks.append(os.fork())

    async def asplit() -> None:
        split()
        if how == "coroutine that waits":
            await asyncio.sleep(0)

    kind = app.job("split")(split if how == "thread" else asplit)
    with working(app, slots=1) as worker:
        worker._lifecycle.run_times.learn("split", 0.001)  # so that it is claimed ahead
        refs = [kind.enqueue() for _ in range(4)]
        wait_until(lambda: all(ref.job().state is State.RUNNING for ref in refs[1:]) or worker.running)
        go.set()
        assert {ref.wait(60).state for ref in refs} == {State.DONE}
    killer = threading.Timer(10, os.kill, (forks[0], 9))
    killer.start()
    _, status = os.waitpid(forks[0], 0)
    killer.cancel()
    assert log.read_text().split() == [str(os.getpid())] * 4, "S1 is broken: the fork ran jobs of its parent"
    assert os.waitstatus_to_exitcode(status) == 0, "S1 is broken: the fork lives on"
