"""The driver of a run: takes units, hands them to threads, and writes the ledger."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.domain.batches.batch import AbortedBy
from holdfast.domain.batches.unit import UnitOutcome
from holdfast.errors import LeaseLost, StoreBusy, StoreUnavailable
from holdfast.store import Store
from holdfast.store.batches.state import BatchRun
from holdfast.worker import clock
from holdfast.worker.batches.plan import RunPlan
from holdfast.worker.batches.runner import UnitRunner
from holdfast.worker.batches.source import Source
from holdfast.worker.batches.threads import UnitThreads
from holdfast.worker.batches.writer import LedgerWriter
from holdfast.worker.service import TickResult

HEARTBEAT_INTERVAL_S = 10.0
HEARTBEAT_RETRY_S = 1.0


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
        self._runner = runner
        self._writer = LedgerWriter(store, opened, runner, plan, source, on_written=on_written)
        self._pool = UnitThreads(runner, self._writer, plan, write=self._write_from_pool)
        if runner.timeouts is not None:
            runner.timeouts.wake = self._pool.wake.set
        self._writing = threading.Lock()
        self._error: BaseException | None = None

    @property
    def stopped_taking(self) -> bool:
        """Whether the run takes no more units."""
        return self._writer.stopped_taking

    def stop(self, reason: AbortedBy | None = AbortedBy.SIGNAL) -> None:
        """Begin no more units, and send those in flight a stop request. Only the first reason counts.

        None means that the batch continues elsewhere.
        """
        self._writer.stop(reason)
        self._pool.wake.set()

    def stop_taking(self) -> None:
        """Take no more units; those that were taken run undisturbed."""
        self._writer.stopped_taking = True
        self._pool.wake.set()

    def run(self) -> AbortedBy | None:
        """Drive the batch until no unit of it runs here. Returns the reason of a stop, if there was one."""
        self._pool.start()
        try:
            while not self._is_finished():
                self._pool.wake.wait(self._until_due())
                self._pool.wake.clear()
            with self._writing:
                self._writer.finish()
        except LeaseLost:
            self.stop()
            return AbortedBy.LEASE_LOST
        finally:
            self._pool.close()
            self._runner.close()
        if self._writer.input_error is not None:
            raise self._writer.input_error
        return self._writer.aborted_by

    def _is_finished(self) -> bool:
        """Write while it is due. Returns whether no unit runs here and none will."""
        while True:
            with self._writing:
                error = self._error or self._pool.error
                if error is not None:
                    raise error
                if self._runs_nothing():
                    return True
                if not self._write_if_due():
                    return False

    def _runs_nothing(self) -> bool:
        return self._pool.idle if self._runner.stopping.is_set() else self._writer.is_finished

    def _until_due(self) -> float:
        """Seconds until the next deadline: that of a flush, of the run, or of a unit. Stops units that are late."""
        next_timeout = math.inf if self._runner.timeouts is None else self._runner.timeouts.check()
        return min(self._writer.until_due(), next_timeout)

    def _write_if_due(self) -> bool:
        self._writer.collect()
        self._writer.stop_if_due()
        if due := self._writer.is_due(waiting=self._pool.waiting):
            self._writer.flush(on_taken=self._pool.add)
        return due

    def _write_from_pool(self) -> bool:
        """Write in the thread of a finished unit. Its errors are raised in the thread of the driver."""
        if not self._writing.acquire(blocking=False):
            return False
        try:
            if self._error is None:
                self._write_if_due()
            if self._runs_nothing():
                self._pool.wake.set()
        except BaseException as error:  # noqa: BLE001 - see above
            self._error = error
            self.stop(AbortedBy.LEASE_LOST)
        finally:
            self._writing.release()
        return True


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
