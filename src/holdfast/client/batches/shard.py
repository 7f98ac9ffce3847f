"""Unit functions on workers: the job of a shard, and units in child processes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast.client.batches.function import BoundFunction, UnitFunction
from holdfast.client.batches.report import unit_line
from holdfast.domain.batches.batch import AbortedBy, BatchId, BatchState, UnitOutcome, UnitRow, summarise
from holdfast.domain.batches.sharding import Sharding, shard_kind, sharding_of
from holdfast.domain.jobs.context import Context
from holdfast.domain.jobs.handler_exceptions import Cancelled, Release
from holdfast.domain.jobs.job import State
from holdfast.domain.jobs.kind import ExecutorName, Kind, KindOptions
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.verdict import Done
from holdfast.errors import LeaseLost
from holdfast.store import Store
from holdfast.store.batches.opening import BatchRun
from holdfast.worker import clock
from holdfast.worker.batches import owner
from holdfast.worker.batches.driver import Driver, RunPlan
from holdfast.worker.batches.processes import ChildRun, Told
from holdfast.worker.batches.source import Pending
from holdfast.worker.batches.unit import UnitRunner
from holdfast.worker.context import RunContext
from holdfast.worker.service import ServiceThread, TickResult

log = logging.getLogger("holdfast.batch")

#: A shard makes room for other jobs that wait after so many seconds, and looks so often whether it should go on.
SLICE, LOOK_EVERY = 10.0, 0.2
#: Once its time is over, it looks so often whether others wait.
LOOK_AGAIN = 1.0


def kinds_of(function: UnitFunction[..., Any]) -> list[Kind]:
    """The kinds that workers and children need to run the units of a function."""
    kinds = [_shard_kind(function)]
    return [*kinds, unit_kind(function)] if function.options.executor == "process" else kinds


def run_of(store: Store, bound: BoundFunction, opened: BatchRun) -> UnitRunner:
    """What the units of one run share."""
    function, options = bound.function, bound.function.options
    timeout = None if options.timeout is None else options.timeout.total_seconds()
    if options.executor == "process":
        return ChildRun(
            opened, unit_kind(function), bound.arguments, retries=options.retries, curve=options.curve, timeout=timeout
        )
    return UnitRunner(
        batch=opened.batch,
        function=function.caller(bound.arguments),
        plain=function.plain(bound.arguments),
        decode=function.decoder(),
        retries=options.retries,
        curve=options.curve,
        timeout=timeout,
        verify=function.doubts(),
        transaction=lambda end: store.batches.transaction(opened, end),
    )


class HookCalls:
    """Calls the hooks of a function; what they raise is told in the log, and harms no unit."""

    def __init__(self, function: UnitFunction[..., Any]) -> None:
        self._hooks = function.hooks

    def begin(self, batch: Any) -> bool:
        """Whether the run may begin."""
        try:
            for hook in self._hooks.begin:
                hook(batch)
        except Exception:
            log.exception("the run cannot begin")
            return False
        return True

    def units(self, ends: Sequence[UnitOutcome]) -> None:
        for hook in self._hooks.unit:
            for end in ends:
                self._call(hook, unit_line(end))

    def end(self, summary: Any) -> None:
        for hook in self._hooks.end:
            self._call(hook, summary)

    def _call(self, hook: Callable[[Any], object], value: Any) -> None:
        try:
            hook(value)
        except Exception:
            log.exception("a hook failed")


def _shard_kind(function: UnitFunction[..., Any]) -> Kind:
    def shard(batch: int, number: int, context: Context) -> None:  # noqa: ARG001 - which shard it is tells its key
        assert function.store is not None
        assert isinstance(context, RunContext)
        _Shard(function.store(), function, context).work(BatchId(batch))

    return Kind(
        shard_kind(function.options.name),
        shard,
        KindOptions(
            queue=function.options.queue,
            lease=function.options.lease,
            max_attempts=None,
            max_crashes=None,
            timeout=None,
        ),
    )


class _Shard:
    """One run of a shard: it takes units until none is left, until it has to stop, or until others want its place."""

    def __init__(self, store: Store, function: UnitFunction[..., Any], context: RunContext) -> None:
        self._store = store
        self._function = function
        self._context = context
        self._telling = HookCalls(function)

    def work(self, batch_id: BatchId) -> None:
        opened = self._store.batches.join(batch_id, self._context.lease, owner=_owner())
        sharding = None if opened is None else sharding_of(opened.batch)
        if opened is None or sharding is None:
            return
        run = run_of(self._store, self._bound(opened), opened)
        self._context.on_renewal(run.date)
        driver = Driver(self._store, opened, run, _plan(sharding), Pending(sharding.shards), told=self._told)
        minder = ServiceThread(_Minder(self._store, driver, self._context, sharding), told=lambda *_: None)
        minder.start()
        try:
            aborted = driver.run() if self._telling.begin(opened.batch) else AbortedBy.FATAL
        finally:
            minder.stop(timeout=1)
        self._leave(opened, aborted, rested=driver.resting)

    def _told(self, ends: Sequence[UnitOutcome]) -> None:
        self._context.counts.units_finished(self._function.options.name, ends)
        self._telling.units(ends)

    def _leave(self, opened: BatchRun, aborted: AbortedBy | None, *, rested: bool) -> None:
        if aborted is AbortedBy.LEASE_LOST:
            raise LeaseLost.of(opened.lease.job_id, opened.lease.token)
        batch = self._store.batches.leave(opened, aborted)
        if batch.state is not BatchState.RUNNING:
            self._context.counts.batches[batch.state] += 1
            counted = self._store.batches.counters(batch.id)
            self._telling.end(summarise(counted, batch.total or 0, batch.aborted_by))
        elif self._context.stopping.is_set():
            raise Cancelled
        elif rested:
            raise Release

    def _bound(self, opened: BatchRun) -> BoundFunction:
        return BoundFunction(self._function, self._function.typed(msgspec.json.decode(opened.batch.arguments)))


class _Minder:
    """Watches what a shard cannot see while its units run: the worker's end, other jobs that wait, the deadline."""

    name = "minder"

    def __init__(self, store: Store, driver: Driver, context: RunContext, sharding: Sharding) -> None:
        self.bell = threading.Event()
        self._store = store
        self._driver = driver
        self._context = context
        self._sharding = sharding
        self._until = clock.now() + SLICE

    def tick(self) -> TickResult:
        if self._context.stopping.is_set():
            self._driver.stop(None)
        elif self._context.leaving.is_set() or self._others_wait():
            self._driver.rest()
        elif self._sharding.until is not None and datetime.now(UTC) >= self._sharding.until:
            self._driver.stop(AbortedBy.DEADLINE)
        return TickResult(LOOK_EVERY)

    def _others_wait(self) -> bool:
        if clock.now() < self._until:
            return False
        self._until = clock.now() + LOOK_AGAIN
        ready = Selector(queues=(self._sharding.queue,), states=(State.READY,))
        return self._store.views.count(ready, cap=1).count > 0


def unit_kind(function: UnitFunction[..., Any]) -> Kind:
    """What a child runs: one attempt at one unit."""

    def attempt(opened: BatchRun, arguments: dict[str, Any], row: UnitRow, context: Context) -> Done:
        assert function.store is not None
        store = function.store()
        run = UnitRunner(
            batch=opened.batch,
            function=function.caller(arguments),
            plain=function.plain(arguments),
            decode=function.decoder(),
            retries=0,
            curve=function.options.curve,
            verify=function.doubts(),
            transaction=lambda end: store.batches.transaction(opened, end),
        )
        run.stopping = context.stopping
        finished = run.run(row)
        end, written = (finished, False) if isinstance(finished, UnitOutcome) else (finished.end, finished.written)
        return Done(msgspec.json.encode(Told(end, written, run.fatal.is_set())).decode())

    # Children look for the kind where the function is.
    attempt.__module__, attempt.__qualname__ = function.function.__module__, function.function.__qualname__
    options = KindOptions(executor=ExecutorName.PROCESS, memory=function.options.memory, timeout=None)
    return Kind(f"unit:{function.options.name}", attempt, options)


def _plan(sharding: Sharding) -> RunPlan:
    return RunPlan(
        limits=sharding.limits,
        in_doubt_if_lost=sharding.in_doubt_if_lost,
        rate=None if sharding.rate is None else sharding.rate / sharding.shards,
    )


def _owner() -> str:
    return msgspec.json.encode(owner.this_process()).decode()
