"""The interface of a database backend, which runs named statements in transactions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, Protocol

from msgspec import Struct

from holdfast.domain.jobs.job import JobId
from holdfast.errors import StoreUnavailable
from holdfast.store.engine.changes import NO_CHANGES, Changes, Notification
from holdfast.store.engine.operation import Operation, OperationFunction, P, Query, T

#: The schema that this code writes and reads.
SCHEMA_VERSION = 1
#: The oldest code that may work on this schema.
OLDEST_CODE = 1


class StoreClosed(StoreUnavailable):
    """The connections were closed within this process: no later call succeeds."""


class IdsTaken(StoreUnavailable):
    """New ids belong to jobs that exist: the database has lost ids that it gave out before; nothing was written."""

    hint = "Was it restored from a backup, or did a standby take over that lagged behind? Try again."


class PlanRecorded(StoreUnavailable):
    """A plan to fire is in the ledger already; nothing was written."""


class Listener(Protocol):
    """Receives the notifications of other processes."""

    @property
    def works(self) -> bool:
        """Whether notifications arrive. Otherwise only polling discovers new jobs."""

    @property
    def hears_all(self) -> bool:
        """Whether an enqueue in a caller's own transaction notifies as well."""

    def close(self) -> None:
        """Stop listening; idempotent."""


class PoolStats(Struct, frozen=True):
    """Connections by state (in_use, idle, abandoned), their limit, and the waits for one since the start."""

    connections: dict[str, int] = {}
    limit: int = 0
    waits: int = 0
    wait_seconds: float = 0.0

    def __add__(self, other: PoolStats) -> PoolStats:
        states = {state: count + other.connections[state] for state, count in self.connections.items()}
        totals = (getattr(self, name) + getattr(other, name) for name in ("limit", "waits", "wait_seconds"))
        return PoolStats(states, *totals)


class ConnectionUse(Struct, frozen=True):
    """The connections that are in use, and their limit: of the ``server``, the ``database`` or the ``user``."""

    scope: str
    used: int
    limit: int


class Backend(Protocol):
    """One database, shared by all threads of the process."""

    name: str
    #: Whether only one transaction at a time can write.
    single_writer: bool
    #: The numbers of the migrations that were applied when it was opened.
    migrated: list[int]
    #: Whether released code, or this, made the store. Otherwise it can only be copied.
    fits: bool

    def run(self, statement: Query, *, repeatable: bool = False, timeout: timedelta | None = None) -> list[Any]:
        """Run one statement in a transaction of its own and return its rows; *timeout* limits its time.

        *repeatable*: a second run is harmless, so the statement is sent again when the
        connection breaks before the answer arrives.
        """

    def fetch(self, statement: Query) -> list[Any]:
        """Read with one statement; no writer waits for it."""

    def write(self, operation: OperationFunction[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation in one transaction: all of it is kept, or nothing.

        When the connection breaks, it runs again from its start, unless the transaction was
        committed: then only the answer to COMMIT was lost, and the result is returned.
        """

    def read(self, operation: OperationFunction[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation that only reads; all its statements see the same snapshot."""

    def draw_ids(self, count: int) -> Sequence[JobId] | None:
        """Consecutive ids for *count* new jobs; None if the transaction of the enqueue draws them."""

    def discard_ids(self) -> None:
        """Discard ids that were drawn ahead, and draw past those that exist: some were given out twice."""

    def run_on(self, connection: Any, operation: Operation[T], changes: Changes = NO_CHANGES) -> T:
        """Run an operation on the caller's connection, in the caller's transaction. Its commit notifies of *changes*.

        SQLite sends no notification then: nothing observes the caller's commit.
        """

    async def arun_on(self, connection: Any, operation: Operation[T], changes: Changes = NO_CHANGES) -> T:
        """Run an operation on the caller's async connection, in the caller's transaction."""

    def transaction(self, *, limit: timedelta | None = None) -> AbstractContextManager[Any]:
        """A new connection in a transaction: committed at the end, rolled back on an exception.

        *limit*: the server ends a statement, and a client that sends none, after this time.
        """

    def guard(self, connection: Any) -> AbstractContextManager[None]:
        """Keep code of the user from ending the transaction of *connection*, which :meth:`transaction` has opened.

        Raises:
            NoTransaction: The code tried to commit or to roll back, or did.
        """

    def notification(self, changes: Changes) -> Notification:
        """Notify of *changes* with the commit of a statement, or after it."""

    def notify(self, changes: Changes) -> None:
        """Notify workers that listen; a hint that may get lost. It neither waits nor fails."""

    def listen(self, wake: Callable[[Changes], None]) -> Listener:
        """Call *wake*, from another thread, with the changes of each notification.

        Whenever listening starts again, anything may have changed.
        """

    @property
    def tools(self) -> Any:
        """Work on the whole database: see :class:`holdfast.store.engine.database.DatabaseTools`."""

    @property
    def reserved(self) -> Backend:
        """The same database on connections that no handler can use up: for heartbeat and settler."""

    def since_lock_wait(self) -> float:
        """Seconds since a transaction had to wait for the lock of the whole store, if there is one."""

    def pool_stats(self) -> PoolStats:
        """The connections of this process; empty where they are not counted."""

    def migrate(self) -> list[int]:
        """Bring the schema up to date and return the numbers of the migrations applied."""

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""

    def close(self) -> None:
        """Close all connections; idempotent."""


class Timeouts:
    """Time limits of calls to the database."""

    statement = timedelta(seconds=30)
    #: The client's own limit: a dead server ends no statement.
    call = timedelta(seconds=35)
    connect = timedelta(seconds=3)
    #: For renewals and claims: a worker must learn soon that its database is gone.
    brief = timedelta(seconds=5)
