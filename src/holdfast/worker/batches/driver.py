"""The driver of a run: takes units, hands them to threads, and writes the ledger."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from msgspec import Struct

from holdfast.domain.batches.batch import BREAKERS, AbortedBy, Breaker, FailureLimits
from holdfast.domain.batches.unit import UnitKey, UnitOutcome, UnitRow, UnitState
from holdfast.errors import LeaseLost, StoreBusy, StoreUnavailable
from holdfast.store import Store
from holdfast.store.batches.ledger import NextUnits
from holdfast.store.batches.state import BatchRun, UnitInFlight
from holdfast.worker import clock
from holdfast.worker.batches.runner import UnitRunner
from holdfast.worker.batches.source import Source
from holdfast.worker.batches.threads import MAX_UNWRITTEN, OutcomeBuffer, UnitThreads, pending_again
from holdfast.worker.service import TickResult

#: The ledger is written at least this often; a flush also reads requests to stop.
FLUSH_INTERVAL_S = 1.0
HEARTBEAT_INTERVAL_S = 10.0
HEARTBEAT_RETRY_S = 1.0


class RunPlan(Struct, frozen=True, kw_only=True):
    """The limits and policies of a run."""

    jobs: int = 1
    limits: FailureLimits = FailureLimits()
    deadline: timedelta | None = None
    limit: int | None = None
    retry_failed: bool = True
    in_doubt_if_lost: bool = False
    rate: float | None = None


class Driver:
    """Runs units of one batch in this process until the source is exhausted, or until the run stops.

    *on_written* is called with finished units once they are in the ledger.
    """

    def __init__(
        self,
        store: Store,
        opened: BatchRun,
        runner: UnitRunner,
        plan: RunPlan,
        source: Source,
        *,
        on_written: Callable[[Sequence[UnitOutcome]], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._opened = opened
        self._runner = runner
        self._plan = plan
        self._on_written = on_written
        self._source = source
        self._in_hand: dict[UnitKey, UnitRow] = {}
        self._suspect_in_hand = False
        self.stopped_taking = False
        self._taken = 0
        self._breaker = Breaker(plan.limits)
        self._aborted_by: AbortedBy | None = None
        self._outcomes = OutcomeBuffer()
        self._began_at = self._flushed_at = clock.now()
        # The second breaker counts the same outcomes in the same order, without waiting for the driver.
        self._pool = UnitThreads(runner, plan.jobs, Breaker(plan.limits), rate=plan.rate)
        self._pool.write = self._write_from_pool
        self._writing = threading.Lock()
        self._error: BaseException | None = None
        self._input_error: Exception | None = None

    def stop(self, reason: AbortedBy | None = AbortedBy.SIGNAL) -> None:
        """Begin no more units, and send those in flight a stop request. Only the first reason counts.

        None means that the batch continues elsewhere.
        """
        self._aborted_by = self._aborted_by or reason
        self._runner.stop()
        self._pool.wake.set()

    def stop_taking(self) -> None:
        """Take no more units; those that were taken run undisturbed."""
        self.stopped_taking = True
        self._pool.wake.set()

    def run(self) -> AbortedBy | None:
        """Drive the batch until no unit of it runs here. Returns the reason of a stop, if there was one."""
        self._pool.start()
        try:
            while True:
                with self._writing:
                    error = self._error or self._pool.error
                    if error is not None:
                        raise error
                    if self._is_finished():
                        self._write_rest()
                        if self._input_error is not None:
                            raise self._input_error
                        return self._aborted_by
                    written = self._write_if_due()
                if not written:
                    self._pool.wake.wait(self._until_due())
                    self._pool.wake.clear()
        except LeaseLost:
            self._aborted_by = AbortedBy.LEASE_LOST
            self.stop()
            return self._aborted_by
        finally:
            self._pool.close()
            self._runner.close()

    def _until_due(self) -> float:
        next_timeout = self._runner.timeouts.check() if self._runner.timeouts is not None else None
        flush = max(0.0, FLUSH_INTERVAL_S - (clock.now() - self._flushed_at))
        return flush if next_timeout is None else min(flush, next_timeout)

    def _write_if_due(self) -> bool:
        self._collect()
        self._stop_if_due()
        if due := self._due():
            self._flush()
        return due

    def _write_from_pool(self) -> bool:
        """Write in the thread of a finished unit. Its errors are raised in the thread of the driver."""
        if not self._writing.acquire(blocking=False):
            return False
        try:
            if self._error is None:
                self._write_if_due()
            if self._is_finished():
                self._pool.wake.set()
        except BaseException as error:  # noqa: BLE001 - see above
            self._error = error
            self.stop(AbortedBy.LEASE_LOST)
        finally:
            self._writing.release()
        return True

    def _is_finished(self) -> bool:
        if self._runner.stopping.is_set():
            return self._pool.idle
        return (self._source.exhausted or self.stopped_taking) and not self._in_hand

    def _due(self) -> bool:
        if clock.now() - self._flushed_at >= FLUSH_INTERVAL_S or len(self._outcomes.unwritten) >= MAX_UNWRITTEN:
            return True
        return self._room() > 0 and not self._pool.waiting and not self._runner.stopping.is_set()

    def _room(self) -> int:
        """The number of units to take now. A poison suspect runs alone; with ``in_doubt_if_lost``, none is ahead."""
        if self._suspect_in_hand or self._source.exhausted or self.stopped_taking:
            return 0
        window = self._plan.jobs if self._plan.in_doubt_if_lost else self._source.window(self._plan.jobs)
        left = window if self._plan.limit is None else self._plan.limit - self._taken
        return min(window - len(self._in_hand), left)

    def _stop_if_due(self) -> None:
        if self._plan.deadline is not None and clock.now() - self._began_at > self._plan.deadline.total_seconds():
            self.stop(AbortedBy.DEADLINE)
        if self._runner.fatal.is_set():
            self.stop(AbortedBy.FATAL)
        if self._plan.limit is not None and self._taken >= self._plan.limit and not self._in_hand:
            self.stop(AbortedBy.LIMIT)

    def _collect(self) -> None:
        for result in self._pool.take():
            self._suspect_in_hand = False
            outcome = result if isinstance(result, UnitOutcome) else result.outcome
            written = not isinstance(result, UnitOutcome) and result.written
            row = self._in_hand.pop(result.key if isinstance(result, UnitOutcome) else result.row.key)
            if outcome is None:
                continue
            if outcome.state is not UnitState.FAILED and self._breaker.ignores_success:
                if not written:
                    self._outcomes.unwritten.append(outcome)
            else:
                self._count(row, outcome, written=written)

    def _count(self, row: UnitRow, outcome: UnitOutcome, *, written: bool) -> None:
        failed = outcome.state is UnitState.FAILED
        if failed and self._aborted_by in BREAKERS:
            outcome = pending_again(outcome, row)  # it failed like the others, after the stop
            tripped = None
        else:
            tripped = self._breaker.count(failed=failed)
        self._outcomes.add(outcome, failed=failed, written=written)
        if failed and tripped is not None:
            self._outcomes.release_streak()
            self.stop(tripped)

    @property
    def _tripped(self) -> AbortedBy | None:
        """The breaker that stopped this run: no other run may take the units that it releases."""
        return self._aborted_by if self._aborted_by in BREAKERS else None

    def _flush(self) -> None:
        room = 0 if self._runner.stopping.is_set() else self._room()
        candidates = self._candidates(room) if room > 0 else None
        room = 0 if self._input_error is not None else room
        outcomes = self._outcomes.take()
        request = NextUnits(
            in_hand=[(row.key, row.position) for row in self._in_hand.values()],
            candidates=candidates,
            limit=max(0, room),
            retry_failed=self._plan.retry_failed,
            in_doubt_if_lost=self._plan.in_doubt_if_lost,
            fresh=self._source.fresh and not self._runner.commit_unknown,
            abort=self._tripped,
        )
        flushed = self._store.batches.flush(self._opened, outcomes, request)
        self._flushed_at = clock.now()
        if room > 0:
            self._source.advance(flushed, in_hand=len(self._in_hand))
        taken, self._taken = flushed.taken, self._taken + len(flushed.taken)
        self._suspect_in_hand = len(taken) == 1 and taken[0].poison_suspect  # a suspect is never taken with others
        self._in_hand.update({row.key: row for row in taken})
        self._pool.add(taken)
        self._report(outcomes)
        if flushed.stop in BREAKERS:  # the breaker of another run of this batch tripped
            self._outcomes.release_streak()
        if flushed.stop is not None:
            self.stop(flushed.stop)

    def _candidates(self, room: int) -> Sequence[UnitInFlight] | None:
        """The next keys. An error of the input is raised after the units in flight are finished."""
        try:
            return self._source.candidates(room)
        except Exception as error:  # noqa: BLE001 - the user's own iterator
            self._input_error = error
            self.stop(AbortedBy.FATAL)
            return None

    def _write_rest(self) -> None:
        self._collect()
        self._in_hand.clear()
        outcomes = self._outcomes.take()
        self._store.batches.flush(self._opened, outcomes, NextUnits(abort=self._tripped))
        self._report(outcomes)

    def _report(self, outcomes: Sequence[UnitOutcome]) -> None:
        """Report finished units; those that a tripped breaker released are not finished."""
        if outcomes:
            finished = [each for each in outcomes if each.state is not UnitState.PENDING] if self._tripped else outcomes
            self._on_written(finished)


class DriverHeartbeat:
    """Renews the lease of a local run."""

    name = "pulse"

    def __init__(self, store: Store, opened: BatchRun, runner: UnitRunner, *, lost: Callable[[], Any]) -> None:
        self.wake = threading.Event()
        self._store = store
        self._opened = opened
        self._runner = runner
        self._lost = lost

    def tick(self) -> TickResult:
        sent = clock.now()
        try:
            renewals = self._store.leases.renew([self._opened.lease])
            if not renewals:
                self._lost()
            elif renewals[0].renewed:  # otherwise another transaction had locked the row
                self._runner.renewed(sent)
        except (StoreUnavailable, StoreBusy):
            return TickResult(HEARTBEAT_RETRY_S)  # a flush without the lease is refused
        return TickResult(HEARTBEAT_INTERVAL_S)
