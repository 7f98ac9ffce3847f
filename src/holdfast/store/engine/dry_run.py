"""Dry runs: a backend that rolls every transaction back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

from holdfast.domain.jobs.job import JobId
from holdfast.store.engine.backend import Backend
from holdfast.store.engine.changes import Changes
from holdfast.store.engine.operation import Operation, OperationFunction, P, Query, T, single


class DryRunBackend:
    """Runs statements on a real backend and rolls each transaction back; answers and errors are the real ones.

    - A method of several transactions, or of a read, does not see its own earlier writes. No worker is woken.
    - A dry run costs as much as the real run, locks included.
    - Methods that cannot be rolled back are missing: connections, migrations, the caller's own transaction.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.name = backend.name

    def fetch(self, statement: Query) -> list[Any]:
        return self._backend.fetch(statement)

    def read(self, operation: OperationFunction[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._backend.read(operation, *args, **kwargs)

    def run(self, statement: Query, *, repeatable: bool = False, timeout: timedelta | None = None) -> list[Any]:  # noqa: ARG002 - the signature of a backend
        """Run one statement and roll it back."""
        return self.write(single, statement)

    def write(self, operation: OperationFunction[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation and roll it back."""
        try:
            self._backend.write(_rolled_back, lambda: operation(*args, **kwargs))
        except _RolledBack as rollback:
            return cast("T", rollback.answer)
        raise AssertionError("a rehearsal was kept")

    def draw_ids(self, count: int) -> list[JobId] | None:
        """Ids that no job will have."""
        return self._backend.draw_ids(count)

    def notify(self, changes: Changes) -> None:
        """Do nothing: nothing has changed."""


class _RolledBack(Exception):
    """Rolls a transaction back and carries its answer."""

    def __init__(self, answer: Any) -> None:
        super().__init__("this was a rehearsal")
        self.answer = answer


def _rolled_back(operation: Callable[[], Operation[Any]]) -> Operation[None]:
    raise _RolledBack((yield from operation()))
