"""Attempts at units in the calling thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from msgspec import structs

from holdfast.domain.batches.done_units import DoneUnit
from holdfast.domain.batches.unit import TakenUnit, UnitRow, UnitState, row_of
from holdfast.domain.jobs.context import Cancelled
from holdfast.worker.batches.unit import Perform, Unit, UnitResult
from holdfast.worker.batches.unit_runner import KeyCall, UnitRunner
from holdfast.worker.handler_call import describe_error, refuse_unrun, safe_text

#: The label of units that a verifier confirmed after a lost run.
VERIFIED = "verified"


class ThreadAttempts:
    """Calls the function of a batch in the calling thread. A coroutine function runs on a loop of that thread.

    *key_function* is the same function for calls with the key alone; None if it takes a :class:`Unit`.
    """

    def __init__(
        self,
        *,
        function: Callable[[Unit], Any] = lambda _: None,
        key_function: Callable[[Any], Any] | None = None,
        decode: Callable[[str], Any] = str,
        verify: Callable[[Any], bool] | None = None,
        is_async: bool = False,
    ) -> None:
        self._function = function
        self._key_function = None if is_async else key_function
        self._decode = decode
        self._verify = verify
        self._is_async = is_async

    def open(self, runner: UnitRunner) -> tuple[Perform, KeyCall | None, Callable[[], None]]:
        if not self._is_async:
            attempt = _ThreadAttempt(runner, self._function, self._key_function, self._decode, self._verify)
            function = self._key_function
            call = None if function is None else KeyCall(self._decode, function, attempt.result_of)
            return attempt.make, call, lambda: None
        loop = _UnitLoop(self._function)
        return _ThreadAttempt(runner, loop.run, None, self._decode, self._verify).make, None, loop.close

    def renewed(self, timestamp: float) -> None:
        """The lease of the run does not limit its threads."""

    def close(self) -> None:
        """Threads have nothing to release."""


class _UnitLoop:
    """The event loop of one thread, for units that are coroutines. A unit whose time is up is cancelled."""

    def __init__(self, function: Callable[[Unit], Any]) -> None:
        self._function = function
        self._runner = asyncio.Runner()

    def run(self, unit: Unit) -> Any:
        return self._runner.run(self._await(unit), context=copy_context())

    async def _await(self, unit: Unit) -> Any:
        current = asyncio.current_task()
        assert current is not None
        loop = asyncio.get_running_loop()
        unit.cancel_with(lambda: loop.call_soon_threadsafe(current.cancel))
        try:
            return await self._function(unit)
        except asyncio.CancelledError:
            if unit.timed_out:
                raise Cancelled from None
            raise

    def close(self) -> None:
        self._runner.close()


class _ThreadAttempt:
    """One thread's way to make attempts."""

    __slots__ = ("_decode", "_function", "_key_function", "_runner", "_timeouts", "_verify")

    def __init__(
        self,
        runner: UnitRunner,
        function: Callable[[Unit], Any],
        key_function: Callable[[Any], Any] | None,
        decode: Callable[[str], Any],
        verify: Callable[[Any], bool] | None,
    ) -> None:
        self._runner = runner
        self._timeouts = runner.timeouts
        self._function = function
        self._key_function = key_function
        self._decode = decode
        self._verify = verify

    def make(self, unit: TakenUnit) -> UnitResult | DoneUnit:
        """Make one attempt."""
        row = row_of(unit)
        began = time.monotonic()
        try:
            key = self._decode(row.key)
        except Exception as error:  # noqa: BLE001 - the user's own types
            return self._misfit(row, error)
        if row.poison_suspect and self._verify is not None:
            verified = self._verified(row, key, self._verify)
            if verified is not None:
                return verified
        if self._key_function is None:
            return self._called(Unit(self._runner, row, key), began)
        returned, raised = None, None
        try:
            returned = copy_context().run(self._key_function, key)
        except BaseException as error:  # noqa: BLE001 - SystemExit of a unit must not end the run
            raised = error
        took_s = time.monotonic() - began
        if returned is None and raised is None and not row.last_run and not row.attempts:
            return row.key, row.position, took_s  # the common case creates no Unit
        return self.result_of(row, took_s, returned, error=raised)

    def result_of(
        self, unit: TakenUnit, took_s: float, returned: Any = None, *, error: BaseException | None = None
    ) -> UnitResult:
        """The result of an attempt that was a call with the key alone."""
        row = row_of(unit)
        try:
            key = self._decode(row.key)
        except Exception as wrong:  # noqa: BLE001 - as above: the error came from here
            return self._misfit(row, wrong)
        if returned is not None:
            try:
                refuse_unrun(returned)
            except BaseException as refusal:  # noqa: BLE001 - as above
                error = refusal
        return Unit(self._runner, row, key).result(took_s, returned=returned, error=error)

    def _misfit(self, row: UnitRow, error: Exception) -> UnitResult:
        message = f"the key does not fit the function: {safe_text(error)}"
        return UnitResult(row, Unit(self._runner, row, row.key).outcome(UnitState.FAILED, message, 0.0))

    def _called(self, unit: Unit, began: float) -> UnitResult:
        """Call the function with a unit."""
        timeouts = self._timeouts
        try:
            if timeouts is None:
                returned = copy_context().run(self._function, unit)
            else:
                unit.begin()
                timeouts.begin(unit)
                try:
                    returned = copy_context().run(self._function, unit)
                finally:
                    timeouts.end(unit)
            refuse_unrun(returned)
        except BaseException as error:  # noqa: BLE001 - as above
            return unit.result(time.monotonic() - began, error=error)
        return unit.result(time.monotonic() - began, returned=returned)

    def _verified(self, row: UnitRow, key: Any, verify: Callable[[Any], bool]) -> UnitResult | None:
        """The result of a unit that a lost run has done already; None if it has not."""
        unit = Unit(self._runner, row, key)
        try:
            if not copy_context().run(verify, key):
                return None
        except Exception as error:  # noqa: BLE001 - the user's own code
            failed = unit.outcome(UnitState.FAILED, describe_error(error), 0.0)
            return UnitResult(row, structs.replace(failed, poison_suspect=True))
        unit.done(VERIFIED)
        return unit.result(0.0)
