"""Executors: where handlers run. Each takes runs and hands back settlements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from holdfast.domain.context import Context
from holdfast.run.held import Run
from holdfast.store.settlement import Settlement

Finish = Callable[[list[Settlement]], None]
MakeContext = Callable[[Run], Context]


class Executor(Protocol):
    """A place for some runs at a time."""

    def submit(self, runs: list[Run]) -> None:
        """Take runs to be begun as soon as there is room, in their order."""
        ...

    def take_back(self) -> list[Run]:
        """Give back the runs that have not begun."""
        ...

    @property
    def waiting(self) -> int:
        """How many runs have not begun."""
        ...

    @property
    def running(self) -> int:
        """How many runs are under way."""
        ...

    def close(self) -> None:
        """Let idle threads end; what still runs is left alone."""
        ...
