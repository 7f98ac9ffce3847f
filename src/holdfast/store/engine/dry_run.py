"""A database on which everything is tried and nothing is kept: what a dry run acts on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from holdfast.domain.jobs.job import JobId
from holdfast.store.engine.backend import Backend
from holdfast.store.engine.operation import Operation, OperationFunction, P, Query

T = TypeVar("T")


class DryRunBackend:
    """Runs what a backend would run, and takes each transaction back: it answers and refuses as that would.

    - An act of several transactions sees nothing of its earlier ones, and no read does. Nobody is woken.
    - It costs what the act costs, locks included.
    - What cannot be taken back is not there: connections, migrations, the caller's own transaction.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.name = backend.name

    def look(self, ask: Query) -> list[Any]:
        return self._backend.look(ask)

    def read(self, flow: OperationFunction[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._backend.read(flow, *args, **kwargs)

    def run(self, ask: Query, *, repeatable: bool = False, timeout: timedelta | None = None) -> list[Any]:  # noqa: ARG002 - as of a backend
        """Run one statement, and take it back."""
        return self.write(_one, ask)

    def write(self, flow: OperationFunction[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a flow, and take back what it wrote."""
        try:
            self._backend.write(_tried, lambda: flow(*args, **kwargs))
        except _TakenBack as done:
            answer: T = done.answer
            return answer
        raise AssertionError("a rehearsal was kept")

    def draw_ids(self, count: int) -> list[JobId] | None:
        """Ids that no job will have."""
        return self._backend.draw_ids(count)

    def notify(self) -> None:
        """Nothing has happened that anybody should hear of."""


class _TakenBack(Exception):
    """Rolls a transaction back, and carries what it would have answered."""

    def __init__(self, answer: Any) -> None:
        super().__init__("this was a rehearsal")
        self.answer = answer


def _one(ask: Query) -> Operation[list[Any]]:
    rows: list[Any] = yield ask
    return rows


def _tried(flow: Callable[[], Operation[Any]]) -> Operation[None]:
    raise _TakenBack((yield from flow()))
