"""Crash points: a fault before every statement, one after the other, until none is left.

A store on points counts its statements. Before the nth the fault strikes: the process is gone (``crash``: nothing
that it would do happens any more), the disk or the connection fails (``error``), the statement is done but its answer
is lost (``lost``, PostgreSQL), or somebody else acts at that very moment (``delay``).
"""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from functools import cached_property
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from holdfast.errors import HoldfastError
from holdfast.store import Store
from holdfast.store.postgres.backend import PostgresBackend
from holdfast.store.sqlite.backend import SqliteBackend
from tests.chaos.standing import Broken
from tests.support.backends import Database, SqliteDatabase


class Fault(StrEnum):
    """What happens at a point."""

    CRASH = "crash"
    ERROR = "error"
    LOST = "lost"
    DELAY = "delay"


class Crashed(BaseException):
    """The process is gone. Nothing that would have come after this happens."""


def nobody() -> None:
    """Acts in nobody's place."""


class Points:
    """The points of one run: counts them, and strikes at one."""

    def __init__(self, fault: Fault, at: int, *, meanwhile: Callable[[], None] = nobody, coarse: bool = False) -> None:
        self.fault = fault
        self.at = at
        #: Only the borders of PostgreSQL's transactions are points.
        self.coarse = coarse
        self.meanwhile = meanwhile
        self.passed = 0
        self.fired = False
        self.crashed = False
        self.before = ""

    def __call__(self, what: str, fail: Callable[[], BaseException]) -> bool:
        """Stand before *what*; *fail* makes the error that it would meet. True: do it, then let its answer be lost."""
        if self.crashed:
            raise Crashed
        self.passed += 1
        if self.passed != self.at or self.fired:
            return False
        self.fired, self.before = True, what
        match self.fault:
            case Fault.CRASH:
                self.crashed = True
                raise Crashed
            case Fault.ERROR:
                raise fail()
            case Fault.LOST:
                return True
            case Fault.DELAY:
                self.meanwhile()
        return False


# -- SQLite ----------------------------------------------------------------------------------


def _disk_error() -> sqlite3.Error:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    return error


class SqlitePoints(SqliteBackend):
    """A SQLite file with a point before every statement."""

    def __init__(self, *args: Any, points: Points | None = None, **options: Any) -> None:
        self.points = points
        self.connections: weakref.WeakSet[Any] = weakref.WeakSet()
        super().__init__(*args, **options)

    def connect(self) -> sqlite3.Connection:
        points, self.points = self.points, None  # a connection's own settings are no step of any operation
        try:
            connection = super().connect()
        finally:
            self.points = points
        assert isinstance(connection, _SqliteConnection)
        connection.backend = self
        self.connections.add(connection)
        return connection

    def stand_before(self, statement: str, connection: sqlite3.Connection) -> None:
        if self.points is None:
            return
        # A writer keeps everybody out until it commits: nobody can act inside its transaction.
        if self.points.fault is not Fault.DELAY or not connection.in_transaction:
            self.points(statement, _disk_error)

    def vanish(self) -> None:
        """What a killed process leaves: nothing that was not committed."""
        self.points = None
        for connection in list(self.connections):
            connection.backend = None
            connection.close()
        self._closed = True
        self._notifier.close()


class _SqliteConnection(sqlite3.Connection):
    backend: SqlitePoints | None = None

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        return self.cursor().execute(sql, *parameters)

    def executemany(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if self.backend is not None:
            self.backend.stand_before(sql, self)
        return super().executemany(sql, *parameters)

    def cursor(self, factory: Any = None) -> Any:
        return super().cursor(_SqliteCursor)


class _SqliteCursor(sqlite3.Cursor):
    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        backend = self.connection.backend
        if backend is not None:
            backend.stand_before(sql, self.connection)
        return super().execute(sql, *parameters)


SqlitePoints.connection_class = _SqliteConnection


# -- PostgreSQL ------------------------------------------------------------------------------


class PostgresPoints(PostgresBackend):
    """A PostgreSQL database with a point before every statement that a pooled connection sends."""

    def __init__(self, *args: Any, points: Points | None = None, **options: Any) -> None:
        self.points: Points | None = None  # none while it opens
        self.connections: weakref.WeakSet[Any] = weakref.WeakSet()
        super().__init__(*args, **options)
        self.points = points
        self._pool_options = {**self._pool_options, "cursor_factory": self._cursors}
        self.statements.cursor_class = self._cursors

    def connect(self, *, autocommit: bool = False) -> psycopg.Connection[Any]:
        connection = super().connect(autocommit=autocommit)
        connection.cursor_factory = self._cursors
        return connection

    def _make_connections(self) -> None:
        super()._make_connections()
        self.notify = lambda _changes: None  # from another thread it would make the count of points a matter of chance

    @cached_property
    def _cursors(self) -> type[psycopg.Cursor[Any]]:
        return type("PointedCursor", (_PostgresCursor,), {"backend": self})

    def vanish(self) -> None:
        self.points = None
        for connection in list(self.connections):
            connection.close()
        self.connections.clear()
        # The next process has drawn no ids: what a run asks for must not depend on the run before.
        self._ids = type(self._ids)(self._draw)


class _PostgresCursor(psycopg.Cursor[Any]):
    backend: PostgresPoints

    def execute(self, query: Any, *args: Any, **options: Any) -> Any:
        with self._point(query):
            return super().execute(query, *args, **options)

    @contextmanager
    def copy(self, statement: Any, *args: Any, **options: Any) -> Iterator[Any]:
        with self._point(statement), super().copy(statement, *args, **options) as copy:
            yield copy

    @contextmanager
    def _point(self, query: Any) -> Iterator[None]:
        backend, connection, points = self.backend, self.connection, self.backend.points
        if connection.cursor_factory is not type(self):  # a connection of the caller
            yield
            return
        backend.connections.add(connection)
        text = query.decode() if isinstance(query, bytes) else str(query)
        counts = points is not None and (points.crashed or not points.coarse or _is_border(connection, text, points))
        lose = counts and points(text, lambda: _broken(connection))
        yield
        if lose:
            raise _broken(connection)


def _is_border(connection: psycopg.Connection[Any], text: str, points: Points) -> bool:
    """PostgreSQL undoes a transaction as a whole: its begin stands for every crash in it, its end for every error."""
    if text.startswith("BEGIN"):
        return points.fault in (Fault.CRASH, Fault.DELAY)
    if text == "COMMIT":
        return points.fault in (Fault.ERROR, Fault.LOST)
    # What commits by itself may have been done before its answer was lost: that is more than an error before it.
    return points.fault is not Fault.ERROR and connection.info.transaction_status != TransactionStatus.INTRANS


def _broken(connection: psycopg.Connection[Any]) -> psycopg.Error:
    connection.pgconn.finish()  # broken, and not closed by its user
    return psycopg.OperationalError("server closed the connection unexpectedly")


# -- running ---------------------------------------------------------------------------------


def open_on_points(database: Database) -> Store:
    """A store of *database* as another process would have it; its backend takes points."""
    if isinstance(database, SqliteDatabase):
        return Store(SqlitePoints(database.path, durability="fast", clock=database.clock.now))
    return Store(PostgresPoints(database.url))


def strike(store: Store, points: Points, act: Callable[[Store], None]) -> None:
    """Let *act* run into its fault. Afterwards the process that ran it is gone."""
    try:
        act(store)
    except Crashed:
        assert points.crashed
    except (HoldfastError, psycopg.Error) as error:
        if points.fault is Fault.LOST and points.before == "COMMIT":
            raise Broken("R33", f"a COMMIT without an answer was sent again: {error}") from error
        # Only a fault is an excuse: without one the operation must succeed.
        if not points.fired or not isinstance(error, HoldfastError):
            raise
    finally:
        with suppress(Exception):
            store.backend.vanish()
