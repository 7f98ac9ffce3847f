"""Units in child processes, one child per thread. Children can be killed, and Ctrl-C does not reach them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.domain.batches.unit import UnitOutcome, UnitRow, UnitState
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.retry_curve import Curve, delay_after
from holdfast.domain.jobs.verdict import Done, Failed, Lost, Outcome, Released, Stopped, Unreadable
from holdfast.errors import InvalidInput
from holdfast.store.batches.state import BatchRun
from holdfast.store.jobs.leases import DEFAULT_LEASE
from holdfast.worker import clock
from holdfast.worker.active_runs import Run, StopReason
from holdfast.worker.batches.runner import UnitRunner, UnitTimeouts
from holdfast.worker.batches.unit import Perform, UnitResult
from holdfast.worker.executors.children import ChildOptions, SupervisorClient
from holdfast.worker.executors.processes import ProcessSlot, child_setup

#: Time between the request to stop and the kill of a child that exceeded its timeout.
KILL_GRACE_S = 5.0


class ChildAnswer(Struct, frozen=True):
    """The outcome of an attempt in a child; *fatal*: the whole run must stop."""

    outcome: UnitOutcome | None
    written: bool
    fatal: bool


class _ChildUnit:
    """A unit in a child. It receives a stop request when its time is up, and is killed after a grace period."""

    def __init__(self, run: Run, timeout_s: float) -> None:
        self.run = run
        self._timeout_s = timeout_s
        self.timed_out = False

    def stop(self) -> None:
        self.run.stop(StopReason.SHUTDOWN)

    def time_out(self) -> float | None:
        if self.timed_out:
            self.run.kill()
            return None
        left = self._timeout_s - self.run.under_way_for(clock.now())
        if left > 0:
            return left  # the start of the child does not count
        self.timed_out = True
        self.run.stop(StopReason.RUN_TIMEOUT)
        return KILL_GRACE_S


class ChildUnitRunner(UnitRunner):
    """Runs the units of one run in child processes."""

    def __init__(
        self, opened: BatchRun, kind: Kind, arguments: dict[str, Any], *, retries: int, curve: Curve, timeout_s: float
    ) -> None:
        super().__init__(batch=opened.batch, retries=retries, curve=curve)
        self.timeouts: UnitTimeouts = UnitTimeouts(timeout_s)
        self._opened = opened
        self._kind = kind
        self._arguments = arguments
        self._supervised = SupervisorClient()
        self._renewed_at = clock.now()

    def performer(self) -> tuple[Perform, Callable[[], None]]:
        hello = child_setup({self._kind.name: self._kind}, worker=f"batch-{self.batch.id}")
        child = ProcessSlot(self._supervised, hello, ChildOptions(), reporter=lambda _: _refuse)
        return lambda row: self._perform(child, row), child.close

    def renewed(self, timestamp: float) -> None:
        self._renewed_at = timestamp
        self.timeouts.each(lambda unit: unit.run.renewed(timestamp))  # type: ignore[attr-defined]

    def close(self) -> None:
        """End the supervisor, which kills the children that are left."""
        self._supervised.close()

    def _perform(self, child: ProcessSlot, row: UnitRow) -> UnitResult:
        tries = 0
        while True:
            result = self._attempt(child, row)
            outcome = result.outcome
            tries += 1
            is_final = outcome is None or outcome.state is not UnitState.FAILED or tries > self._retries
            if outcome is None or is_final or self.fatal.is_set() or self.stopping.is_set():
                return result
            row = msgspec.structs.replace(row, attempts=outcome.attempts, crashes=outcome.crashes)
            self.stopping.wait(delay_after(self._curve, tries, chance=random.random()).total_seconds())

    def _attempt(self, child: ProcessSlot, row: UnitRow) -> UnitResult:
        payload = msgspec.json.encode({"opened": self._opened, "arguments": self._arguments, "row": row}).decode()
        lease = msgspec.structs.replace(self._opened.lease, kind=self._kind.name, payload=payload)
        run = Run(lease, self._kind, renewed_at=self._renewed_at, lease_duration=DEFAULT_LEASE)
        unit = _ChildUnit(run, self.timeouts.timeout_s)
        self.timeouts.begin(unit)
        if self.stopping.is_set():
            unit.stop()
        began = clock.now()
        try:
            outcome = child.perform(run)
        finally:
            self.timeouts.end(unit)
        return self._result(outcome, row, clock.now() - began, late=unit.timed_out)

    def _result(self, outcome: Outcome, row: UnitRow, took_s: float, *, late: bool) -> UnitResult:
        match outcome:
            case Done():
                answer = msgspec.json.decode(outcome.result or "", type=ChildAnswer)
                if answer.fatal:
                    self.stop_fatally()
                if answer.outcome is not None or not late:
                    return UnitResult(row, answer.outcome, answer.written)
                error = self.timeouts.message
            case Released() | Stopped() if not late:
                return UnitResult(row, None, written=False)
            case Released() | Stopped():
                error = self.timeouts.message
            case Failed() | Lost() if late:
                error = f"{self.timeouts.message}, and was killed"
            case Unreadable():
                error = outcome.error
            case Failed() | Lost():
                error = outcome.error or outcome.reason
        return UnitResult(row, _failed(row, error, took_s, crashed=isinstance(outcome, Lost)), written=False)


def _failed(row: UnitRow, error: str, took_s: float, *, crashed: bool) -> UnitOutcome:
    return UnitOutcome(
        key=row.key,
        position=row.position,
        state=UnitState.FAILED,
        before=row.state,
        attempts=row.attempts + 1,
        crashes=row.crashes + crashed,
        error=error,
        duration_ms=round(took_s * 1000),
    )


def _refuse(_: object) -> None:
    raise InvalidInput("a unit has no job of its own to speak for")
