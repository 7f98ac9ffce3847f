"""The driver of a run: its threads run units and write the ledger, and it waits for deadlines."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from holdfast.domain.batches.batch import AbortedBy, RunPlan
from holdfast.domain.batches.unit import TakenUnit
from holdfast.errors import LeaseLost, StoreBusy, StoreUnavailable
from holdfast.store import Store
from holdfast.store.batches.state import BatchRun
from holdfast.worker import clock
from holdfast.worker.batches.unit_runner import QUICK_S, Throttle, UnitRunner
from holdfast.worker.batches.writer import LedgerWriter
from holdfast.worker.service import TickResult

HEARTBEAT_INTERVAL_S = 10.0
HEARTBEAT_RETRY_S = 1.0


class Driver:
    """Runs units of one batch in this process until the source is exhausted, or until the run stops.

    Units run side by side on threads, never on the main thread, which handles signals. The thread that completes a
    group of units writes the ledger, or the main thread when a write is due.
    """

    def __init__(self, writer: LedgerWriter, runner: UnitRunner, plan: RunPlan) -> None:
        self._runner = runner
        self._writer = writer
        self._writing = threading.Lock()
        #: Wakes the main thread: outcomes wait, or nothing is left to do.
        self._wake = threading.Event()
        if runner.timeouts is not None:
            runner.timeouts.wake = self._wake.set
        #: The errors that broke a write and a thread; failures of units are not errors here.
        self._write_error: BaseException | None = None
        self._thread_error: BaseException | None = None
        #: Units that have not begun. Threads take them without a lock.
        self._waiting: deque[TakenUnit] = deque()
        #: A thread whose unit takes long leaves units to the others, also when the group is small again.
        share = plan.checkpoint.units // plan.jobs if plan.jobs > 1 else plan.checkpoint.max_units
        self._max_per_thread = 1 if plan.rate else max(1, share)
        self._throttle = None if plan.rate is None else Throttle(plan.rate)
        self._work = threading.Condition()
        self._busy = 0
        #: Units that a thread may take behind the one that it runs.
        self._ahead = 0
        self._closed = False
        self._threads = [threading.Thread(target=self._serve, name=f"unit-{n}", daemon=True) for n in range(plan.jobs)]

    @property
    def stopped_taking(self) -> bool:
        """Whether the run takes no more units."""
        return self._writer.stopped_taking

    def stop(self, reason: AbortedBy | None = AbortedBy.SIGNAL) -> None:
        """Begin no more units, and send those in flight a stop request. Only the first reason counts.

        None means that the batch continues elsewhere.
        """
        self._writer.stop(reason)
        self._wake.set()

    def stop_taking(self) -> None:
        """Take no more units; those that were taken run undisturbed."""
        self._writer.stopped_taking = True
        self._wake.set()

    def run(self) -> AbortedBy | None:
        """Drive the batch until no unit of it runs here. Returns the reason of a stop, if there was one."""
        try:
            for thread in self._threads:
                thread.start()
            while not self._is_finished():
                self._wake.wait(self._until_due())
                self._wake.clear()
            with self._writing:
                self._writer.finish()
        except LeaseLost:
            self.stop()
            return AbortedBy.LEASE_LOST
        finally:
            self._close()
        return self._writer.aborted_by

    def _close(self) -> None:
        """Begin no more units; those that no thread has taken stay pending in the ledger."""
        with self._work:
            self._closed = True
            self._waiting.clear()
            self._work.notify_all()
        self._runner.close()

    def _is_finished(self) -> bool:
        """Write while it is due. Returns whether no unit runs here and none will; raises the errors of threads."""
        while True:
            with self._writing:
                error = self._write_error or self._thread_error
                if error is not None:
                    raise error
                if self._runs_nothing():
                    return True
                if not self._write_if_due():
                    return False

    def _runs_nothing(self) -> bool:
        if not self._runner.stopping.is_set():
            return self._writer.is_finished
        with self._work:
            return not self._busy

    def _until_due(self) -> float:
        """Seconds until the next deadline: that of a flush, of the run, or of a unit. Stops units that are late."""
        next_timeout = math.inf if self._runner.timeouts is None else self._runner.timeouts.check()
        return min(self._writer.until_due(), next_timeout)

    def _write_if_due(self) -> bool:
        self._writer.collect()
        self._writer.stop_if_due()
        if due := self._writer.is_due(waiting=len(self._waiting)):
            with self._work:
                self._writer.put_back_surplus(self._waiting)
            self._writer.flush(on_taken=self._add)
        return due

    def _add(self, units: Iterable[TakenUnit]) -> None:
        with self._work:
            self._waiting.extend(units)
            self._work.notify_all()

    # -- in the threads of units -------------------------------------------------------------------

    def _serve(self) -> None:
        try:
            self._run_units()
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            self._thread_error = error
            self._runner.stop()
            self._wake.set()

    def _run_units(self) -> None:
        size, writer = 1, self._writer
        perform_all, close = self._runner.performer()
        while count := self._next(size):
            if self._throttle is not None:
                self._throttle.wait(self._runner.stopping)
            began = clock.now()
            perform_all(self._waiting.popleft, count, writer.add_done, writer.add)
            size = min(size * 2, self._max_per_thread) if clock.now() - began < QUICK_S else 1
            self._count_finished(count)  # may write a group, which takes longer than its units
        close()

    def _next(self, size: int) -> int:
        """The number of units that one thread may take next; 0 when the run has finished."""
        with self._work:
            while not self._closed:
                fair_share = -(-len(self._waiting) // len(self._threads))
                room = min(
                    size, self._writer.source.size.max_unwritten - self._writer.unwritten - self._ahead, fair_share
                )
                if room > 0 and not self._runner.stopping.is_set():
                    self._busy += room
                    self._ahead += room - 1
                    return room
                self._work.wait()
        return 0

    def _count_finished(self, count: int) -> None:
        with self._work:
            self._busy -= count
            self._ahead -= count - 1
            is_full = self._writer.source.size.is_full(self._writer.unwritten) or not self._waiting
            self._work.notify_all()
        # Writing a group takes less time than handing it to another thread.
        if (is_full or self._runner.stopping.is_set()) and not self._write():
            self._wake.set()

    def _write(self) -> bool:
        """Write in the thread of a finished unit; false when another thread is writing."""
        if not self._writing.acquire(blocking=False):
            return False
        try:
            if self._write_error is None:
                self._write_if_due()
            if self._runs_nothing():
                self._wake.set()
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            self._write_error = error
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
