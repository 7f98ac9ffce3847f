"""Backends that change how another backend writes; they read in the same way."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdfast.domain.jobs.job import JobId
from holdfast.store.engine.backend import Backend
from holdfast.store.engine.changes import Changes
from holdfast.store.engine.operation import OperationFunction, P, Query, T, single


class BackendWrapper:
    """Forwards reads to a real backend. A subclass defines :meth:`write`.

    Methods that a wrapper cannot change are missing: connections, migrations, the caller's own transaction.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.name = backend.name

    def fetch(self, statement: Query) -> list[Any]:
        return self._backend.fetch(statement)

    def read(self, operation: OperationFunction[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._backend.read(operation, *args, **kwargs)

    def run(self, statement: Query, *, repeatable: bool = False, timeout: timedelta | None = None) -> list[Any]:  # noqa: ARG002 - the signature of a backend
        """Run one statement as an operation."""
        return self.write(single, statement)

    def write(self, operation: OperationFunction[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation in one transaction."""
        raise NotImplementedError

    def draw_ids(self, count: int) -> list[JobId] | None:
        return self._backend.draw_ids(count)

    def discard_ids(self) -> None:
        self._backend.discard_ids()

    def notify(self, changes: Changes) -> None:
        self._backend.notify(changes)
