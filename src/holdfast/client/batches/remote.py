"""Runs of batches on the workers: submitted and watched."""

from __future__ import annotations

import math
import shlex
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from holdfast.client.batches.batch_claim import abandon_batch, open_batch
from holdfast.client.batches.function import BoundFunction
from holdfast.client.batches.keys import FailedKeys, checked_keys, read_input
from holdfast.client.batches.local import STOPPING, signal_handlers
from holdfast.client.batches.options import RunOptions
from holdfast.client.batches.report import BatchResult, RunReport
from holdfast.domain.batches.batch import (
    MAX_SHARDS,
    AbortedBy,
    Batch,
    BatchId,
    BatchState,
    Sharding,
    shard_kind,
    sharding_of,
)
from holdfast.domain.batches.checkpoint import checkpoint_interval
from holdfast.domain.batches.unit import Counters, UnitRow, UnitState
from holdfast.domain.fleet.queue import checked_queue
from holdfast.domain.jobs.verdict import Done
from holdfast.domain.quantities import as_duration, checked_number
from holdfast.errors import BatchHeld, InvalidInput
from holdfast.output.printer import Format, Output
from holdfast.store import Store
from holdfast.store.batches.state import BatchRun
from holdfast.worker import clock
from holdfast.worker.batches.outages import outlast
from holdfast.worker.batches.source import numbered

#: Units that one transaction writes to the ledger.
PLAN_CHUNK = 1000
#: Pause between two polls of a batch on the workers.
POLL_INTERVAL_S = 0.2
#: Pause between two checks whether a worker runs the shards.
WORKERS_INTERVAL_S = 5.0


def submit_batch(store: Store, bound: BoundFunction, keys: Iterable[Any], options: RunOptions) -> Batch:
    """Write all units of a batch to its ledger and hand the batch to the workers; raises like ``open_batch``."""
    sharding = _sharding(bound, options, store.batches.now())
    keys = checked_keys(keys)
    output = options.printer()
    opened = open_batch(store, bound, keys, options, output, submits=True)
    return plan_batch(
        store,
        opened,
        keys,
        sharding,
        retry_failed=options.retry_failed,
        accept_drift=options.accept_drift,
        warn=output.note,
    )


def plan_batch(
    store: Store,
    opened: BatchRun,
    keys: Iterable[Any],
    sharding: Sharding,
    *,
    retry_failed: bool = True,
    accept_drift: bool = False,
    warn: Callable[[str], object] = lambda _: None,
) -> Batch:
    """Write all units of a batch that was opened to its ledger and hand the batch to the workers.

    *warn* is called about failed units that the input no longer has; they are skipped with *accept_drift* only.
    """
    failed = FailedKeys(store, opened)
    places = numbered(read_input(failed.met_in(keys)))
    try:
        while chunk := list(islice(places, PLAN_CHUNK)):
            store.batches.plan(opened, chunk, retry_failed=retry_failed)
        warning = failed.skip_gone(accepted=accept_drift)
    except BaseException:
        abandon_batch(store, opened)
        raise
    if warning is not None:
        warn(warning)
    batch = store.batches.launch(opened, sharding)
    store.leases.settle(opened.lease, Done())
    return batch


def run_on_workers(store: Store, bound: BoundFunction, keys: Iterable[Any], options: RunOptions) -> BatchResult:
    """Submit a batch and watch it until it is finished; output and exit code are those of a local run.

    The first signal stops the batch, which can be resumed; the second one ends this process at once.
    """
    output = options.printer()
    batch = _submit_or_join(store, bound, keys, options)
    return watch(store, batch, output, every=options.progress_every)


def _submit_or_join(store: Store, bound: BoundFunction, keys: Iterable[Any], options: RunOptions) -> Batch:
    """Submit the batch; with the option ``allow_concurrent``, join one that the workers have already."""
    try:
        return submit_batch(store, bound, keys, msgspec.structs.replace(options, allow_concurrent=False))
    except BatchHeld as error:
        batch = store.batches.get(BatchId(error.context["batch_id"]))
        if options.allow_concurrent and sharding_of(batch) is not None:
            return batch
        raise


def watch(store: Store, batch: Batch, output: Output, *, every: int | None = None) -> BatchResult:
    """Report the progress of a batch on the workers until it is finished; a signal stops the batch."""
    read = partial(_read, store, batch.id)
    before = outlast(read)[1].over
    created = batch.run_number == 1
    report = RunReport(output, batch, total=batch.total, every=every, created=created, before=before, watches=True)
    stop_requested, sharding, checked_at = threading.Event(), sharding_of(batch), -math.inf
    until = None if sharding is None else sharding.until
    late_at = math.inf if until is None else clock.now() + (until - outlast(store.batches.now)).total_seconds()

    def on_first_signal() -> None:
        report.note(STOPPING)
        stop_requested.set()

    with report, signal_handlers(on_first_signal):
        while (state := outlast(read))[0].state is BatchState.RUNNING:
            batch, counters = state
            report.progress(counters.over + counters.in_inbox, counters.failed)
            if counters.in_inbox and batch.total is not None and counters.over + counters.in_inbox >= batch.total:
                break  # no unit is left to run; only results wait for their consumers
            if sharding is not None and clock.now() - checked_at >= WORKERS_INTERVAL_S:
                checked_at = clock.now()
                report.warn(outlast(partial(_unserved, store, sharding)))
            if clock.now() >= late_at:
                outlast(partial(store.batches.abort, batch.id, AbortedBy.DEADLINE))
            if stop_requested.wait(POLL_INTERVAL_S):
                stop_requested.clear()
                outlast(partial(store.batches.abort, batch.id, AbortedBy.SIGNAL))
    batch, counters = outlast(read)
    if output.format is Format.NDJSON:
        for rows in _finished_units(store, batch):
            report.lines(rows)
    result = BatchResult.after(batch, counters, batch.aborted_by)
    return report.finish(result)


def _read(store: Store, batch_id: BatchId) -> tuple[Batch, Counters]:
    return store.batches.get(batch_id), store.batches.counters(batch_id)


def _unserved(store: Store, sharding: Sharding) -> str | None:
    """A note that no live worker can run the shards, if that is so."""
    if store.workers.count_serving(sharding.queue, sharding.kind):
        return None
    function = sharding.kind.removeprefix(shard_kind(""))
    text = f"no live worker runs {function!r} from the queue {sharding.queue!r}: the units wait for one"
    return f"{text} (holdfast worker --app MODULE:APP --queue {shlex.quote(sharding.queue)})"


def _finished_units(store: Store, batch: Batch) -> Iterator[list[UnitRow]]:
    after = ""
    while page := store.batches.units(batch.id, after=after):
        after = page[-1].key
        yield [unit for unit in page if unit.run_number == batch.run_number and unit.state is not UnitState.PENDING]


def _sharding(bound: BoundFunction, options: RunOptions, now: datetime) -> Sharding:
    placement = options.placement
    if not isinstance(placement.shards, int) or not 1 <= placement.shards <= MAX_SHARDS:
        raise InvalidInput(f"shards is a number from 1 to {MAX_SHARDS:,}, not {placement.shards!r}")
    for name, value in {**msgspec.structs.asdict(options.selection), "jobs": options.jobs}.items():
        if value != (1 if name == "jobs" else None):
            hint = "Submit just the keys that you want; shards are the units at a time."
            raise InvalidInput(f"{name} is for runs in this process", hint=hint)
    function, deadline = bound.function.options, options.limits.deadline
    return Sharding(
        kind=shard_kind(function.name),
        shards=placement.shards,
        queue=checked_queue(placement.queue or function.kind.queue),
        priority=checked_number(placement.priority, label="the priority"),
        limits=options.limits.failure_limits(function),
        in_doubt_if_lost=function.on_lost == "hold",
        until=None if deadline is None else now + as_duration(deadline),
        rate=options.limits.units_per_second(function),
        checkpoint=checkpoint_interval(options.checkpoint),
    )
