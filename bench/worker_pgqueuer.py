"""A PgQueuer worker at its best setting (asyncpg, uvloop, batches of a thousand), draining a queue of no-ops.

Runs in the peers' environment: ``python -m bench.worker_pgqueuer URL``.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta

import asyncpg
import uvloop
from pgqueuer.adapters.drivers.asyncpg import AsyncpgDriver
from pgqueuer.adapters.persistence.queries import Queries
from pgqueuer.qm import QueueManager
from pgqueuer.types import QueueExecutionMode

from bench.work import KIND, chunks

BATCH = 1000


async def fill(url: str, count: int) -> float:
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    if not await queries.schema_is_installed():
        await queries.install()
        await queries.optimize_autovacuum()
    began = time.perf_counter()
    for size in chunks(count):
        await queries.enqueue([KIND] * size, [b'{"n": 1}'] * size, [0] * size)
    seconds = time.perf_counter() - began
    await connection.close()
    return seconds


async def drain(url: str) -> dict[str, float]:
    connection = await asyncpg.connect(url)
    manager = QueueManager(Queries(AsyncpgDriver(connection)))
    done = 0

    @manager.entrypoint(KIND)
    async def nothing(_job: object) -> None:
        nonlocal done
        done += 1

    began, used = time.perf_counter(), time.process_time()
    await manager.run(dequeue_timeout=timedelta(seconds=1), batch_size=BATCH, mode=QueueExecutionMode.drain)
    answer = {"seconds": time.perf_counter() - began, "cpu": time.process_time() - used, "done": done}
    await connection.close()
    return answer


if __name__ == "__main__":
    for line in sys.stdin:
        order = json.loads(line)
        if order["act"] == "fill":
            answer = {"seconds": uvloop.run(fill(sys.argv[1], order["count"]))}
        else:
            answer = uvloop.run(drain(sys.argv[1]))
        print(json.dumps(answer), flush=True)
