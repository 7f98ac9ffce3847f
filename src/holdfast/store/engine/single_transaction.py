"""Several calls in one transaction: a backend on one connection, whose caller commits."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from holdfast.errors import StoreUnavailable
from holdfast.store.engine.backend import Backend
from holdfast.store.engine.changes import NO_CHANGES, Changes
from holdfast.store.engine.operation import OperationFunction, P, Query, T, single
from holdfast.store.engine.wrapper import BackendWrapper

#: A longer transaction is rolled back: on SQLite all other writers wait for it, workers with their heartbeats too.
MAX_TRANSACTION = timedelta(seconds=15)


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
        self.wakes |= changes
