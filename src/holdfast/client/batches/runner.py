"""Runners for the units of a function: in threads of this process, or in child processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.client.batches.function import BoundFunction, UnitFunction
from holdfast.domain.batches.unit import UnitOutcome, UnitRow
from holdfast.domain.jobs.context import Context
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.kind_options import ExecutorName, KindOptions
from holdfast.domain.jobs.verdict import Done
from holdfast.store import Store
from holdfast.store.batches.state import BatchRun
from holdfast.worker.batches.processes import ChildAnswer, ChildUnitRunner
from holdfast.worker.batches.runner import UnitRunner


def unit_runner(store: Store, bound: BoundFunction, opened: BatchRun) -> UnitRunner:
    """The runner for the units of one run."""
    function, options = bound.function, bound.function.options
    if not options.in_process:
        return _thread_runner(
            store, function, bound.arguments, opened, retries=options.retries, timeout_s=options.timeout_s
        )
    return ChildUnitRunner(
        opened,
        unit_kind(function),
        bound.arguments,
        retries=options.retries,
        curve=options.kind.retry,
        timeout_s=options.timeout_s,
    )


def unit_kind(function: UnitFunction[..., Any]) -> Kind:
    """The kind that child processes run: one attempt at one unit."""

    def attempt(opened: BatchRun, arguments: dict[str, Any], row: UnitRow, context: Context) -> Done:
        assert function.store is not None
        runner = _thread_runner(function.store(), function, arguments, opened, retries=0, timeout_s=None)
        runner.stopping = context.stopping
        result = runner.run(row)
        outcome, written = (result, False) if isinstance(result, UnitOutcome) else (result.outcome, result.written)
        return Done(msgspec.json.encode(ChildAnswer(outcome, written, runner.fatal.is_set())).decode())

    # A child process imports the module of the kind's function.
    attempt.__module__, attempt.__qualname__ = function.function.__module__, function.function.__qualname__
    options = KindOptions(executor=ExecutorName.PROCESS, memory=function.options.kind.memory, timeout=None)
    return Kind(f"unit:{function.options.name}", attempt, options)


def _thread_runner(
    store: Store,
    function: UnitFunction[..., Any],
    arguments: Mapping[str, Any],
    opened: BatchRun,
    *,
    retries: int,
    timeout_s: float | None,
) -> UnitRunner:
    return UnitRunner(
        batch=opened.batch,
        function=function.caller(arguments),
        key_function=function.key_caller(arguments),
        decode=function.decoder(),
        retries=retries,
        curve=function.options.kind.retry,
        timeout_s=timeout_s,
        verify=function.required_verifier(),
        transaction=lambda outcome: store.batches.unit_transaction(opened, outcome),
    )
