"""The SQLite backend: one file, a connection that writes, and connections that read."""

from __future__ import annotations

import os
import sqlite3
import time
import weakref
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.domain.jobs.job import JobId
from holdfast.errors import NO_STORE, NoTransaction, OtherDatabase, SchemaMissing, StoreUnavailable
from holdfast.store.engine.backend import PoolStats, StoreClosed
from holdfast.store.engine.changes import NO_CHANGES, Changes
from holdfast.store.engine.forks import ForkSafe, survive_forks
from holdfast.store.engine.interrupts import uninterrupted
from holdfast.store.engine.operation import Operation, OperationFunction, P, Query, T, run_operation, single
from holdfast.store.sqlite.caller_connections import autocommits, keep_transaction, lock_for_caller, plain_texts
from holdfast.store.sqlite.checkpoints import Checkpoints
from holdfast.store.sqlite.connections import ForkGate, Readers, abandon, refuse_inherited, switch_to_wal
from holdfast.store.sqlite.files import create_private, refuse_network_file_system, size_of, translated
from holdfast.store.sqlite.notifier import SqliteListener, SqliteNotifier
from holdfast.store.sqlite.schema import holds_store, migrate, open_schema
from holdfast.store.sqlite.statements import performer, plain_cursor
from holdfast.store.sqlite.writer import Performer, Writer
from holdfast.store.sqlite.writer_queue import WriterQueue

if TYPE_CHECKING:
    from holdfast.store.sqlite.database import SqliteDatabase

#: Steps of SQLite's machine between two checks of the time limit of a read.
STEPS_PER_CHECK = 10_000
NOT_SQLITE3 = "this store is a SQLite file, and {} is not a sqlite3 connection"


def _close_dropped(checkpoints: Checkpoints, *dropped: MutableSequence[sqlite3.Connection]) -> None:
    """Close the connections of an application that was dropped; no thread uses them any more."""
    with suppress(OSError, sqlite3.Error), checkpoints.lock(wait=False):
        for connections in dropped:
            while connections:
                connections.pop().close()


def utc_now() -> datetime:
    return datetime.now(UTC)


class SqliteBackend(ForkSafe):
    """One SQLite file, shared by all threads of this process and by other processes."""

    name, single_writer = "sqlite", True
    #: The class of connections; tests replace it.
    connection_class, guard = sqlite3.Connection, staticmethod(keep_transaction)

    def __init__(
        self,
        path: str | Path,
        *,
        durability: str = "full",
        clock: Callable[[], datetime] = utc_now,
        busy_timeout: float = 30.0,
        create: bool = True,
        may_migrate: bool = False,
        any_schema: bool = False,
        patience: timedelta | None = None,
    ) -> None:
        self.path = Path(path).expanduser().resolve()
        self.clock = clock
        self._synchronous = "NORMAL" if durability == "fast" else "FULL"
        self._busy_timeout = busy_timeout
        self._patience = None if patience is None else patience.total_seconds()
        self._closed = self._forkable = False
        self._checkpoints = Checkpoints(self.path)
        self._make_connections()
        refuse_network_file_system(self.path)
        survive_forks(self)
        with self._gate:
            if create:
                create_private(self.path)
            elif not holds_store(self.path):
                raise SchemaMissing(f"there is no store at {self.path}", hint=NO_STORE)
            connection = self.connect()
            try:
                self._inode = self.path.stat().st_ino
                with translated(self.path):
                    opened = open_schema(connection, may_migrate=may_migrate, any_schema=any_schema)
                self.installation, self.migrated, self.fits = opened.installation, opened.applied, opened.fits
            except BaseException:
                connection.close()
                raise
            self._checkpoints.open_log.opened()
            self._readers.add(connection)  # many processes only read, and a connection reads the whole schema

    def _make_connections(self) -> None:
        self._gate = ForkGate()
        self._notifier = SqliteNotifier(self.path)
        self.notification, self.notify = self._notifier.notification, self._notifier.notify
        self._readers = Readers(self._connect_reader)
        self._writer = Writer(
            self._connect_writer,
            timeout=self._busy_timeout,
            performer=self._performer,
            check=self._refuse_closed,
            begun=self._checkpoints.begun,
            committed=self._after_commit,
            queue=WriterQueue(str(self.path)),
            path=self.path,
        )
        dropped = (self._checkpoints, self._readers.idle, self._writer.opened)
        self._finalizer = weakref.finalize(self, _close_dropped, *dropped)
        self._finalizer.atexit = False

    @uninterrupted
    def run(self, statement: Query, *, repeatable: bool = False, timeout: timedelta | None = None) -> list[Any]:
        del repeatable  # a local commit always answers
        limit = None if timeout is None else min(self._busy_timeout, timeout.total_seconds())
        with self._gate:
            return self._writer.write(lambda: single(statement), timeout=limit)

    @uninterrupted
    def fetch(self, statement: Query) -> list[Any]:
        with self.reader() as connection, translated(self.path):
            return performer(connection, self.clock())(statement)

    @uninterrupted
    def write(self, operation: OperationFunction[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._gate:
            return self._writer.write(lambda: operation(*args, **kwargs))

    @uninterrupted
    def read(self, operation: OperationFunction[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self.reader() as connection, translated(self.path):
            connection.execute("BEGIN")
            try:
                return run_operation(operation(*args, **kwargs), self._performer(connection))
            finally:
                connection.execute("COMMIT")

    def draw_ids(self, count: int) -> Sequence[JobId] | None:  # noqa: ARG002 - the enqueue's transaction draws them
        return None

    def discard_ids(self) -> None:
        """Do nothing: no ids are drawn ahead."""

    def run_on(self, connection: Any, operation: Operation[T], changes: Changes = NO_CHANGES) -> T:  # noqa: ARG002 - see Backend
        if not isinstance(connection, sqlite3.Connection):
            raise OtherDatabase(NOT_SQLITE3.format(type(connection).__name__))
        if not connection.in_transaction:
            self._check_installation(connection)
            if autocommits(connection):
                raise NoTransaction("the connection is in autocommit mode and no transaction is open")
        with translated(self.path), plain_texts(connection):
            lock_for_caller(connection)
            self._check_installation(connection)
            self._checkpoints.disable(connection)
            return self._run_in_savepoint(connection, operation)

    def _run_in_savepoint(self, connection: sqlite3.Connection, operation: Operation[T]) -> T:
        """Run an operation; if it fails, it leaves nothing in the caller's transaction."""
        connection.execute("SAVEPOINT holdfast")
        try:
            result = run_operation(operation, self._performer(connection))
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK TO holdfast")
                connection.execute("RELEASE holdfast")
            raise
        connection.execute("RELEASE holdfast")
        return result

    async def arun_on(self, connection: Any, operation: Operation[T], changes: Changes = NO_CHANGES) -> T:
        """Run on a sqlite3 connection: it has no async form, and a local file answers at once."""
        return self.run_on(connection, operation, changes)

    @contextmanager
    def transaction(self, *, limit: timedelta | None = None) -> Iterator[sqlite3.Connection]:  # noqa: ARG002 - the busy timeout limits every wait
        with self.own_connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            finally:
                with suppress(sqlite3.ProgrammingError):  # the caller has closed it
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")

    def listen(self, wake: Callable[[Changes], None]) -> SqliteListener:
        return SqliteListener(self._notifier, wake=wake)

    @property
    def reserved(self) -> SqliteBackend:
        return self

    def since_lock_wait(self) -> float:
        return time.monotonic() - self._writer.waited_at

    def pool_stats(self) -> PoolStats:
        return PoolStats()

    @uninterrupted
    def migrate(self) -> list[int]:
        with self._gate, self._writer.exclusive(), translated(self.path), closing(self.connect()) as connection:
            return migrate(connection)

    @cached_property
    def tools(self) -> SqliteDatabase:
        from holdfast.store.sqlite.database import SqliteDatabase

        return SqliteDatabase(self)

    def checkpoint(self, connection: sqlite3.Connection) -> tuple[int, int] | None:
        """Copy the log: its pages and how many are copied, or None while another process does it."""
        return self._checkpoints.progress(connection)

    @contextmanager
    def checkpointing(self) -> Iterator[None]:
        """Keep other threads from writing, and other processes from checkpoints."""
        with self._gate.guest(), self._writer.exclusive(), self._checkpoints.lock(wait=True):
            yield

    @property
    def closed(self) -> bool:
        return self._closed

    @uninterrupted
    def close(self) -> None:
        with self._gate, self._writer.exclusive(), self._checkpoints.lock(wait=True):
            if self._writer.connection is not None and not self._closed:
                self._checkpoints.before_close(self._writer.connection)
            self._closed = True
            self._notifier.close()
            self._disconnect()

    def _disconnect(self) -> None:
        self._readers.close()
        self._writer.close()
        self._checkpoints.open_log.closed()

    def before_fork(self) -> None:
        """Close all connections, unless one stays in use."""
        self._forkable = self._gate.shut()
        if self._forkable:
            with self._checkpoints.lock(wait=False), suppress(sqlite3.Error):
                self._disconnect()

    def after_fork_in_parent(self) -> None:
        self._forkable = False
        self._gate.open()

    def after_fork_in_child(self) -> None:
        """Begin anew: no thread that used the connections or held the locks exists here."""
        self._finalizer.detach()
        if not self._forkable:
            abandon(str(self.path), self._readers, self._writer)
            self._writer.queue.close()
            self._checkpoints.open_log.closed()
        self._make_connections()

    @contextmanager
    def own_connection(self) -> Iterator[sqlite3.Connection]:
        """A connection of the caller's own, for work that may last."""
        with self._gate.guest(), translated(self.path), closing(self.connect()) as connection:
            yield connection

    def connect(self) -> sqlite3.Connection:
        """A new connection, outside a transaction."""
        refuse_inherited(str(self.path))
        if not self._checkpoints.open_log.is_present():  # SQLite would begin a new log beside the open one
            raise self._checkpoints.open_log.deleted()
        with translated(self.path):
            connection = sqlite3.connect(
                self.path,
                timeout=self._busy_timeout,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
                factory=self.connection_class,
            )
            try:
                if not size_of(self._checkpoints.database):  # later it takes a VACUUM
                    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
                switch_to_wal(connection, str(self.path), timeout=self._busy_timeout)
                connection.execute(f"PRAGMA synchronous = {self._synchronous}")
                connection.execute("PRAGMA mmap_size = 0")
                self._checkpoints.configure(connection)
            except BaseException:
                connection.close()
                raise
            return connection

    def _connect_writer(self) -> sqlite3.Connection:
        self._checkpoints.opened()
        return self._connect_reader()

    def _connect_reader(self) -> sqlite3.Connection:
        """A connection that stays open until the store closes or forks."""
        connection = self.connect()
        self._checkpoints.open_log.opened()
        return connection

    @contextmanager
    def reader(self) -> Iterator[sqlite3.Connection]:
        self._refuse_closed()
        with self._gate:
            with self._readers.connection() as connection:
                if self._patience is not None:
                    until = time.monotonic() + self._patience
                    connection.set_progress_handler(lambda: time.monotonic() > until, STEPS_PER_CHECK)
                yield connection
            if self._closed:
                self._readers.close()

    def _performer(self, connection: sqlite3.Connection) -> Performer:
        return performer(connection, self.clock())

    def _after_commit(self, connection: sqlite3.Connection) -> None:
        if not self._closed:
            self._checkpoints.after_commit(connection, self._writer.queue)

    def _refuse_closed(self) -> None:
        """Refuse a closed store, and a file that was deleted: its writes would be lost, its rows are outdated."""
        if self._closed:
            raise StoreClosed("the store is closed")
        try:
            inode = os.stat(self._checkpoints.database).st_ino  # noqa: PTH116 - before every statement, and twice as fast
        except OSError:
            inode = None
        if inode != self._inode:
            hint = "Restart this process: it has the old file open."
            raise StoreUnavailable(f"{self.path} was deleted or replaced while it was open", hint=hint)

    def _check_installation(self, connection: sqlite3.Connection) -> None:
        try:
            (installation,) = plain_cursor(connection).execute("SELECT installation FROM holdfast_meta").fetchone()
        except (sqlite3.Error, TypeError):
            installation = None
        if installation not in (self.installation, self.installation.encode()):
            raise OtherDatabase("the connection does not lead to the database of this app", url=str(self.path))
