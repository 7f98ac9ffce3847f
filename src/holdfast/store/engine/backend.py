"""What a store stands on: something that runs named statements, in transactions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, Protocol, TypeVar

from holdfast.domain.jobs.job import JobId
from holdfast.store.engine.operation import Operation, OperationFunction, P, Query

T = TypeVar("T")

#: The schema that this code writes and reads.
SCHEMA_VERSION = 1
#: The oldest code that may work on this schema.
OLDEST_CODE = 1


class Listener(Protocol):
    """Somebody who listens for rings."""

    @property
    def works(self) -> bool:
        """Whether rings arrive; where they do not, only polling finds new jobs."""
        ...

    @property
    def hears_all(self) -> bool:
        """Whether an enqueue in a caller's own transaction rings as well."""
        ...

    def close(self) -> None:
        """Stop listening; idempotent."""
        ...


class Backend(Protocol):
    """One database, shared by all threads of the process."""

    name: str

    def run(self, ask: Query, *, repeatable: bool = False, timeout: timedelta | None = None) -> list[Any]:
        """Run one statement in a transaction of its own and return its rows; *timeout* limits its time.

        *repeatable*: running it twice is harmless, so that it may be sent again when the
        connection broke before the answer came.
        """
        ...

    def look(self, ask: Query) -> list[Any]:
        """Read with one statement; no writer waits for it."""
        ...

    def write(self, flow: OperationFunction[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a flow in one transaction; all of it is kept, or nothing.

        When the connection breaks it runs again from its start, unless the transaction was
        committed: then only the answer to COMMIT was lost, and the result is returned.
        """
        ...

    def read(self, flow: OperationFunction[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a flow that only reads; all its statements see the same moment."""
        ...

    def draw_ids(self, count: int) -> list[JobId] | None:
        """Ids for *count* new jobs; None when the enqueue's own transaction draws them."""
        ...

    def run_on(self, connection: Any, flow: Operation[T]) -> T:
        """Run a flow on the caller's connection, in the caller's transaction."""
        ...

    async def arun_on(self, connection: Any, flow: Operation[T]) -> T:
        """The same on an async connection."""
        ...

    def transaction(self) -> AbstractContextManager[Any]:
        """A connection of its own, in a transaction: committed at the end, rolled back when something is raised."""
        ...

    def notify(self) -> None:
        """Wake workers that listen; a hint that may get lost. It neither waits nor fails."""
        ...

    def listen(self, heard: Callable[[], None]) -> Listener:
        """Call *heard*, from another thread, when somebody rings, and once when listening begins anew."""
        ...

    @property
    def tools(self) -> Any:
        """What can be done with the database as a whole: see :class:`holdfast.store.engine.database.Tools`."""
        ...

    def migrate(self) -> list[int]:
        """Bring the schema up to date and return the numbers of the migrations applied."""
        ...

    def close(self) -> None:
        """Close all connections; idempotent."""
        ...


class Timeouts:
    """How long a call to the database may take."""

    statement = timedelta(seconds=30)
    #: The client's own limit: a server that is gone ends no statement.
    call = timedelta(seconds=35)
    connect = timedelta(seconds=3)
    #: For renewals and claims: a worker must learn soon that its database is gone.
    brief = timedelta(seconds=5)
    migration = timedelta(hours=1)
