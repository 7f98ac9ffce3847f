"""The runs of an executor that have not begun, and the slots that all executors of a worker share."""

from __future__ import annotations

import threading
from collections import deque
from typing import Protocol

from holdfast.worker.active_runs import Run


class RunQueue:
    """Runs that have not begun. No operation takes a lock."""

    def __init__(self) -> None:
        self._runs: deque[Run] = deque()
        self._put = 0
        self._taken_back = 0

    def put(self, runs: list[Run]) -> None:
        self._put += len(runs)
        self._runs.extend(runs)

    def take(self) -> Run | None:
        try:
            return self._runs.popleft()
        except IndexError:
            return None

    def take_back(self, *, claimed_before: float = float("inf")) -> list[Run]:
        """Remove the runs that were claimed before a time; they will not begin."""
        runs: list[Run] = []
        while self._runs and self._runs[0].claimed_at < claimed_before:
            if (run := self.take()) is not None:
                runs.append(run)
        self._taken_back += len(runs)
        return runs

    @property
    def taken(self) -> int:
        """Number of runs taken so far. The order of the reads matters: a race makes it too large, never too small."""
        taken_back = self._taken_back
        waiting = len(self._runs)
        return self._put - taken_back - waiting

    def __len__(self) -> int:
        return len(self._runs)


class Gated(Protocol):
    """An executor, as far as the gate knows it."""

    waiting: RunQueue

    @property
    def running(self) -> int: ...

    def wake(self) -> None: ...


class SlotGate:
    """Keeps the runs of all executors together within the slots of the worker, as each keeps its own."""

    def __init__(self, slots: int) -> None:
        #: Replaced, never changed: any thread may iterate over it.
        self.executors: list[Gated] = []
        self._slots = slots
        self._lock = threading.Lock()

    def take(self, executor: Gated, *, counted: int = 0) -> Run | None:
        """The next run of an executor, if a slot is free. *counted*: its ``running`` includes this run already."""
        if len(self.executors) < 2:
            return executor.waiting.take()
        with self._lock:
            if sum(each.running for each in self.executors) - counted >= self._slots:
                return None
            return executor.waiting.take()

    def freed(self, executor: Gated) -> None:
        """A run of *executor* has finished: the others may begin one."""
        if len(self.executors) > 1:
            for each in self.executors:
                if each is not executor and len(each.waiting):
                    each.wake()
