"""For tests and demonstrations: run what is ready, here and now."""

from __future__ import annotations

import secrets
import time
import traceback
from collections.abc import Iterator
from datetime import timedelta

import msgspec

from holdfast.app import Holdfast
from holdfast.domain.job import Done, Failed, Lease, Outcome, WorkerId
from holdfast.domain.kind import Context, to_json
from holdfast.errors import HoldfastError, InvalidPayload
from holdfast.store.leases import Settlement


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
        settlement = _run(app, leases[0])
        store.leases.settle_many([settlement])
        yield settlement


def _run(app: Holdfast, lease: Lease) -> Settlement:
    began = time.monotonic()
    outcome = _outcome(app, lease)
    return Settlement(lease, outcome, timedelta(seconds=time.monotonic() - began))


def _outcome(app: Holdfast, lease: Lease) -> Outcome:
    checkpoint = None if lease.checkpoint is None else msgspec.json.decode(lease.checkpoint)
    context = Context(job_id=lease.job_id, token=lease.token, attempt=lease.attempt, checkpointed=checkpoint)
    kind = app.kinds[lease.kind]
    try:
        arguments = kind.arguments(lease.payload, context)
    except InvalidPayload as error:
        return Failed(error=str(error), reason="bad_payload", permanent=True)
    try:
        value = kind.function(**arguments)
    except Exception as error:  # noqa: BLE001 - whatever a handler raises is a failure of its job alone
        return Failed(error="".join(traceback.format_exception_only(error)).strip())
    try:
        return Done(to_json(value, what="the result").decode())
    except HoldfastError:
        return Done()
