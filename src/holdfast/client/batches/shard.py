"""Shards: the jobs in which workers run the units of a batch."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast.client.batches.function import BoundFunction, UnitFunction
from holdfast.client.batches.runner import unit_kind, unit_runner
from holdfast.domain.batches.batch import AbortedBy, BatchId, BatchState, summarise
from holdfast.domain.batches.sharding import Sharding, shard_kind, sharding_of
from holdfast.domain.batches.unit import UnitOutcome
from holdfast.domain.jobs.context import Context
from holdfast.domain.jobs.handler_exceptions import Cancelled, Release
from holdfast.domain.jobs.job import State
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.kind_options import KindOptions
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import LeaseLost
from holdfast.store import Store
from holdfast.store.batches.state import BatchRun
from holdfast.worker import clock
from holdfast.worker.batches import owner
from holdfast.worker.batches.driver import Driver, RunPlan
from holdfast.worker.batches.source import PendingUnits
from holdfast.worker.context import RunContext
from holdfast.worker.service import ServiceThread, TickResult

#: A shard runs at least this long before it makes room for other jobs that are ready.
SLICE_S = 10.0
#: Pause between two checks for other ready jobs, once the slice is used up.
READY_CHECK_INTERVAL_S = 1.0
#: Pause between two checks for a stop of the worker and for the deadline.
WATCH_INTERVAL_S = 0.2


def kinds_of(function: UnitFunction[..., Any]) -> list[Kind]:
    """The kinds that workers and child processes need for the units of a function."""
    kinds = [_shard_kind(function)]
    return [*kinds, unit_kind(function)] if function.options.in_process else kinds


def _shard_kind(function: UnitFunction[..., Any]) -> Kind:
    def shard(batch: int, number: int, context: Context) -> None:  # noqa: ARG001 - the number makes its key unique
        assert function.store is not None
        assert isinstance(context, RunContext)
        _Shard(function.store(), function, context).work(BatchId(batch))

    options = KindOptions(
        queue=function.options.kind.queue,
        lease=function.options.kind.lease,
        max_attempts=None,
        max_crashes=None,
        timeout=None,
    )
    return Kind(shard_kind(function.options.name), shard, options)


class _Shard:
    """One run of a shard. It takes units until none is left, until it is stopped, or until other jobs are ready."""

    def __init__(self, store: Store, function: UnitFunction[..., Any], context: RunContext) -> None:
        self._store = store
        self._function = function
        self._context = context

    def work(self, batch_id: BatchId) -> None:
        this_owner = owner.this_process().encode()
        opened = self._store.batches.join(batch_id, self._context.lease, owner=this_owner)
        sharding = None if opened is None else sharding_of(opened.batch)
        if opened is None or sharding is None:
            return
        runner = unit_runner(self._store, self._bound(opened), opened)
        self._context.on_renewal(runner.renewed)
        source = PendingUnits(sharding.shards)
        driver = Driver(self._store, opened, runner, _plan(sharding), source, on_written=self._on_written)
        watch = ServiceThread(_ShardWatch(self._store, driver, self._context, sharding), on_tick=lambda *_: None)
        watch.start()
        try:
            aborted_by = driver.run() if self._function.hooks.begin(opened.batch) else AbortedBy.FATAL
        finally:
            watch.stop(timeout=1)
        self._leave(opened, aborted_by, made_room=driver.stopped_taking)

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
        elif made_room:
            raise Release

    def _bound(self, opened: BatchRun) -> BoundFunction:
        arguments = msgspec.json.decode(opened.batch.arguments)
        return BoundFunction(self._function, self._function.convert_arguments(arguments))


class _ShardWatch:
    """Stops a shard on a stop of its worker and at its deadline, and lets it make room for other ready jobs."""

    name = "minder"

    def __init__(self, store: Store, driver: Driver, context: RunContext, sharding: Sharding) -> None:
        self.wake = threading.Event()
        self._store = store
        self._driver = driver
        self._context = context
        self._sharding = sharding
        self._next_ready_check = clock.now() + SLICE_S

    def tick(self) -> TickResult:
        if self._context.stopping.is_set():
            self._driver.stop(None)
        elif self._context.leaving.is_set() or self._others_are_ready():
            self._driver.stop_taking()
        elif self._sharding.until is not None and datetime.now(UTC) >= self._sharding.until:
            self._driver.stop(AbortedBy.DEADLINE)
        return TickResult(WATCH_INTERVAL_S)

    def _others_are_ready(self) -> bool:
        if clock.now() < self._next_ready_check:
            return False
        self._next_ready_check = clock.now() + READY_CHECK_INTERVAL_S
        ready = Selector(queues=(self._sharding.queue,), states=(State.READY,))
        return self._store.views.count(ready, cap=1).count > 0


def _plan(sharding: Sharding) -> RunPlan:
    return RunPlan(
        limits=sharding.limits,
        in_doubt_if_lost=sharding.in_doubt_if_lost,
        rate=None if sharding.rate is None else sharding.rate / sharding.shards,
    )
