"""oban-py in the comparison: psycopg, uvloop, one queue.

Runs in an environment of its own, for it needs Python 3.12: ``python -m bench.racer_oban URL``.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop
from oban import Oban, job
from oban.schema import install
from psycopg_pool import AsyncConnectionPool

from bench.racer import PAUSE_S, Progress, obey, settings, sizes

URL, SETTINGS = sys.argv[1], settings(limit=3000, debounce=0.02)
LEFT = "SELECT EXISTS (SELECT FROM oban_jobs WHERE state IN ('available', 'executing'))"
logging.disable(logging.WARNING)
progress = Progress()


@job()
async def nothing(n: int) -> None:  # noqa: ARG001 - of the payload
    progress.done += 1


@job()
async def stamp(sent: float) -> None:
    progress.waits.append(time.time() - sent)


async def enqueue_one(count: int, _size: int, oban: Any) -> None:
    for n in range(count):
        await oban.enqueue(nothing.new(n=n))


async def enqueue_bulk(count: int, size: int, oban: Any) -> None:
    for calls in sizes(count, size):
        await oban.enqueue_many([nothing.new(n=n) for n in range(calls)])


async def drain(_count: int, _size: int, oban: Any) -> dict[str, Any]:
    """Until all jobs are completed in the database, without the time to stop."""

    async def left() -> bool:
        async with oban._query._pool.connection() as connection:  # noqa: SLF001 - its pool
            return bool((await (await connection.execute(LEFT)).fetchone())[0])

    return await progress.drain(left)


async def serve(count: int, _size: int, _oban: Any) -> dict[str, Any]:
    while len(progress.waits) < count:  # noqa: ASYNC110 - it must not disturb what it measures
        await asyncio.sleep(PAUSE_S)
    return {"waits": progress.waits[:count]}


async def send(count: int, _size: int, oban: Any) -> None:
    for _ in range(count):
        await asyncio.sleep(PAUSE_S)
        await oban.enqueue(stamp.new(sent=time.time()))


def connected(act: Callable[[int, int, Any], Awaitable[Any]], *, works: bool) -> Callable[[int, int], Any]:
    """A producer has no queues, a worker has one."""

    async def perform(count: int, size: int) -> Any:
        progress.restart()
        queue = {"limit": SETTINGS["limit"], "debounce_interval": SETTINGS["debounce"]}
        async with AsyncConnectionPool(URL, min_size=1, max_size=10) as pool:
            oban = Oban(pool=pool, queues={"default": queue} if works else {})
            async with oban:
                return await act(count, size, oban)

    return lambda count, size: uvloop.run(perform(count, size))


async def prepare() -> None:
    async with AsyncConnectionPool(URL, min_size=1) as pool:
        async with pool.connection() as connection:
            found = await connection.execute("SELECT to_regclass('oban_jobs') IS NOT NULL")
            (there,) = await found.fetchone() or (False,)
        if not there:
            await install(pool)


if __name__ == "__main__":
    uvloop.run(prepare())
    workers = {"drain": drain, "serve": serve}
    producers = {"one": enqueue_one, "bulk": enqueue_bulk, "send": send}
    acts = {name: connected(act, works=True) for name, act in workers.items()}
    obey(acts | {name: connected(act, works=False) for name, act in producers.items()})
