"""Units in child processes: one child per thread of the crew. A child can be killed, and Ctrl-C does not reach it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.domain.batches.batch import UnitOutcome, UnitRow, UnitState
from holdfast.domain.jobs.job import Lease
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.retry import Curve, delay_after
from holdfast.domain.jobs.verdict import Done, Failed, Lost, Outcome, Released, Stopped
from holdfast.errors import InvalidInput
from holdfast.store.batches.opening import BatchRun
from holdfast.store.jobs.leases import DEFAULT_LEASE
from holdfast.worker import clock
from holdfast.worker.active_runs import Run as HeldRun
from holdfast.worker.active_runs import StopReason
from holdfast.worker.batches.limits import Alarms
from holdfast.worker.batches.unit import Perform, UnitResult, UnitRunner
from holdfast.worker.executors.children import ChildOptions, SupervisorClient
from holdfast.worker.executors.processes import ProcessSlot, hello_for

#: Between the word that its time is up and the end of a child, in seconds.
GRACE = 5.0


class Order(Struct, frozen=True):
    """What a child is told: the run it works for, the function's arguments, and the unit."""

    opened: BatchRun
    arguments: dict[str, Any]
    row: UnitRow


class Told(Struct, frozen=True):
    """What a child answers: how the unit ended, whether that is in the ledger already, and whether all should stop."""

    end: UnitOutcome | None
    written: bool
    fatal: bool


class _UnderWay:
    """A unit in a child, as the alarms see it."""

    def __init__(self, run: HeldRun, timeout: float) -> None:
        self.run = run
        self.timeout = timeout
        self.timed_out = False

    def stop(self) -> None:
        self.run.stop(StopReason.SHUTDOWN)

    def time_out(self) -> float | None:
        if self.timed_out:
            self.run.kill()
            return None
        left = self.timeout - self.run.under_way_for(clock.now())
        if left > 0:
            return left  # the start of a child is no part of the unit
        self.timed_out = True
        self.run.stop(StopReason.RUN_TIMEOUT)
        return GRACE


class ChildRun(UnitRunner):
    """A run whose units happen in children."""

    def __init__(
        self,
        opened: BatchRun,
        kind: Kind,
        arguments: dict[str, Any],
        *,
        retries: int,
        curve: Curve,
        timeout: float | None,
    ) -> None:
        super().__init__(
            batch=opened.batch,
            function=lambda _: None,
            plain=None,
            decode=str,
            retries=retries,
            curve=curve,
            transaction=lambda _: None,
        )
        self.alarms: Alarms = Alarms(float("inf") if timeout is None else timeout)
        self._opened = opened
        self._kind = kind
        self._arguments = arguments
        self._supervised = SupervisorClient()
        self._dated = clock.now()

    def performer(self) -> tuple[Perform, Callable[[], None]]:
        hello = hello_for({self._kind.name: self._kind}, worker=f"batch-{self.batch_id}")
        child = ProcessSlot(self._supervised, hello, ChildOptions(), tell=lambda _: _refuse)
        return lambda row: self._perform(child, row), child.close

    def date(self, timestamp: float) -> None:
        self._dated = timestamp
        self.alarms.each(lambda unit: unit.run.date(timestamp))  # type: ignore[attr-defined]

    def close(self) -> None:
        """End the supervisor, and with it every child that is left."""
        self._supervised.close()

    def _perform(self, child: ProcessSlot, row: UnitRow) -> UnitResult:
        """Try the unit in the child, as often as it may be tried."""
        tries = 0
        while True:
            finished = self._attempt(child, row)
            tries += 1
            again = finished.end is not None and finished.end.state is UnitState.FAILED and tries <= self._retries
            if not again or finished.end is None or self.fatal.is_set() or self.stopping.is_set():
                return finished
            row = msgspec.structs.replace(row, attempts=finished.end.attempts, crashes=finished.end.crashes)
            self.stopping.wait(delay_after(self._curve, tries, chance=random.random()).total_seconds())

    def _attempt(self, child: ProcessSlot, row: UnitRow) -> UnitResult:
        run = HeldRun(self._lease(row), self._kind, dated=self._dated, lease_duration=DEFAULT_LEASE)
        unit = _UnderWay(run, self.alarms.timeout)
        self.alarms.begin(unit)
        if self.stopping.is_set():
            unit.stop()
        began = clock.now()
        try:
            outcome = child.perform(run)
        finally:
            self.alarms.end(unit)
        return self._judged(outcome, row, clock.now() - began, late=unit.timed_out)

    def _lease(self, row: UnitRow) -> Lease:
        """The run's own lease, as the child is to know it."""
        order = Order(self._opened, self._arguments, row)
        return msgspec.structs.replace(
            self._opened.lease, kind=self._kind.name, payload=msgspec.json.encode(order).decode()
        )

    def _judged(self, outcome: Outcome, row: UnitRow, took: float, *, late: bool) -> UnitResult:
        match outcome:
            case Done():
                told = msgspec.json.decode(outcome.result or "", type=Told)
                if told.fatal:
                    self.give_up()
                if told.end is not None or not late:
                    return UnitResult(row, told.end, told.written)
                error = self.alarms.said
            case Released() | Stopped() if not late:
                return UnitResult(row, None, written=False)
            case Released() | Stopped():
                error = self.alarms.said
            case Failed() | Lost() if late:
                error = f"{self.alarms.said}, and was killed"
            case Failed() | Lost():
                error = outcome.error or outcome.reason
        return UnitResult(row, _failed(row, error, took, crashed=isinstance(outcome, Lost)), written=False)


def _failed(row: UnitRow, error: str, took: float, *, crashed: bool) -> UnitOutcome:
    return UnitOutcome(
        key=row.key,
        position=row.position,
        state=UnitState.FAILED,
        before=row.state,
        attempts=row.attempts + 1,
        crashes=row.crashes + crashed,
        error=error,
        duration_ms=round(took * 1000),
    )


def _refuse(_: object) -> None:
    raise InvalidInput("a unit has no job of its own to speak for")
