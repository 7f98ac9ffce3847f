"""PgQueuer in the comparison: asyncpg, uvloop, batches of a thousand.

Runs in the peers' environment: ``python -m bench.racer_pgqueuer URL``.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import asyncpg
import uvloop
from pgqueuer.adapters.drivers.asyncpg import AsyncpgDriver
from pgqueuer.adapters.persistence.queries import Queries
from pgqueuer.qm import QueueManager
from pgqueuer.types import QueueExecutionMode

from bench.racer import FEED, LOOK_S, PAUSE_S, Tally, needed, obey, settings, sizes

URL, SETTINGS = sys.argv[1], settings(batch=1000, tally="")


async def enqueue_one(count: int, _size: int, connection: Any) -> None:
    queries = Queries(AsyncpgDriver(connection))
    for n in range(count):
        await queries.enqueue("nothing", json.dumps({"n": n}).encode(), 0)


async def enqueue_bulk(count: int, size: int, connection: Any) -> None:
    queries = Queries(AsyncpgDriver(connection))
    for calls in sizes(count, size):
        payloads: list[bytes | None] = [json.dumps({"n": n}).encode() for n in range(calls)]
        await queries.enqueue(["nothing"] * calls, payloads, [0] * calls)


async def drain(_count: int, _size: int, connection: Any) -> dict[str, Any]:
    manager, done = QueueManager(Queries(AsyncpgDriver(connection))), 0

    @manager.entrypoint("nothing")
    async def nothing(job: Any) -> None:
        nonlocal done
        json.loads(job.payload)
        done += 1

    await manager.run(dequeue_timeout=timedelta(seconds=1), batch_size=SETTINGS["batch"], mode=QueueExecutionMode.drain)
    return {"jobs": done}


async def serve(count: int, _size: int, connection: Any) -> dict[str, Any]:
    manager, waits = QueueManager(Queries(AsyncpgDriver(connection))), list[float]()

    @manager.entrypoint("stamp")
    async def stamp(job: Any) -> None:
        waits.append(time.time() - json.loads(job.payload)["sent"])
        if len(waits) >= count:
            manager.shutdown.set()

    await manager.run(dequeue_timeout=timedelta(seconds=30), batch_size=10)
    return {"waits": waits[:count]}


async def send(count: int, _size: int, connection: Any) -> None:
    queries = Queries(AsyncpgDriver(connection))
    for _ in range(count):
        await asyncio.sleep(PAUSE_S)
        await queries.enqueue("stamp", json.dumps({"sent": time.time()}).encode(), 0)


async def work(count: int, _size: int, connection: Any) -> None:
    """Work for *count* seconds on what a producer sends."""
    manager, tally, done = QueueManager(Queries(AsyncpgDriver(connection))), Tally(SETTINGS["tally"]), 0

    @manager.entrypoint("nothing")
    async def nothing(job: Any) -> None:
        nonlocal done
        json.loads(job.payload)
        done += 1

    async def report() -> None:
        for _ in range(round(count / LOOK_S)):
            tally.write(done)
            await asyncio.sleep(LOOK_S)
        manager.shutdown.set()

    reports = asyncio.create_task(report())
    await manager.run(dequeue_timeout=timedelta(seconds=1), batch_size=SETTINGS["batch"])
    await reports


async def feed(count: int, _size: int, connection: Any) -> None:
    """Keep a worker busy for *count* seconds."""
    queries, tally, sent = Queries(AsyncpgDriver(connection)), Tally(SETTINGS["tally"]), 0
    end = time.monotonic() + count
    while time.monotonic() < end:
        if needed(tally, sent):
            payloads: list[bytes | None] = [json.dumps({"n": n}).encode() for n in range(FEED)]
            await queries.enqueue(["nothing"] * FEED, payloads, [0] * FEED)
            sent += FEED
        else:
            await asyncio.sleep(LOOK_S)


async def install() -> None:
    connection = await asyncpg.connect(URL)
    queries = Queries(AsyncpgDriver(connection))
    if not await queries.schema_is_installed():
        await queries.install()
        await queries.optimize_autovacuum()
    await connection.close()


def connected(act: Callable[[int, int, Any], Awaitable[Any]]) -> Callable[[int, int], Any]:
    async def perform(count: int, size: int) -> Any:
        connection = await asyncpg.connect(URL)
        try:
            return await act(count, size, connection)
        finally:
            await connection.close()

    return lambda count, size: uvloop.run(perform(count, size))


if __name__ == "__main__":
    uvloop.run(install())
    acts = {"one": enqueue_one, "bulk": enqueue_bulk, "drain": drain, "serve": serve, "send": send}
    acts |= {"work": work, "feed": feed}
    obey({name: connected(act) for name, act in acts.items()})
