"""An executor: takes runs, and hands settlements to the lifecycle of the worker."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from holdfast.domain.jobs.verdict import Outcome, Released
from holdfast.worker.active_runs import Run


class Executor(Protocol):
    """A place for a limited number of concurrent runs."""

    waiting: RunQueue

    def submit(self, runs: list[Run]) -> None:
        """Queue runs; they begin in this order, as slots become free."""
        ...

    @property
    def running(self) -> int: ...

    def close(self) -> None:
        """End idle threads and processes. Runs that are under way continue."""
        ...


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
            run = self.take()
            if run is not None:
                runs.append(run)
        self._taken_back += len(runs)
        return runs

    @property
    def taken(self) -> int:
        """Number of runs that an executor has taken so far.

        The order of the reads matters: beside a concurrent change the result may be too large, never too small.
        """
        taken_back = self._taken_back
        waiting = len(self._runs)
        return self._put - taken_back - waiting

    def __len__(self) -> int:
        return len(self._runs)


def outcome_before_begin(run: Run) -> Outcome | None:
    """The outcome of a run that was asked to stop before it began."""
    return None if run.stop_reason is None else Released()
