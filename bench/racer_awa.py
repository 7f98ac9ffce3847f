"""Awa in the comparison: its Rust runtime, handlers in Python, bulks by COPY.

Runs in the peers' environment: ``python -m bench.racer_awa URL``.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import awa

from bench.racer import PAUSE_S, Progress, obey, settings, sizes

#: Its driver refuses an empty host; the socket of the query still counts.
URL, SETTINGS = (
    sys.argv[1].replace("@/", "@localhost/"),
    settings(workers=1024, claimers=2, claim=512, connections=20, poll=20),
)
QUEUE = "default"
progress = Progress()


@dataclass
class Nothing:
    n: int


@dataclass
class Stamp:
    sent: float


async def enqueue_one(count: int, _size: int, client: Any) -> None:
    for n in range(count):
        await client.insert(Nothing(n=n), queue=QUEUE)


async def enqueue_bulk(count: int, size: int, client: Any) -> None:
    for calls in sizes(count, size):
        await client.enqueue_many_copy([Nothing(n=n) for n in range(calls)], queue=QUEUE)


async def drain(_count: int, _size: int, client: Any) -> dict[str, Any]:
    """Until all jobs are completed in the database, without the time to stop."""

    async def left() -> bool:
        queue = (await client.health_check()).queues[QUEUE]
        return bool(queue.available or queue.in_flight)

    return await progress.drain(left)


async def serve(count: int, _size: int, _client: Any) -> dict[str, Any]:
    while len(progress.waits) < count:  # noqa: ASYNC110 - it must not disturb what it measures
        await asyncio.sleep(PAUSE_S)
    return {"waits": progress.waits[:count]}


async def send(count: int, _size: int, client: Any) -> None:
    for _ in range(count):
        await asyncio.sleep(PAUSE_S)
        await client.insert(Stamp(sent=time.time()), queue=QUEUE)


async def start(client: Any) -> None:
    @client.task(Nothing, queue=QUEUE)
    async def nothing(_job: Any) -> None:
        progress.done += 1

    @client.task(Stamp, queue=QUEUE)
    async def stamp(job: Any) -> None:
        progress.waits.append(time.time() - job.args.sent)

    queue = {"name": QUEUE, "max_workers": SETTINGS["workers"]}
    queue |= {"claimers": SETTINGS["claimers"], "claim_batch_size": SETTINGS["claim"]}
    await client.start([queue], poll_interval_ms=SETTINGS["poll"])


def connected(act: Callable[[int, int, Any], Awaitable[Any]], *, works: bool) -> Callable[[int, int], Any]:
    async def perform(count: int, size: int) -> Any:
        progress.restart()
        client = awa.AsyncClient(URL, max_connections=SETTINGS["connections"])
        if works:
            await start(client)
        try:
            return await act(count, size, client)
        finally:
            if works:
                await client.shutdown()
            await client.close()

    return lambda count, size: asyncio.run(perform(count, size))


if __name__ == "__main__":
    with awa.Client(URL) as first:
        first.migrate()
        if json.loads(first.storage_status())["active_engine"] == "canonical":  # the newer storage is the faster one
            first.install_queue_storage()
    workers = {"drain": drain, "serve": serve}
    producers = {"one": enqueue_one, "bulk": enqueue_bulk, "send": send}
    acts = {name: connected(act, works=True) for name, act in workers.items()}
    obey(acts | {name: connected(act, works=False) for name, act in producers.items()})
