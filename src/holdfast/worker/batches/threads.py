"""The threads that run units, with the outcomes that wait to be written."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable

from msgspec import structs

from holdfast.domain.batches.batch import Breaker
from holdfast.domain.batches.unit import UnitOutcome, UnitRow, UnitState
from holdfast.worker import clock
from holdfast.worker.batches.runner import Throttle, UnitRunner
from holdfast.worker.batches.unit import UnitResult

#: Outcomes that may wait to be written: a kill repeats at most these units and those in flight.
MAX_UNWRITTEN = 50
#: A thread gets several units at a time while such a group takes less than QUICK_S.
MAX_UNITS_PER_THREAD, QUICK_S = 25, 0.005


class UnitThreads:
    """Runs units side by side. User code never runs on the main thread, which handles signals and writes the ledger."""

    def __init__(self, runner: UnitRunner, jobs: int, breaker: Breaker, *, rate: float | None = None) -> None:
        #: Wakes the driver: outcomes wait, or nothing is left to do.
        self.wake = threading.Event()
        #: Writes outcomes in the calling thread; returns false when another thread is writing.
        self.write: Callable[[], bool] = lambda: False
        #: The error that broke a thread; failures of units are not errors here.
        self.error: BaseException | None = None
        self._runner = runner
        self._waiting: deque[UnitRow] = deque()
        self._finished: deque[UnitResult | UnitOutcome] = deque()
        self._flushing = 0
        self._breaker = breaker
        self._throttle = None if rate is None else Throttle(rate)
        self._work = threading.Condition()
        self._order = threading.Lock()
        self._busy = 0
        #: Units that a thread has taken behind the one that it runs.
        self._ahead = 0
        self._closed = False
        self._pid = os.getpid()
        self._threads = [threading.Thread(target=self._serve, name=f"unit-{n}", daemon=True) for n in range(jobs)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def add(self, rows: Iterable[UnitRow]) -> None:
        """Add units; all outcomes that :meth:`take` returned are in the ledger now."""
        with self._work:
            self._flushing = 0
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

    def take(self) -> list[UnitResult | UnitOutcome]:
        """The results since the last call; they count as unwritten until :meth:`add`."""
        finished = [self._finished.popleft() for _ in range(len(self._finished))]
        self._flushing += len(finished)
        return finished

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
        size, is_stopping, add_result = 1, self._runner.stopping.is_set, self._add_result
        perform, close = self._runner.performer()
        while rows := self._next(size):
            began = clock.now()
            for row in rows:
                if self._throttle is not None:
                    self._throttle.wait(self._runner.stopping)
                add_result(UnitResult(row, None, written=False) if is_stopping() else perform(row))
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
                room = min(size, MAX_UNWRITTEN - len(self._finished) - self._flushing - self._ahead, fair_share)
                if room > 0 and not self._runner.stopping.is_set():
                    self._busy += room
                    self._ahead += room - 1
                    return [self._waiting.popleft() for _ in range(room)]
                self._work.wait()
        return []

    def _add_result(self, result: UnitResult | UnitOutcome) -> None:
        outcome = result.outcome if isinstance(result, UnitResult) else result
        failed = outcome is not None and outcome.state is UnitState.FAILED
        if not failed and self._breaker.ignores_success:
            self._finished.append(result)
            return
        with self._order:
            self._finished.append(result)
            if outcome is not None and self._breaker.count(failed=failed):
                self._runner.stop()  # at once; the driver sets the reason later

    def _count_finished(self, count: int) -> None:
        with self._work:
            self._busy -= count
            self._ahead -= count - 1
            is_full = len(self._finished) + self._flushing >= MAX_UNWRITTEN
            is_due = is_full or not self._waiting or self._runner.stopping.is_set()
            self._work.notify_all()
        # Writing a group takes less time than handing it to another thread.
        if is_due and not self.write():
            self.wake.set()


class OutcomeBuffer:
    """Outcomes that are not in the ledger yet, and the latest failures in a row."""

    def __init__(self) -> None:
        self.unwritten: list[UnitOutcome] = []
        self._streak: list[UnitOutcome] = []

    def add(self, outcome: UnitOutcome, *, failed: bool, written: bool) -> None:
        """Add an outcome; *written*: a transaction of the unit has put it into the ledger."""
        if not written:
            self.unwritten.append(outcome)
        if failed:
            self._streak.append(outcome)
        else:
            self._streak.clear()

    def release_streak(self) -> None:
        """Make the units of the current streak pending again, until the cause of their failures is fixed."""
        released = {outcome.key for outcome in self._streak}
        waiting = {outcome.key for outcome in self.unwritten}
        written = [outcome for outcome in self._streak if outcome.key not in waiting]
        self.unwritten = [
            *(pending_again(outcome) if outcome.key in released else outcome for outcome in self.unwritten),
            # The ledger has these failures already: they are reverted.
            *(structs.replace(pending_again(outcome), before=UnitState.FAILED) for outcome in written),
        ]
        self._streak = []

    def take(self) -> list[UnitOutcome]:
        """Remove and return all unwritten outcomes."""
        outcomes, self.unwritten = self.unwritten, []
        return outcomes


def pending_again(outcome: UnitOutcome, row: UnitRow | None = None) -> UnitOutcome:
    """The same unit, pending and without this attempt."""
    attempts = max(0, outcome.attempts - 1) if row is None else row.attempts
    return structs.replace(outcome, state=UnitState.PENDING, attempts=attempts, label=None, warning=None, data=None)
