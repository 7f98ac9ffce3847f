"""Backends that change how another backend writes, such as several calls in one transaction."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from holdfast.domain.jobs.job import JobId
from holdfast.errors import StoreUnavailable
from holdfast.store.engine.backend import Backend
from holdfast.store.engine.changes import NO_CHANGES, Change, Changes, Notification
from holdfast.store.engine.operation import OperationFunction, P, Query, T, single

#: A longer transaction is rolled back: on SQLite all other writers wait for it, workers with their heartbeats too.
MAX_TRANSACTION = timedelta(seconds=15)


class BackendWrapper:
    """Forwards reads to a real backend. A subclass defines :meth:`write`.

    Methods that a wrapper cannot change are missing: connections, migrations, the caller's own transaction.
    """

    #: All calls are part of one transaction: no other thread may add to it.
    single_writer = True

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

    def draw_ids(self, count: int) -> Sequence[JobId] | None:
        return self._backend.draw_ids(count)

    def discard_ids(self) -> None:
        self._backend.discard_ids()

    def notification(self, changes: Changes) -> Notification:
        return Notification(None, partial(self.notify, changes))

    def notify(self, changes: Changes) -> None:
        self._backend.notify(changes)


class SingleTransactionBackend(BackendWrapper):
    """Runs every call on *connection*, in the open transaction of the caller. Each call sees the writes before it.

    An operation that fails leaves nothing in the transaction. Workers are woken after the commit.
    """

    def __init__(self, backend: Backend, connection: Any) -> None:
        super().__init__(backend)
        self._connection = connection
        self._began = time.monotonic()
        #: The changes that workers have to be notified of after the commit.
        self.wakes: Changes = NO_CHANGES

    def fetch(self, statement: Query) -> list[Any]:
        return self.write(single, statement)

    def read(self, operation: OperationFunction[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.write(operation, *args, **kwargs)

    def write(self, operation: OperationFunction[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        if time.monotonic() - self._began > MAX_TRANSACTION.total_seconds():
            raise StoreUnavailable(
                f"the request took more than {MAX_TRANSACTION.total_seconds():g} s; nothing was changed",
                hint="Select fewer jobs, or leave out the dry run or the Idempotency-Key.",
            )
        return self._backend.run_on(self._connection, operation(*args, **kwargs))

    def notify(self, changes: Changes) -> None:
        # The commit comes later: jobs that are due after these may have begun by then.
        if changes:
            self.wakes |= changes | {Change.EARLIER}
