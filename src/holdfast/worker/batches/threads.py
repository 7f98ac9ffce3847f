"""The threads that run units."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable

from holdfast.domain.batches.unit import UnitRow
from holdfast.worker import clock
from holdfast.worker.batches.plan import RunPlan
from holdfast.worker.batches.runner import Throttle, UnitRunner
from holdfast.worker.batches.unit import UnitResult
from holdfast.worker.batches.writer import LedgerWriter

#: A thread gets several units at a time while such a group takes less than QUICK_S.
MAX_UNITS_PER_THREAD, QUICK_S = 25, 0.005


class UnitThreads:
    """Runs units side by side. User code never runs on the main thread, which handles signals and writes the ledger.

    *write* writes the ledger in the calling thread; it returns false when another thread is writing.
    """

    def __init__(self, runner: UnitRunner, writer: LedgerWriter, plan: RunPlan, *, write: Callable[[], bool]) -> None:
        #: Wakes the driver: outcomes wait, or nothing is left to do.
        self.wake = threading.Event()
        #: The error that broke a thread; failures of units are not errors here.
        self.error: BaseException | None = None
        self._runner = runner
        self._writer = writer
        self._write = write
        self._max_unwritten = plan.checkpoint.units
        self._waiting: deque[UnitRow] = deque()
        self._throttle = None if plan.rate is None else Throttle(plan.rate)
        self._work = threading.Condition()
        self._busy = 0
        #: Units that a thread has taken behind the one that it runs.
        self._ahead = 0
        self._closed = False
        self._pid = os.getpid()
        self._threads = [threading.Thread(target=self._serve, name=f"unit-{n}", daemon=True) for n in range(plan.jobs)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def add(self, rows: Iterable[UnitRow]) -> None:
        """Add units, after a flush."""
        with self._work:
            self._waiting.extend(rows)
            self._work.notify_all()

    @property
    def waiting(self) -> int:
        """The number of units that no thread has taken."""
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """Whether no unit is in flight and none will begin."""
        with self._work:
            return not self._busy and (not self._waiting or self._runner.stopping.is_set())

    def close(self) -> None:
        """Begin no more units; those that no thread has taken stay pending in the ledger."""
        with self._work:
            self._closed = True
            self._waiting.clear()
            self._work.notify_all()

    def _serve(self) -> None:
        try:
            self._run_units()
        except BaseException as error:  # noqa: BLE001 - the driver raises it
            self.error = error
            self._runner.stop()
            self.wake.set()

    def _run_units(self) -> None:
        size, is_stopping, add_result = 1, self._runner.stopping.is_set, self._writer.add
        perform, close = self._runner.performer()
        while rows := self._next(size):
            began = clock.now()
            for row in rows:
                if self._throttle is not None:
                    self._throttle.wait(self._runner.stopping)
                add_result(UnitResult(row, None) if is_stopping() else perform(row))
                if os.getpid() != self._pid:
                    os._exit(0)  # a fork that a unit left behind must not write results
            self._count_finished(len(rows))
            size = min(size * 2, MAX_UNITS_PER_THREAD) if clock.now() - began < QUICK_S else 1
        close()

    def _next(self, size: int) -> list[UnitRow]:
        """The next units for one thread; empty when the pool is closed."""
        with self._work:
            while not self._closed:
                fair_share = -(-len(self._waiting) // len(self._threads))
                room = min(size, self._max_unwritten - self._writer.unwritten - self._ahead, fair_share)
                if room > 0 and not self._runner.stopping.is_set():
                    self._busy += room
                    self._ahead += room - 1
                    return [self._waiting.popleft() for _ in range(room)]
                self._work.wait()
        return []

    def _count_finished(self, count: int) -> None:
        with self._work:
            self._busy -= count
            self._ahead -= count - 1
            is_full = self._writer.unwritten >= self._max_unwritten
            is_due = is_full or not self._waiting or self._runner.stopping.is_set()
            self._work.notify_all()
        # Writing a group takes less time than handing it to another thread.
        if is_due and not self._write():
            self.wake.set()
