"""Runs of batches on the workers: submitted, watched, done in shards."""

from __future__ import annotations

import math
import shlex
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from holdfast.client.batches.batch_claim import abandon_batch, open_batch
from holdfast.client.batches.dry_run import dry_run
from holdfast.client.batches.function import BoundFunction, UnitFunction, published_kind
from holdfast.client.batches.keys import FailedKeys
from holdfast.client.batches.local import STOPPING, run_batch, signal_handlers, unit_kind, unit_runner
from holdfast.client.batches.options import RunOptions
from holdfast.client.batches.report import BatchResult, RunReport
from holdfast.domain.batches.batch import (
    MAX_SHARDS,
    AbortedBy,
    Batch,
    BatchId,
    BatchState,
    Sharding,
    batch_label,
    shard_kind,
    sharding_of,
    summarise,
)
from holdfast.domain.batches.checkpoint import checkpoint_interval
from holdfast.domain.batches.turns import ShardTurn
from holdfast.domain.batches.unit import Counters, UnitOutcome, UnitRow, UnitState
from holdfast.domain.jobs.context import Cancelled, Context, Release
from holdfast.domain.jobs.job import WorkerId
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.kind_options import KindOptions
from holdfast.domain.jobs.verdict import Done
from holdfast.domain.names import checked_name
from holdfast.domain.quantities import as_duration, checked_number
from holdfast.errors import BatchHeld, InvalidInput, LeaseLost
from holdfast.output.printer import Format, Output
from holdfast.store import Store
from holdfast.store.batches.state import BatchRun
from holdfast.worker import clock
from holdfast.worker.batches.conflicts import this_process
from holdfast.worker.batches.driver import Driver
from holdfast.worker.batches.outages import outlast
from holdfast.worker.batches.plan import RunPlan
from holdfast.worker.batches.source import PendingUnits, numbered
from holdfast.worker.context import RunContext
from holdfast.worker.service import ServiceThread, TickResult

#: Units that one transaction writes to the ledger.
PLAN_CHUNK = 1000
#: Pause between two polls of a batch on the workers.
POLL_INTERVAL_S = 0.2
#: Pause between two checks whether a worker runs the shards.
WORKERS_INTERVAL_S = 5.0


def run_anywhere(store: Store, bound: BoundFunction, keys: Iterable[Any], options: RunOptions) -> BatchResult:
    """Run a batch at its placement: in this process or on the workers; or do a dry run."""
    if (options.dry_run or options.once) and (result := dry_run(store, bound, keys, options)) is not None:
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
    opened = open_batch(store, bound, keys, options, options.printer(), submits=True)
    return plan_batch(store, opened, keys, sharding, retry_failed=options.retry_failed)


def plan_batch(
    store: Store, opened: BatchRun, keys: Iterable[Any], sharding: Sharding, *, retry_failed: bool = True
) -> Batch:
    """Write all units of a batch that was opened to its ledger and hand the batch to the workers."""
    failed = FailedKeys(store, opened)
    places = numbered(failed.met_in(keys))
    try:
        while chunk := list(islice(places, PLAN_CHUNK)):
            store.batches.plan(opened, chunk, retry_failed=retry_failed)
        failed.skip_gone()
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
    report = RunReport(output, batch, total=batch.total, every=every, created=batch.run_number == 1, before=before)
    stop_requested, sharding, checked_at = threading.Event(), sharding_of(batch), -math.inf

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
            if sharding is not None and sharding.until is not None and datetime.now(UTC) >= sharding.until:
                outlast(partial(store.batches.abort, batch.id, AbortedBy.DEADLINE))
            if stop_requested.wait(POLL_INTERVAL_S):
                stop_requested.clear()
                outlast(partial(store.batches.abort, batch.id, AbortedBy.SIGNAL))
    batch, counters = outlast(read)
    if output.format is Format.NDJSON:
        for rows in _finished_units(store, batch):
            report.lines(rows)
    result = BatchResult.after(batch, counters, batch.aborted_by)
    report.finish(result)
    return result


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
        checkpoint=checkpoint_interval(options.checkpoint),
    )


#: Pause between two checks for a stop of the worker.
WATCH_INTERVAL_S = 0.2


def kinds_of(function: UnitFunction[..., Any]) -> list[Kind]:
    """The kinds that workers and child processes need for the units of a function."""

    def shard(batch: int, number: int, context: Context) -> None:  # noqa: ARG001 - the number makes its key unique
        assert function.store is not None
        assert isinstance(context, RunContext)
        _Shard(function.store(), function, context).work(BatchId(batch))

    kind = function.options.kind
    options = KindOptions(queue=kind.queue, lease=kind.lease, max_attempts=None, max_crashes=None, timeout=None)
    shards = Kind(shard_kind(function.options.name), shard, options)
    shards.unit = published_kind(function)
    return [shards, unit_kind(function)] if function.options.in_process else [shards]


class _Shard:
    """One run of a shard. It takes units until none is left, until it is stopped, or until its turn is over."""

    def __init__(self, store: Store, function: UnitFunction[..., Any], context: RunContext) -> None:
        self._store = store
        self._function = function
        self._context = context

    def work(self, batch_id: BatchId) -> None:
        opened = self._store.batches.join(
            batch_id, self._context.lease, owner=this_process().encode(), worker=WorkerId(self._context.worker)
        )
        sharding = None if opened is None else sharding_of(opened.batch)
        if opened is None or sharding is None:
            return
        arguments = self._function.convert_arguments(msgspec.json.decode(opened.batch.arguments))
        bound = BoundFunction(self._function, arguments)
        runner = unit_runner(self._store, bound, opened, lease_duration=self._context.lease_duration)
        self._context.on_renewal(runner.renewed)
        source = PendingUnits(sharding.shards, sharding.checkpoint.units)
        until = sharding.until
        plan = RunPlan(
            limits=sharding.limits,
            deadline=None if until is None else max(timedelta(0), until - datetime.now(UTC)),
            in_doubt_if_lost=sharding.in_doubt_if_lost,
            rate=None if sharding.rate is None else sharding.rate / sharding.shards,
            checkpoint=sharding.checkpoint,
        )
        driver = Driver(self._store, opened, runner, plan, source, on_written=self._on_written)
        watch = ServiceThread(_ShardWatch(driver, self._context, sharding), on_tick=lambda *_: None)
        with self._turn(opened.batch, sharding):
            watch.start()
            try:
                aborted_by = driver.run() if self._function.hooks.begin(opened.batch) else AbortedBy.FATAL
            finally:
                watch.stop(timeout=1)
        self._leave(opened, aborted_by, made_room=driver.stopped_taking)

    @contextmanager
    def _turn(self, batch: Batch, sharding: Sharding) -> Iterator[None]:
        turns, lease = self._context.turns, self._context.lease
        if turns is None:
            yield
            return
        label, priority = batch_label(batch), lease.priority
        now = clock.now()
        turns.begin(
            ShardTurn(job_id=lease.job_id, batch_label=label, queue=sharding.queue, priority=priority, began_at=now)
        )
        try:
            yield
        finally:
            turns.end(lease.job_id)

    def _on_written(self, outcomes: Sequence[UnitOutcome]) -> None:
        self._context.counts.units_finished(self._function.options.name, outcomes)
        self._function.hooks.units(outcomes)

    def _leave(self, opened: BatchRun, aborted_by: AbortedBy | None, *, made_room: bool) -> None:
        if aborted_by is AbortedBy.LEASE_LOST:
            raise LeaseLost.of(opened.lease.job_id, opened.lease.token)
        batch = self._store.batches.leave(opened, aborted_by)
        if batch.state is not BatchState.RUNNING:
            self._context.counts.batches[batch.state] += 1
            counters = self._store.batches.counters(batch.id)
            self._function.hooks.end(summarise(counters, batch.total or 0, batch.aborted_by))
        elif self._context.stopping.is_set():
            raise Cancelled
        elif made_room or aborted_by is AbortedBy.STOP_SWITCH:
            raise Release


class _ShardWatch:
    """Stops a shard on a stop of its worker, and lets it make room when its turn is over."""

    name = "minder"

    def __init__(self, driver: Driver, context: RunContext, sharding: Sharding) -> None:
        self.wake = threading.Event()
        self._driver = driver
        self._context = context
        self._sharding = sharding

    def tick(self) -> TickResult:
        turns = self._context.turns
        if self._context.stopping.is_set():
            self._driver.stop(None)
        elif self._context.leaving.is_set() or (turns is not None and turns.is_over(self._context.lease.job_id)):
            self._driver.stop_taking()
        return TickResult(WATCH_INTERVAL_S)
