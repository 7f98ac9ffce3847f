"""Holdfast's store as a contestant, the same on both backends."""

from __future__ import annotations

import time

from bench.work import KIND, PAYLOAD, QUEUE, chunks
from holdfast.domain.jobs.job import WorkerId
from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.verdict import Done
from holdfast.store import Store
from holdfast.store.engine.backend import Backend
from holdfast.store.jobs.leases import DEFAULT_LEASE
from holdfast.store.jobs.settlement import Settlement

WORKER = WorkerId("bench")
DONE = Done()


class HoldfastStore:
    """One thread on the store's own methods, as the worker and the client call them."""

    def __init__(self, backend: Backend) -> None:
        self._store = Store(backend)

    def enqueue_one(self, count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            self._store.jobs.enqueue(NewJob(kind=KIND, payload=PAYLOAD, queue=QUEUE))
        return time.perf_counter() - began

    def enqueue_bulk(self, count: int) -> float:
        blocks = [[NewJob(kind=KIND, payload=PAYLOAD, queue=QUEUE) for _ in range(size)] for size in chunks(count)]
        began = time.perf_counter()
        for block in blocks:
            self._store.jobs.enqueue_many(block)
        return time.perf_counter() - began

    def drain(self, count: int, batch: int) -> float:
        leases, left = self._store.leases, count
        began = time.perf_counter()
        while left:
            held = leases.claim(WORKER, queues=[QUEUE], leases={KIND: DEFAULT_LEASE}, free=batch, limits=False)
            settled = leases.settle_many([Settlement(lease, DONE) for lease in held])
            left -= len(held) - len(settled.lost)
        return time.perf_counter() - began

    def close(self) -> None:
        self._store.close()
