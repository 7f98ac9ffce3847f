"""The threads that run units."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable

from holdfast.domain.batches.breaker import Breaker
from holdfast.domain.batches.unit import UnitOutcome, UnitRow, UnitState
from holdfast.worker import clock
from holdfast.worker.batches.limits import Throttle
from holdfast.worker.batches.unit import UnitResult, UnitRunner

#: Ends that may wait to be written: a kill repeats no more than these, and those under way.
GROUP = 50
#: Quick units are handed out several at a time: no more than so many, while they take less than so many seconds.
SLICE, QUICK = 25, 0.005


class UnitThreads:
    """Runs units side by side. User code never runs on the main thread, which hears signals and writes the ledger."""

    def __init__(self, run: UnitRunner, jobs: int, breaker: Breaker, *, rate: float | None = None) -> None:
        #: Set when the driver should look: ends are waiting, or nothing is left to do.
        self.news = threading.Event()
        #: Writes what has ended, in the thread that calls it; false when somebody else is at it.
        self.write: Callable[[], bool] = lambda: False
        #: What broke a thread, if anything did: no unit's own failure.
        self.error: BaseException | None = None
        self._run = run
        self._waiting: deque[UnitRow] = deque()
        self._finished: deque[UnitResult | UnitOutcome] = deque()
        self._flushing = 0
        self._breaker = breaker
        self._throttle = None if rate is None else Throttle(rate)
        self._work = threading.Condition()
        self._order = threading.Lock()
        self._busy = 0
        #: Units that were handed out, but wait for another in the hand of the same thread.
        self._ahead = 0
        self._closed = False
        self._pid = os.getpid()
        self._threads = [threading.Thread(target=self._serve, name=f"unit-{n}", daemon=True) for n in range(jobs)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def add(self, rows: Iterable[UnitRow]) -> None:
        """More to do; and everything that was taken is in the ledger."""
        with self._work:
            self._flushing = 0
            self._waiting.extend(rows)
            self._work.notify_all()

    @property
    def waiting(self) -> int:
        """Units that no thread has begun."""
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """Whether nothing is under way and nothing is left to begin."""
        with self._work:
            return not self._busy and (not self._waiting or self._run.stopping.is_set())

    def take(self) -> list[UnitResult | UnitOutcome]:
        """What has ended since the last call; it counts as unwritten until :meth:`add`."""
        finished = [self._finished.popleft() for _ in range(len(self._finished))]
        self._flushing += len(finished)
        return finished

    def leave(self) -> None:
        """Begin nothing more; what no thread has begun is forgotten here, and stays pending in the ledger."""
        with self._work:
            self._closed = True
            self._waiting.clear()
            self._work.notify_all()

    def _serve(self) -> None:
        try:
            self._work_off()
        except BaseException as error:  # noqa: BLE001 - the driver raises it
            self.error = error
            self._run.stop()
            self.news.set()

    def _work_off(self) -> None:
        size, is_stopping, note = 1, self._run.stopping.is_set, self._note
        perform, close = self._run.performer()
        while rows := self._next(size):
            began = clock.now()
            for row in rows:
                if self._throttle is not None:
                    self._throttle.wait(self._run.stopping)
                note(UnitResult(row, None, written=False) if is_stopping() else perform(row))
                if os.getpid() != self._pid:
                    os._exit(0)  # a fork that a unit left behind: it has no say here
            self._over(len(rows))
            size = min(size * 2, SLICE) if clock.now() - began < QUICK else 1
        close()

    def _next(self, size: int) -> list[UnitRow]:
        """The next units for one thread: several at a time while they are quick."""
        with self._work:
            while not self._closed:
                fair = -(-len(self._waiting) // len(self._threads))  # a share for every thread
                room = min(size, GROUP - len(self._finished) - self._flushing - self._ahead, fair)
                if room > 0 and not self._run.stopping.is_set():
                    self._busy += room
                    self._ahead += room - 1
                    return [self._waiting.popleft() for _ in range(room)]
                self._work.wait()
        return []

    def _note(self, finished: UnitResult | UnitOutcome) -> None:
        end = finished.end if isinstance(finished, UnitResult) else finished
        failed = end is not None and end.state is UnitState.FAILED
        if not failed and self._breaker.ignores_success:
            self._finished.append(finished)
            return
        with self._order:
            self._finished.append(finished)
            if end is not None and self._breaker.count(failed=failed):
                self._run.stop()  # at once: the driver will tell why when it looks

    def _over(self, count: int) -> None:
        with self._work:
            self._busy -= count
            self._ahead -= count - 1
            full = len(self._finished) + self._flushing >= GROUP or not self._waiting or self._run.stopping.is_set()
            self._work.notify_all()
        # To hand a group over to another thread takes longer than to write it.
        if full and not self.write():
            self.news.set()
