"""Units in child processes, one child per thread. Children can be killed, and Ctrl-C does not reach them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec

from holdfast.domain.batches.unit import UnitOutcome, UnitRow, UnitState, row_of
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.verdict import Done, Failed, Lost, Outcome, Released, Stopped, Unreadable
from holdfast.errors import InvalidInput
from holdfast.store.batches.state import BatchRun
from holdfast.worker import clock
from holdfast.worker.active_runs import Run, StopReason
from holdfast.worker.batches.outages import RETRY_S
from holdfast.worker.batches.unit import Perform, UnitResult
from holdfast.worker.batches.unit_runner import UnitRunner, UnitTimeouts
from holdfast.worker.executors.children import ChildOptions, SupervisorClient
from holdfast.worker.executors.processes import ProcessSlot, child_setup
from holdfast.worker.shortage import WorkerShortage

#: Time between the request to stop and the kill of a child that exceeded its timeout.
KILL_GRACE_S = 5.0
#: How long a run tries to start a child: the host may have run out of memory or processes for a moment.
MAX_SHORTAGE_S = 10.0


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


class ChildAttempts:
    """Makes the attempts of one run in child processes."""

    def __init__(
        self,
        opened: BatchRun,
        kind: Kind,
        arguments: dict[str, Any],
        timeouts: UnitTimeouts,
        *,
        lease_duration: timedelta,
    ) -> None:
        self._timeouts = timeouts
        self._lease_duration = lease_duration
        self._opened = opened
        self._kind = kind
        self._arguments = arguments
        self._supervised = SupervisorClient()
        self._renewed_at = clock.now()
        self._runs: set[Run] = set()

    def open(self, runner: UnitRunner) -> tuple[Perform, None, Callable[[], None]]:
        hello = child_setup({self._kind.name: self._kind}, worker=f"batch-{self._opened.batch.id}")
        child = ProcessSlot(self._supervised, hello, ChildOptions(), reporter=lambda _: _refuse)
        return lambda unit: self._started(runner, child, row_of(unit)), None, child.close

    def renewed(self, timestamp: float) -> None:
        self._renewed_at = timestamp
        for run in list(self._runs):
            run.renewed(timestamp)

    def close(self) -> None:
        """End the supervisor, which kills the children that are left."""
        self._supervised.close()

    def _started(self, runner: UnitRunner, child: ProcessSlot, row: UnitRow) -> UnitResult:
        """Make an attempt. A child that cannot start is not a failure of the unit, and does not end the run at once."""
        until = clock.now() + MAX_SHORTAGE_S
        while True:
            try:
                return self._attempt(runner, child, row)
            except WorkerShortage:
                if clock.now() >= until:
                    raise
            if runner.stopping.wait(RETRY_S):
                return UnitResult(row, None)

    def _attempt(self, runner: UnitRunner, child: ProcessSlot, row: UnitRow) -> UnitResult:
        payload = msgspec.json.encode({"opened": self._opened, "arguments": self._arguments, "row": row}).decode()
        lease = msgspec.structs.replace(self._opened.lease, kind=self._kind.name, payload=payload)
        run = Run(lease, self._kind, renewed_at=self._renewed_at, lease_duration=self._lease_duration)
        unit = _ChildUnit(run, self._timeouts.timeout_s)
        self._runs.add(run)
        self._timeouts.begin(unit)
        if runner.stopping.is_set():
            unit.stop()
        began = clock.now()
        try:
            outcome = child.perform(run)
        finally:
            self._timeouts.end(unit)
            self._runs.discard(run)
        result = self._result(outcome, row, clock.now() - began, late=unit.timed_out)
        if not isinstance(outcome, Done):
            runner.unknown_commits.setdefault(row.key)  # the child may have been killed after its transaction
        return result

    def _result(self, outcome: Outcome, row: UnitRow, took_s: float, *, late: bool) -> UnitResult:
        match outcome:
            case Done():
                answer = msgspec.json.decode(outcome.result or "", type=UnitResult)
                if not (answer.interrupted and late):
                    return answer
                error = self._timeouts.message
            case Released() | Stopped() if not late:
                return UnitResult(row, None, interrupted=True)
            case Released() | Stopped():
                error = self._timeouts.message
            case Failed() | Lost() if late:
                error = f"{self._timeouts.message}, and was killed"
            case Unreadable():
                error = outcome.error
            case Failed() | Lost():
                error = outcome.error or outcome.reason
        return UnitResult(row, _failed(row, error, took_s, crashed=isinstance(outcome, Lost)), retry=True)


def _failed(row: UnitRow, error: str, took_s: float, *, crashed: bool) -> UnitOutcome:
    return UnitOutcome(
        key=row.key,
        position=row.position,
        state=UnitState.FAILED,
        attempts=row.attempts + 1,
        crashes=row.crashes + crashed,
        poison_suspect=crashed,
        error=error,
        duration_ms=round(took_s * 1000),
    )


def _refuse(_: object) -> None:
    raise InvalidInput("a unit has no job of its own")
