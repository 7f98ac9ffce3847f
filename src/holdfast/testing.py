"""For tests and demonstrations: run what is ready, here and now."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import timedelta

from holdfast.app import Holdfast
from holdfast.domain.job import WorkerId
from holdfast.run import clock
from holdfast.run.context import RunContext
from holdfast.run.handler import run_handler
from holdfast.run.held import Run
from holdfast.store.leases import TERM, Settlement


def drain(app: Holdfast) -> int:
    """Run every job of the app's kinds that is ready, in this thread, until none is; answers how many."""
    return sum(1 for _ in run_ready(app))


def run_ready(app: Holdfast) -> Iterator[Settlement]:
    """Run ready jobs one after the other and tell how each ended."""
    worker = WorkerId(f"inline-{secrets.token_hex(8)}")
    store, kinds = app.store, list(app.kinds)
    while True:
        store.leases.promote()
        queues = sorted({kind.options.queue for kind in app.kinds.values()})
        leases = store.leases.claim(worker, queues=queues, kinds=kinds, limit=1, mark=True)
        if not leases:
            return
        run = Run(leases[0], app.kinds[leases[0].kind], dated=clock.now(), term=TERM)
        run.begun_at = clock.now()
        outcome = run_handler(run, RunContext(run, store, worker, app.request))
        settlement = Settlement(run.lease, outcome, timedelta(seconds=clock.now() - run.begun_at))
        store.leases.settle_many([settlement])
        yield settlement
