"""PgQueuer as it is fastest: asyncpg, uvloop, its own autovacuum settings, its own queries.

Runs in the peers' environment: ``python -m bench.peer_pgqueuer URL``.
"""

from __future__ import annotations

import sys
import time
import uuid
from datetime import timedelta

import asyncpg
import uvloop
from pgqueuer.adapters.drivers.asyncpg import AsyncpgDriver
from pgqueuer.adapters.persistence.queries import Queries
from pgqueuer.ports.repository import EntrypointExecutionParameter

from bench.peer_loop import obey
from bench.work import KIND, PAYLOAD, chunks

UNLIMITED = {KIND: EntrypointExecutionParameter(concurrency_limit=0)}
BODY = PAYLOAD.encode()


class PgQueuer:
    """One connection on PgQueuer's queries."""

    def __init__(self, url: str) -> None:
        self._runner = uvloop.Loop()
        self._manager = uuid.uuid4()
        self._queries: Queries = self._runner.run_until_complete(self._open(url))

    async def _open(self, url: str) -> Queries:
        # As for raw: its plans too are cached while the table is small. In a short trial it gained
        # in batches of 100; in batches of 1,000 the rounds disagreed.
        connection = await asyncpg.connect(url, server_settings={"enable_seqscan": "off"})
        queries = Queries(AsyncpgDriver(connection))
        if not await queries.schema_is_installed():
            await queries.install()
            await queries.optimize_autovacuum()
        return queries

    def act(self, act: str, count: int, batch: int) -> float:
        doing = {"one": self._one, "bulk": self._bulk, "drain": self._drain}[act]
        return self._runner.run_until_complete(doing(count, batch))

    async def _one(self, count: int, _batch: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            await self._queries.enqueue(KIND, BODY, 0)
        return time.perf_counter() - began

    async def _bulk(self, count: int, _batch: int) -> float:
        blocks = [([KIND] * size, [BODY] * size, [0] * size) for size in chunks(count)]
        began = time.perf_counter()
        for kinds, payloads, priorities in blocks:
            await self._queries.enqueue(kinds, payloads, priorities)
        return time.perf_counter() - began

    async def _drain(self, count: int, batch: int) -> float:
        left = count
        began = time.perf_counter()
        while left:
            jobs = await self._queries.dequeue(
                batch_size=batch,
                entrypoints=UNLIMITED,
                queue_manager_id=self._manager,
                global_concurrency_limit=None,
                heartbeat_timeout=timedelta(seconds=60),
            )
            await self._queries.log_jobs([(job, "successful", None) for job in jobs])
            left -= len(jobs)
        return time.perf_counter() - began


if __name__ == "__main__":
    obey(PgQueuer(sys.argv[1]).act)
