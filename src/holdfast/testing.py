"""For tests and demonstrations: run what is ready, here and now."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from datetime import timedelta

from holdfast.app import Holdfast
from holdfast.domain.job import Lease, WorkerId
from holdfast.run import clock
from holdfast.run.context import RunContext
from holdfast.run.handler import await_handler, run_handler
from holdfast.run.held import Run
from holdfast.run.reports import Reporter
from holdfast.store.leases import TERM
from holdfast.store.settlement import Settlement


def drain(app: Holdfast) -> int:
    """Run every job of the app's kinds that is ready, in this thread, until none is; answers how many."""
    return sum(1 for _ in run_ready(app))


def run_ready(app: Holdfast) -> Iterator[Settlement]:
    """Run ready jobs one after the other and tell how each ended; lapsed leases are taken over first."""
    worker = WorkerId(f"inline-{secrets.token_hex(8)}")
    store, kinds = app.store, list(app.kinds)
    store.leases.take_over()
    store.leases.sweep_waiting()
    while True:
        store.leases.promote()
        leases = store.leases.claim(worker, queues=store.queues.in_use(), kinds=kinds, limit=1, mark=True)
        if not leases:
            return
        yield _settled(app, worker, leases[0])


def _settled(app: Holdfast, worker: WorkerId, lease: Lease) -> Settlement:
    run = Run(lease, app.kinds[lease.kind], dated=clock.now(), term=TERM)
    run.begun_at = clock.now()

    def context(run: Run) -> RunContext:
        return RunContext(run, Reporter(run, app.store).tell, worker, app.request)

    outcome = asyncio.run(await_handler(run, context)) if run.kind.is_async else run_handler(run, context)
    settlement = Settlement(run.lease, outcome, timedelta(seconds=clock.now() - run.begun_at))
    app.store.leases.settle_many([settlement])
    return settlement
