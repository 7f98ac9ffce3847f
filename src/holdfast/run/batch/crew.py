"""The threads that run units."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable

from holdfast.domain.batch import Unit as UnitRow
from holdfast.domain.batch import UnitState
from holdfast.domain.breaker import Breaker
from holdfast.run.batch.unit import Ended, Run

#: Ends that may wait to be written: a kill repeats no more than these, and those under way.
GROUP = 50


class Crew:
    """Runs units side by side. User code never runs on the main thread, which hears signals and writes the ledger."""

    def __init__(self, run: Run, jobs: int, breaker: Breaker) -> None:
        #: Set when the driver should look: ends are waiting, or nothing is left to do.
        self.news = threading.Event()
        self._run = run
        self._waiting: deque[UnitRow] = deque()
        self._ended: deque[Ended] = deque()
        self._flushing = 0
        self._breaker = breaker
        self._work = threading.Condition()
        self._busy = 0
        self._closed = False
        self._threads = [threading.Thread(target=self._serve, name=f"unit-{n}", daemon=True) for n in range(jobs)]
        for thread in self._threads:
            thread.start()

    def add(self, rows: Iterable[UnitRow]) -> None:
        with self._work:
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

    def take(self) -> list[Ended]:
        """What has ended since the last call; it counts as unwritten until :meth:`written`."""
        ended = []
        while self._ended:
            ended.append(self._ended.popleft())
        self._flushing += len(ended)
        return ended

    def written(self) -> None:
        """Everything that was taken is in the ledger."""
        with self._work:
            self._flushing = 0
            self._work.notify_all()

    def leave(self) -> None:
        """Begin nothing more; what no thread has begun is forgotten here, and stays pending in the ledger."""
        with self._work:
            self._closed = True
            self._waiting.clear()
            self._work.notify_all()

    def _serve(self) -> None:
        while (row := self._next()) is not None:
            self._over(self._run.run(row))

    def _next(self) -> UnitRow | None:
        with self._work:
            while not self._closed:
                room = len(self._ended) + self._flushing < GROUP
                if self._waiting and room and not self._run.stopping.is_set():
                    self._busy += 1
                    return self._waiting.popleft()
                self._work.wait()
        return None

    def _over(self, ended: Ended) -> None:
        with self._work:
            self._busy -= 1
            self._ended.append(ended)
            if ended.end is not None and self._breaker.count(failed=ended.end.state is UnitState.FAILED):
                self._run.stopping.set()  # at once: the driver will tell why when it looks
            if len(self._ended) + self._flushing >= GROUP or not self._waiting or self._run.stopping.is_set():
                self.news.set()
