"""Runs of batches in this process."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from holdfast.client.batches.batch_claim import abandon_batch, length_of, open_batch
from holdfast.client.batches.function import BoundFunction, UnitFunction
from holdfast.client.batches.keys import FailedKeys, finished_keys, first_key, input_error, selected_keys
from holdfast.client.batches.options import RunOptions, Selection
from holdfast.client.batches.report import BatchResult, RunReport
from holdfast.domain.batches.batch import AbortedBy, BatchState, LeftBy, RunPlan
from holdfast.domain.batches.checkpoint import checkpoint_interval
from holdfast.domain.batches.done_units import DoneUnit, outcome_of
from holdfast.domain.batches.unit import Counters, UnitOutcome, UnitRow
from holdfast.domain.batches.unit_function import function_kind
from holdfast.domain.jobs.context import Context
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.kind_options import ExecutorName, KindOptions
from holdfast.domain.jobs.verdict import Done
from holdfast.domain.quantities import as_duration
from holdfast.errors import InvalidInput
from holdfast.store import Store
from holdfast.store.batches.state import BatchRun, UnitInFlight
from holdfast.store.jobs.leases import DEFAULT_LEASE
from holdfast.worker.batches.driver import Driver, DriverHeartbeat
from holdfast.worker.batches.outages import outlast
from holdfast.worker.batches.source import InputKeys
from holdfast.worker.batches.thread_attempts import ThreadAttempts
from holdfast.worker.batches.unit import UnitResult
from holdfast.worker.batches.unit_runner import UnitRunner, UnitTimeouts
from holdfast.worker.batches.writer import LedgerWriter
from holdfast.worker.exit import exit_process
from holdfast.worker.service import ServiceThread
from holdfast.worker.stop_signals import Signals

SECOND_SIGNAL_EXIT_CODE = 130
STOPPING = "stopping: running units may finish; press Ctrl-C again to leave at once"


def run_batch(store: Store, bound: BoundFunction, keys: Iterable[Any], options: RunOptions) -> BatchResult:
    """Run *bound* over *keys* in this process and write the ledger as it goes; raises like :func:`open_batch`."""
    _check_numbers(options)
    only = selected_keys(bound.function, keys, options.selection)
    first = first_key(bound.function, keys, options.selection)
    plan = run_plan(bound, options)
    run = LocalRun.begin(store, bound, keys, options)
    failed = FailedKeys(store, run.opened)
    source = InputKeys(
        failed.met_in(keys),
        plan.checkpoint,
        resume_from=first,
        only=only,
        finished=finished_keys(store, run.opened, keys),
        first=run.opened.created,
        resumed=run.opened.batch.run_number > 1,
    )
    hooks = bound.function.hooks

    def on_written(outcomes: Sequence[UnitOutcome]) -> None:
        run.report.units(outcomes)
        hooks.units(outcomes)

    writer = LedgerWriter(store, run.opened, run.runner, plan, source, on_written=on_written)
    try:
        with run.report:
            driver = Driver(writer, run.runner, plan)
            aborted_by, cause = _drive(store, run, driver, lambda: hooks.begin(run.opened.batch))
        error = input_error(source) if aborted_by is None else None
    except BaseException:
        abandon_batch(store, run.opened)
        raise
    if error is not None:
        aborted_by, cause = AbortedBy.INPUT, error.message
    if source.complete and aborted_by is None:
        run.report.warn(failed.skip_gone(accepted=options.accept_drift))
    unbegun = chain([writer.unbegun], source.remaining())
    length = length_of(keys)
    result = _finish(store, run.opened, source, aborted_by, options.selection, length=length, unbegun=unbegun)
    hooks.end(result.summary)
    return run.report.finish(msgspec.structs.replace(result, error=error), cause=cause)


def _check_numbers(options: RunOptions) -> None:
    limit = options.selection.limit
    if not isinstance(options.jobs, int) or not 1 <= options.jobs <= 1000:
        raise InvalidInput(f"jobs is a number from 1 to 1,000, not {options.jobs!r}")
    if limit is not None and limit < 1:
        raise InvalidInput(f"limit is a number from 1 on, not {limit!r}", hint="To see the plan only, use dry_run.")


class LocalRun(NamedTuple):
    """A run of this process that has begun: its lease, its report, and the runner of its units."""

    opened: BatchRun
    report: RunReport
    runner: UnitRunner

    @classmethod
    def begin(cls, store: Store, bound: BoundFunction, keys: Iterable[Any], options: RunOptions) -> LocalRun:
        """Open the batch; raises like :func:`open_batch`."""
        output = options.printer()
        opened = open_batch(store, bound, keys, options, output)
        counters = Counters() if opened.created else store.batches.counters(opened.batch.id)
        # Failed units run again; they are finished when they have.
        failed = 0 if options.retry_failed else counters.failed
        report = RunReport(
            output,
            opened.batch,
            total=length_of(keys),
            every=options.progress_every,
            created=opened.created,
            edited=opened.edited,
            before=counters.over + counters.in_inbox - counters.failed + failed,
            failed=failed,
        )
        return cls(opened, report, unit_runner(store, bound, opened))

    def heartbeat(self, store: Store, stop: Callable[[AbortedBy], None]) -> ServiceThread[DriverHeartbeat]:
        """A service that renews the lease of the run, and stops the run when the lease is lost."""
        lost = partial(stop, AbortedBy.LEASE_LOST)
        return ServiceThread(DriverHeartbeat(store, self.opened, self.runner, lost=lost), on_tick=lambda *_: None)


def _drive(
    store: Store, run: LocalRun, driver: Driver, begin: Callable[[], str | None]
) -> tuple[AbortedBy | None, str | None]:
    """Drive a run, unless *begin* returns why it cannot start. Returns what stopped it, and the cause in words."""

    def on_first_signal() -> None:
        run.report.note(STOPPING)
        driver.stop(AbortedBy.SIGNAL)

    heartbeat = run.heartbeat(store, driver.stop)
    heartbeat.start()
    try:
        with signal_handlers(on_first_signal):
            cause = begin()
            return (driver.run(), None) if cause is None else (AbortedBy.FATAL, cause)
    finally:
        heartbeat.stop(timeout=1)


def signal_handlers(on_first: Callable[[], None]) -> AbstractContextManager[object]:
    """Handlers for signals: the first one calls *on_first*, the second one ends the process.

    Only the main thread can install them; elsewhere this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        return nullcontext()
    return Signals(on_first, lambda: exit_process(SECOND_SIGNAL_EXIT_CODE, "second signal: the run ends at once"))


def _finish(
    store: Store,
    opened: BatchRun,
    source: InputKeys,
    aborted_by: AbortedBy | None,
    selection: Selection,
    *,
    length: int | None,
    unbegun: Iterable[Sequence[UnitInFlight]],
) -> BatchResult:
    if aborted_by is AbortedBy.LEASE_LOST:
        batch_id = opened.batch.id
        return BatchResult.after(store.batches.get(batch_id), store.batches.counters(batch_id), aborted_by)
    if aborted_by is AbortedBy.CANCEL:
        for keys in unbegun:
            store.batches.plan(opened, keys)
        store.batches.cancel(opened.batch.id)
    aborted_by = None if aborted_by is AbortedBy.LIMIT and source.complete else aborted_by
    known = opened.batch.total
    total = max(source.keys_read, known or 0, length or 0)
    sized = length is not None or (known is not None and source.keys_read <= known)
    if source.complete and aborted_by is None:
        store.batches.skip_missing(opened)
    batch, counters = outlast(
        lambda: store.batches.end(opened, aborted_by, total, complete=source.complete, sized=sized)
    )
    outlast(lambda: store.leases.settle(opened.lease, Done()))
    aborted_by = AbortedBy.CANCEL if batch.state is BatchState.CANCELLED else aborted_by
    return BatchResult.after(batch, counters, aborted_by, left_by=_left_by(selection, aborted_by))


def _left_by(selection: Selection, aborted_by: AbortedBy | None) -> LeftBy | None:
    """The option by which a run leaves units behind, if it does."""
    if aborted_by is AbortedBy.LIMIT:
        return LeftBy.LIMIT
    if selection.only is not None:
        return LeftBy.ONLY
    return None if selection.resume_from is None else LeftBy.RESUME_FROM


def run_plan(bound: BoundFunction, options: RunOptions) -> RunPlan:
    """The limits and policies of a run."""
    function, limits = bound.function.options, options.limits
    return RunPlan(
        jobs=options.jobs,
        limits=limits.failure_limits(function),
        deadline=None if limits.deadline is None else as_duration(limits.deadline),
        limit=options.selection.limit,
        retry_failed=options.retry_failed,
        in_doubt_if_lost=function.on_lost == "hold",
        rate=limits.units_per_second(function),
        checkpoint=checkpoint_interval(options.checkpoint),
    )


def unit_runner(
    store: Store, bound: BoundFunction, opened: BatchRun, *, lease_duration: timedelta = DEFAULT_LEASE
) -> UnitRunner:
    """The runner for the units of one run. Units in children end with the lease of the run."""
    options = bound.function.options
    if not options.in_process:
        return _thread_runner(store, bound, opened, retries=options.retries, timeout_s=options.timeout_s)
    from holdfast.worker.batches.child_attempts import ChildAttempts

    timeouts = UnitTimeouts(math.inf if options.timeout_s is None else options.timeout_s)
    kind, curve = unit_kind(bound.function), options.kind.retry
    attempts = ChildAttempts(opened, kind, bound.arguments, timeouts, lease_duration=lease_duration)
    return UnitRunner(batch=opened.batch, attempts=attempts, retries=options.retries, curve=curve, timeouts=timeouts)


def unit_kind(function: UnitFunction[..., Any]) -> Kind:
    """The kind that child processes run: one attempt at one unit."""

    def attempt(opened: BatchRun, arguments: dict[str, Any], row: UnitRow, context: Context) -> Done:
        assert function.store is not None
        bound = BoundFunction(function, arguments)
        runner = _thread_runner(function.store(), bound, opened, retries=0, timeout_s=None)
        runner.stopping = context.stopping
        perform_all, close = runner.performer()
        results: list[UnitResult | DoneUnit] = [UnitResult(row, None)]
        perform_all(lambda: row, 1, results.append, results.append)
        close()
        last = results[-1]
        answer = last if isinstance(last, UnitResult) else UnitResult(row, outcome_of(last))
        return Done(msgspec.json.encode(answer).decode())

    # A child process imports the module of the kind's function.
    attempt.__module__, attempt.__qualname__ = function.function.__module__, function.function.__qualname__
    options = KindOptions(executor=ExecutorName.PROCESS, memory=function.options.kind.memory, timeout=None)
    return Kind(function_kind(function.options.name), attempt, options)


def _thread_runner(
    store: Store, bound: BoundFunction, opened: BatchRun, *, retries: int, timeout_s: float | None
) -> UnitRunner:
    function = bound.function
    attempts = ThreadAttempts(
        function=function.caller(bound.arguments),
        key_function=function.key_caller(bound.arguments),
        decode=function.decoder(),
        verify=function.required_verifier(),
        is_async=function.is_async,
    )
    return UnitRunner(
        batch=opened.batch,
        attempts=attempts,
        retries=retries,
        curve=function.options.kind.retry,
        timeouts=None if timeout_s is None else UnitTimeouts(timeout_s),
        transaction=lambda outcome: store.batches.unit_transaction(opened, outcome),
    )
