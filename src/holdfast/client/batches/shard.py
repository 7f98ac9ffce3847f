"""Shards: jobs that run units of a batch on the workers, one turn at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import msgspec

from holdfast.client.batches.function import BoundFunction, UnitFunction, published_kind
from holdfast.client.batches.local import unit_kind, unit_runner
from holdfast.domain.batches.batch import (
    AbortedBy,
    Batch,
    BatchId,
    BatchState,
    RunPlan,
    Sharding,
    batch_label,
    known_total,
    shard_kind,
    sharding_of,
    summarise,
)
from holdfast.domain.batches.turns import ShardTurn
from holdfast.domain.batches.unit import UnitOutcome
from holdfast.domain.jobs.context import Cancelled, Context, Release
from holdfast.domain.jobs.job import WorkerId
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.kind_options import KindOptions
from holdfast.errors import LeaseLost
from holdfast.store import Store
from holdfast.store.batches.state import BatchRun
from holdfast.worker import clock
from holdfast.worker.batches.conflicts import this_process
from holdfast.worker.batches.driver import Driver
from holdfast.worker.batches.source import PendingUnits
from holdfast.worker.batches.writer import LedgerWriter
from holdfast.worker.context import RunContext
from holdfast.worker.service import ServiceThread, TickResult

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
    shards.origin = function.origin
    return [shards, unit_kind(function)] if function.options.in_process else [shards]


class _Shard:
    """One run of a shard. It takes units until none is left, until it is stopped, or until its turn ends."""

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
        source = PendingUnits(sharding.shards, sharding.checkpoint)
        until = sharding.until
        plan = RunPlan(
            limits=sharding.limits,
            deadline=None if until is None else max(timedelta(0), until - self._store.batches.now()),
            in_doubt_if_lost=sharding.in_doubt_if_lost,
            rate=None if sharding.rate is None else sharding.rate / sharding.shards,
            checkpoint=sharding.checkpoint,
        )
        writer = LedgerWriter(self._store, opened, runner, plan, source, on_written=self._on_written)
        driver = Driver(writer, runner, plan)
        watch = ServiceThread(_ShardWatch(driver, self._context), on_tick=lambda *_: None)
        with self._turn(opened.batch, sharding):
            watch.start()
            try:
                may_begin = self._function.hooks.begin(opened.batch) is None
                aborted_by = driver.run() if may_begin else AbortedBy.FATAL
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
            counters = self._store.batches.counters(batch.id)
            self._function.hooks.end(summarise(counters, known_total(batch, counters), batch.aborted_by))
        elif self._context.stopping.is_set():
            raise Cancelled
        elif made_room or aborted_by in (AbortedBy.STOP_SWITCH, AbortedBy.PAUSE):  # the pause may be withdrawn
            raise Release


class _ShardWatch:
    """Stops a shard when its worker stops, and lets it make room when its turn ends."""

    name = "minder"

    def __init__(self, driver: Driver, context: RunContext) -> None:
        self.wake = threading.Event()
        self._driver = driver
        self._context = context

    def tick(self) -> TickResult:
        turns = self._context.turns
        if self._context.stopping.is_set():
            self._driver.stop(None)
        elif self._context.leaving.is_set() or (turns is not None and turns.is_over(self._context.lease.job_id)):
            self._driver.stop_taking()
        return TickResult(WATCH_INTERVAL_S)
