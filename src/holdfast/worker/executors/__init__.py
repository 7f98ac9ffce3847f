"""Executors: where handlers run. Each takes runs and hands back settlements."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from holdfast.domain.jobs.verdict import Outcome, Released
from holdfast.store.jobs.settlement import Settlement
from holdfast.worker.active_runs import Run

Finish = Callable[[Run, Settlement], None]


class Executor(Protocol):
    """A place for some runs at a time."""

    waiting: RunQueue

    def submit(self, runs: list[Run]) -> None:
        """Take runs to be begun as soon as there is room, in their order."""
        ...

    @property
    def running(self) -> int:
        """How many runs are under way."""
        ...

    def close(self) -> None:
        """Let what is idle end; what still runs is left alone."""
        ...


class RunQueue:
    """Runs that have not begun. Taking one from it needs no lock."""

    def __init__(self) -> None:
        self._runs: deque[Run] = deque()
        self.some = threading.Condition()

    def put(self, runs: list[Run]) -> None:
        self._runs.extend(runs)

    def take(self) -> Run | None:
        try:
            return self._runs.popleft()
        except IndexError:
            return None

    def take_back(self, *, claimed_before: float = float("inf")) -> list[Run]:
        """The runs that were claimed before a moment and have not begun: they will not."""
        back: list[Run] = []
        while self._runs and self._runs[0].claimed_at < claimed_before:
            run = self.take()
            if run is not None:
                back.append(run)
        return back

    def __len__(self) -> int:
        return len(self._runs)


def told_before(run: Run) -> Outcome | None:
    """How a run ends that was told to stop before it began."""
    return None if run.stop_reason is None else Released()
