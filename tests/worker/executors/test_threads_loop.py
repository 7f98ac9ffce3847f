"""The loop of coroutine handlers: no handler can end it."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest
from msgspec import structs

import holdfast
from holdfast import State
from tests.support.processes import wait_until
from tests.support.workers import working

pytestmark = pytest.mark.one_backend


@pytest.fixture
def app(real_database):
    with holdfast.Holdfast(real_database.url) as app:
        yield app


async def library() -> None:
    await asyncio.sleep(0)
    sys.exit("a library that exits")


@pytest.mark.parametrize("how", ["gather", "group", "left behind", "stop"])
def test_an_exit_in_a_task_fails_its_own_job_only(app, how):
    """K5: the loop continues, and so do the other coroutines."""
    begun, free = threading.Event(), threading.Event()
    left = set()

    @app.job(max_attempts=1)
    async def bad() -> None:
        if how == "gather":
            await asyncio.gather(library())
        elif how == "group":
            async with asyncio.TaskGroup() as group:
                group.create_task(library())
        elif how == "left behind":
            left.add(asyncio.create_task(library()))
            await asyncio.sleep(0.01)
        else:
            asyncio.get_running_loop().stop()
            await asyncio.sleep(0.01)

    @app.job()
    async def good() -> str:
        begun.set()
        await asyncio.to_thread(free.wait, 60)
        return "good"

    with working(app, slots=2, heartbeat=2) as worker:
        neighbour = good.enqueue()
        assert begun.wait(60)
        job = bad.enqueue().wait(60)
        free.set()
        assert neighbour.result(60) == "good"
        assert good.enqueue().result(60) == "good"
        assert (worker.alive, worker.ready) == (True, True)
    if how in ("gather", "group"):
        assert (job.state, "a library that exits" in job.error) == (State.DEAD, True)
    else:
        assert job.state is State.DONE


def test_a_handler_that_cancels_all_tasks_costs_no_slot(app):
    """Coroutines that it cancels before they begin are released, and run later."""
    cancelled = []

    @app.job(priority=1)
    async def bad() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        cancelled.extend(others)
        for each in others:
            each.cancel()

    @app.job(max_attempts=1)
    async def good() -> str:
        return "good"

    refs = [bad.enqueue(), *(good.enqueue() for _ in range(3))]
    with working(app, slots=4) as worker:
        assert [ref.result(60) for ref in refs[1:]] == ["good"] * 3
        wait_until(lambda: worker.running == 0)
    assert len(cancelled) == 3


def test_a_worker_whose_loop_has_ended_is_not_alive(app):
    """K5: liveness probes replace it."""

    @app.job()
    async def good() -> str:
        return "good"

    with working(app) as worker:
        assert good.enqueue().result(60) == "good"
        (executor,) = worker._pool._all
        executor.close()
        wait_until(lambda: not worker.alive)
        assert not worker.ready


def test_an_exit_while_a_payload_is_read_costs_no_slot(app):
    """S4: an upgrade function that exits makes its job unreadable; the slot and the lease are free again."""

    def upgrade(payload: dict[str, object]) -> dict[str, object]:
        sys.exit(f"cannot upgrade {payload}")

    @app.job(version=2, upgrade={1: upgrade})
    async def changed(n: int) -> None: ...

    @app.job()
    async def good() -> str:
        return "good"

    request = structs.replace(app.request("changed", {"n": 1}, {}), kind_version=1)
    with working(app, slots=1) as worker:
        job = app.store.jobs.enqueue(request)
        wait_until(lambda: worker.counts.ticks["claimer", "processed"] and app.views.get(job.id).token)
        wait_until(lambda: worker.running == 0, seconds=10)
        assert good.enqueue().result(60) == "good"
    job = app.views.get(job.id)
    assert (job.state, "SystemExit: cannot upgrade" in (job.note or "")) == (State.HELD, True), "S4 is broken"
