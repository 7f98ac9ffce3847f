"""Batches on workers: submit the units, and watch."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import msgspec

from holdfast.client.batches.dry_run import preview
from holdfast.client.batches.function import BoundFunction
from holdfast.client.batches.local import (
    STOPPING,
    BatchResult,
    RunOptions,
    attempt,
    give_up,
    heard,
    limits_of,
    open_batch,
    output_of,
    rate_of,
    run_batch,
)
from holdfast.client.batches.report import RunReport
from holdfast.domain.batches.batch import (
    AbortedBy,
    Batch,
    BatchId,
    BatchState,
    Counters,
    UnitRow,
    UnitState,
    exit_code,
    summarise,
)
from holdfast.domain.batches.sharding import MAX_SHARDS, Sharding, shard_kind, sharding_of
from holdfast.domain.jobs.verdict import Done
from holdfast.domain.text import as_duration, checked_name, checked_number
from holdfast.errors import BatchHeld, InvalidInput
from holdfast.output.printer import Format, Output
from holdfast.store import Store
from holdfast.store.batches.opening import BatchRun
from holdfast.worker.batches.source import numbered

#: Units that are planned at a time, and how often a watcher looks, in seconds.
CHUNK, LOOK_EVERY = 1000, 0.2


def run_anywhere(store: Store, bound: BoundFunction, keys: Iterable[Any], options: RunOptions) -> BatchResult:
    """Run a batch where it is asked for: here, or on the workers; or say what would be run."""
    if options.dry_run or options.once:
        told = preview(store, bound, keys, options)
        if told is not None:
            return told
    match options.where:
        case "here":
            return run_batch(store, bound, keys, options)
        case "workers":
            return run_on_workers(store, bound, keys, options)
        case _:
            raise InvalidInput(f"where is 'here' or 'workers', not {options.where!r}")


def submit_batch(store: Store, bound: BoundFunction, keys: Iterable[Any], options: RunOptions) -> Batch:
    """Write all units of a batch to its ledger, and hand it over to the workers.

    Raises:
        BatchHeld: Another run of this identity is alive, or the workers have it already.
        ServiceRunning: A service that writes the same data is running.
        BatchPaused: A person has paused it.
        Drift: The version or a declared input changed under an open run.
    """
    sharding = _sharding(bound, options)
    opened = open_batch(store, bound, keys, options, output_of(options.output))
    return _launch(store, opened, keys, options, sharding)


def run_on_workers(store: Store, bound: BoundFunction, keys: Iterable[Any], options: RunOptions) -> BatchResult:
    """Submit, and watch until the workers are done: the same output and exit code as a run in this process.

    A first signal stops the batch, which can be resumed; a second one leaves at once.
    """
    output = output_of(options.output)
    batch = attempt(lambda: _submitted(store, bound, keys, options), output)
    return batch if isinstance(batch, BatchResult) else watch(store, batch, output, every=options.progress_every)


def _submitted(store: Store, bound: BoundFunction, keys: Iterable[Any], options: RunOptions) -> Batch:
    """The batch on the workers; one that is there already is joined on demand."""
    try:
        return submit_batch(store, bound, keys, msgspec.structs.replace(options, allow_concurrent=False))
    except BatchHeld as held:
        batch = store.batches.get(BatchId(held.context["batch_id"]))
        if options.allow_concurrent and sharding_of(batch) is not None:
            return batch
        raise


def watch(store: Store, batch: Batch, output: Output, *, every: int = 10) -> BatchResult:
    """Tell how far a batch on the workers is, until they are done with it; a signal stops it."""
    before = store.batches.counters(batch.id).over
    report = RunReport(output, batch, total=batch.total, every=every, created=batch.run_number == 1, before=before)
    asked = threading.Event()

    def first() -> None:
        report.note(STOPPING)
        asked.set()

    with report, heard(first):
        while (batch := store.batches.get(batch.id)).state is BatchState.RUNNING:
            counted = store.batches.counters(batch.id)
            report.far(counted.over + counted.in_inbox, counted.failed)
            if _only_results_wait(batch, counted):
                break
            if asked.wait(LOOK_EVERY):
                asked.clear()
                store.batches.abort(batch.id, AbortedBy.SIGNAL)
    return _told(store, batch, report, output)


def _only_results_wait(batch: Batch, counted: Counters) -> bool:
    """Whether nothing is left to run: results wait for their consumers."""
    return batch.total is not None and counted.in_inbox > 0 and counted.over + counted.in_inbox >= batch.total


def _told(store: Store, batch: Batch, report: RunReport, output: Output) -> BatchResult:
    counted = store.batches.counters(batch.id)
    if output.format is Format.NDJSON:
        for ends in _ends(store, batch):
            report.units(ends)
    summary = summarise(counted, batch.total or 0, batch.aborted_by)
    code = exit_code(counted, batch.aborted_by)
    report.finished(summary, code)
    return BatchResult(batch, summary, code)


def _ends(store: Store, batch: Batch) -> Iterator[list[UnitRow]]:
    """The units that ended in this run, from the ledger, by key."""
    after = ""
    while page := store.batches.units(batch.id, after=after):
        after = page[-1].key
        yield [unit for unit in page if unit.run_number == batch.run_number and unit.state is not UnitState.PENDING]


def _launch(store: Store, opened: BatchRun, keys: Iterable[Any], options: RunOptions, sharding: Sharding) -> Batch:
    places = numbered(keys)
    try:
        while chunk := list(islice(places, CHUNK)):
            store.batches.plan(opened, chunk, retry_failed=options.retry_failed)
    except BaseException:
        give_up(store, opened)
        raise
    batch = store.batches.launch(opened, sharding)
    store.leases.settle(opened.lease, Done())
    return batch


def _sharding(bound: BoundFunction, options: RunOptions) -> Sharding:
    if not isinstance(options.shards, int) or not 1 <= options.shards <= MAX_SHARDS:
        raise InvalidInput(f"shards is a number from 1 to {MAX_SHARDS:,}, not {options.shards!r}")
    for name, plain in {"limit": None, "resume_from": None, "only": None, "jobs": 1}.items():
        if getattr(options, name) != plain:
            hint = "Submit just the keys that you want; shards are the units at a time."
            raise InvalidInput(f"{name} is for runs in this process", hint=hint)
    function = bound.function.options
    deadline = None if options.deadline is None else datetime.now(UTC) + as_duration(options.deadline)
    return Sharding(
        kind=shard_kind(function.name),
        shards=options.shards,
        queue=checked_name(options.queue or function.queue, what="the queue"),
        priority=checked_number(options.priority, what="the priority"),
        limits=limits_of(bound, options),
        in_doubt_if_lost=function.on_lost == "hold",
        until=deadline,
        rate=rate_of(bound, options),
    )
