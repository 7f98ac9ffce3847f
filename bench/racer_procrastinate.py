"""Procrastinate in the comparison: psycopg, 100 coroutines at a time. Other numbers were not tried.

Runs in the peers' environment: ``python -m bench.racer_procrastinate URL``.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
from procrastinate import App, PsycopgConnector

from bench.racer import PAUSE_S, obey, settings, sizes

URL, SETTINGS = sys.argv[1], settings(concurrency=100, pool=20)
logging.disable(logging.WARNING)


class Racer:
    """A fresh application for each act: its pool belongs to one event loop."""

    def __init__(self) -> None:
        self.app = App(connector=PsycopgConnector(conninfo=URL, max_size=SETTINGS["pool"]))
        self.done, self.waits = 0, list[float]()

        @self.app.task(name="nothing")
        async def nothing(n: int) -> None:  # noqa: ARG001 - of the payload
            self.done += 1

        @self.app.task(name="stamp")
        async def stamp(sent: float) -> None:
            self.waits.append(time.time() - sent)

        self.nothing, self.stamp = nothing, stamp

    async def enqueue_one(self, count: int, _size: int) -> None:
        for n in range(count):
            await self.nothing.defer_async(n=n)

    async def enqueue_bulk(self, count: int, size: int) -> None:
        for calls in sizes(count, size):
            await self.nothing.batch_defer_async(*[{"n": n} for n in range(calls)])

    async def drain(self, _count: int, _size: int) -> dict[str, Any]:
        await self._work(wait=False)
        return {"jobs": self.done}

    async def serve(self, count: int, _size: int) -> dict[str, Any]:
        worker = asyncio.create_task(self._work(wait=True))
        while len(self.waits) < count:  # noqa: ASYNC110 - it must not disturb what it measures
            await asyncio.sleep(PAUSE_S)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        return {"waits": self.waits[:count]}

    async def send(self, count: int, _size: int) -> None:
        for _ in range(count):
            await asyncio.sleep(PAUSE_S)
            await self.stamp.defer_async(sent=time.time())

    async def _work(self, *, wait: bool) -> None:
        await self.app.run_worker_async(wait=wait, concurrency=SETTINGS["concurrency"], install_signal_handlers=False)


def opened(act: Callable[[Racer, int, int], Awaitable[Any]]) -> Callable[[int, int], Any]:
    async def perform(count: int, size: int) -> Any:
        racer = Racer()
        async with racer.app.open_async():
            return await act(racer, count, size)

    return lambda count, size: asyncio.run(perform(count, size))


async def install() -> None:
    app = App(connector=PsycopgConnector(conninfo=URL))
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


if __name__ == "__main__":
    with psycopg.connect(URL) as connection:
        (there,) = connection.execute("SELECT to_regclass('procrastinate_jobs') IS NOT NULL").fetchone() or (False,)
    if not there:
        asyncio.run(install())
    acts = {"one": Racer.enqueue_one, "bulk": Racer.enqueue_bulk, "drain": Racer.drain}
    obey({name: opened(act) for name, act in {**acts, "serve": Racer.serve, "send": Racer.send}.items()})
