"""Runs of batches on the workers."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import msgspec

from holdfast.client.batches.batch_claim import abandon_batch, open_batch
from holdfast.client.batches.dry_run import dry_run
from holdfast.client.batches.function import BoundFunction
from holdfast.client.batches.local import STOPPING, run_batch, signal_handlers
from holdfast.client.batches.options import RunOptions
from holdfast.client.batches.report import RunReport
from holdfast.client.batches.result import BatchResult, begin_or_report
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
from holdfast.domain.batches.unit import Counters, UnitRow, UnitState
from holdfast.domain.jobs.verdict import Done
from holdfast.domain.names import checked_name
from holdfast.domain.quantities import as_duration, checked_number
from holdfast.errors import BatchHeld, InvalidInput
from holdfast.output.printer import Format, Output
from holdfast.store import Store
from holdfast.worker.batches.source import numbered

#: Units that one transaction writes to the ledger.
PLAN_CHUNK = 1000
#: Pause between two polls of a batch on the workers.
POLL_INTERVAL_S = 0.2


def run_anywhere(store: Store, bound: BoundFunction, keys: Iterable[Any], options: RunOptions) -> BatchResult:
    """Run a batch at its placement: in this process or on the workers; or do a dry run."""
    if options.dry_run or options.once:
        result = dry_run(store, bound, keys, options)
        if result is not None:
            return result
    match options.placement.where:
        case "here":
            return run_batch(store, bound, keys, options)
        case "workers":
            return run_on_workers(store, bound, keys, options)
        case where:
            raise InvalidInput(f"where is 'here' or 'workers', not {where!r}")


def submit_batch(store: Store, bound: BoundFunction, keys: Iterable[Any], options: RunOptions) -> Batch:
    """Write all units of a batch to its ledger and hand the batch to the workers; raises like ``open_batch``."""
    sharding = _sharding(bound, options)
    opened = open_batch(store, bound, keys, options, options.printer())
    places = numbered(keys)
    try:
        while chunk := list(islice(places, PLAN_CHUNK)):
            store.batches.plan(opened, chunk, retry_failed=options.retry_failed)
    except BaseException:
        abandon_batch(store, opened)
        raise
    batch = store.batches.launch(opened, sharding)
    store.leases.settle(opened.lease, Done())
    return batch


def run_on_workers(store: Store, bound: BoundFunction, keys: Iterable[Any], options: RunOptions) -> BatchResult:
    """Submit a batch and watch it until it is finished; output and exit code are those of a local run.

    The first signal stops the batch, which can be resumed; the second one ends this process at once.
    """
    output = options.printer()
    batch = begin_or_report(lambda: _submit_or_join(store, bound, keys, options), output)
    return batch if isinstance(batch, BatchResult) else watch(store, batch, output, every=options.progress_every)


def _submit_or_join(store: Store, bound: BoundFunction, keys: Iterable[Any], options: RunOptions) -> Batch:
    """Submit the batch; with *allow_concurrent*, join one that the workers have already."""
    try:
        return submit_batch(store, bound, keys, msgspec.structs.replace(options, allow_concurrent=False))
    except BatchHeld as error:
        batch = store.batches.get(BatchId(error.context["batch_id"]))
        if options.allow_concurrent and sharding_of(batch) is not None:
            return batch
        raise


def watch(store: Store, batch: Batch, output: Output, *, every: int = 10) -> BatchResult:
    """Report the progress of a batch on the workers until it is finished; a signal stops the batch."""
    before = store.batches.counters(batch.id).over
    report = RunReport(output, batch, total=batch.total, every=every, created=batch.run_number == 1, before=before)
    stop_requested = threading.Event()

    def on_first_signal() -> None:
        report.note(STOPPING)
        stop_requested.set()

    with report, signal_handlers(on_first_signal):
        while (batch := store.batches.get(batch.id)).state is BatchState.RUNNING:
            counters = store.batches.counters(batch.id)
            report.progress(counters.over + counters.in_inbox, counters.failed)
            if _only_results_wait(batch, counters):
                break
            if stop_requested.wait(POLL_INTERVAL_S):
                stop_requested.clear()
                store.batches.abort(batch.id, AbortedBy.SIGNAL)
    counters = store.batches.counters(batch.id)
    if output.format is Format.NDJSON:
        for rows in _finished_units(store, batch):
            report.units(rows)
    result = BatchResult.after(batch, counters, batch.aborted_by)
    report.finish(result)
    return result


def _only_results_wait(batch: Batch, counters: Counters) -> bool:
    """Whether no unit is left to run, and only results wait for their consumers."""
    return batch.total is not None and counters.in_inbox > 0 and counters.over + counters.in_inbox >= batch.total


def _finished_units(store: Store, batch: Batch) -> Iterator[list[UnitRow]]:
    """The units that this run finished, in pages by key."""
    after = ""
    while page := store.batches.units(batch.id, after=after):
        after = page[-1].key
        yield [unit for unit in page if unit.run_number == batch.run_number and unit.state is not UnitState.PENDING]


def _sharding(bound: BoundFunction, options: RunOptions) -> Sharding:
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
        queue=checked_name(placement.queue or function.kind.queue, label="the queue"),
        priority=checked_number(placement.priority, label="the priority"),
        limits=options.limits.failure_limits(function),
        in_doubt_if_lost=function.on_lost == "hold",
        until=None if deadline is None else datetime.now(UTC) + as_duration(deadline),
        rate=options.limits.units_per_second(function),
    )
