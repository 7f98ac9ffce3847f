"""Connections to PostgreSQL: their options, their pool with a time limit on every call, their errors."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import psycopg
from psycopg import errors

from holdfast.errors import InvalidInput, JobLocked, SchemaMissing, StoreFull, StoreReadOnly, StoreUnavailable
from holdfast.store.engine.backend import Timeouts

#: Idle connections are closed after this time.
IDLE_TIMEOUT_S = 60.0
#: The interval at which running calls are checked.
POLL_INTERVAL_S = 0.5

Connection = psycopg.Connection[Any]
#: Plan types that prepared statements never use.
_DISABLED_PLANS = ("enable_seqscan", "enable_bitmapscan", "enable_sort", "enable_hashjoin", "enable_mergejoin")
#: A server refuses writes for a short time around its promotion.
_TEMPORARY = (errors.DeadlockDetected, errors.SerializationFailure, errors.ReadOnlySqlTransaction)


#: All connections of this process.
_OPEN: weakref.WeakSet[Connection] = weakref.WeakSet()


def connect(url: str, **options: Any) -> Connection:
    """Open a connection, of which a forked child keeps no copy."""
    connection = psycopg.connect(url, **options)
    _OPEN.add(connection)
    return connection


def _cut_inherited() -> None:
    """In a forked child: replace the sockets, which the parent uses. The end of a session would be the parent's end.

    Without the copies here, the server notices when the parent dies.
    """
    nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for connection in list(_OPEN):
        with suppress(OSError, psycopg.Error):
            os.dup2(nowhere, connection.fileno(), inheritable=False)
    os.close(nowhere)


os.register_at_fork(after_in_child=_cut_inherited)


class Pool:
    """Provides connections, opened in the caller's thread: an error comes at once, with its reason.

    After one broken connection, all idle ones are closed too.
    """

    def __init__(self, url: str, options: dict[str, Any], *, size: int, patience: float) -> None:
        self._url = url
        self._options = options
        self._size = size
        self._patience = patience
        self._free = threading.BoundedSemaphore(size)
        self._idle: deque[tuple[Connection, float]] = deque()
        self._calls = Calls()
        self._closed = False

    @contextmanager
    def connection(self, *, limit: float) -> Iterator[Connection]:
        """A connection for one call, which is aborted after *limit* seconds."""
        if not self._free.acquire(timeout=self._patience):
            raise StoreUnavailable(
                f"all {self._size} connections to the database are in use", hint="Run fewer slots in one process."
            )
        try:
            connection = self._take()
            try:
                with self._calls.limited(connection, limit):
                    yield connection
            finally:
                self._put(connection)
        finally:
            self._free.release()

    def close(self) -> None:
        """Close idle connections; those in use are closed when they are returned."""
        self._closed = True
        self._calls.close()
        self._close_idle()

    def _take(self) -> Connection:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        with suppress(IndexError):
            while True:
                connection, _ = self._idle.pop()
                if not connection.closed and _is_silent(connection):
                    return connection
                connection.close()
        return connect(self._url, **self._options)

    def _put(self, connection: Connection) -> None:
        usable = not connection.closed and connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        if usable and not self._closed:
            self._idle.append((connection, time.monotonic()))
            self._close_idle(longer_than=IDLE_TIMEOUT_S)
            return
        connection.close()
        self._close_idle()

    def _close_idle(self, *, longer_than: float = 0.0) -> None:
        with suppress(IndexError):
            while self._idle[0][1] <= time.monotonic() - longer_than:
                self._idle.popleft()[0].close()


def _is_silent(connection: Connection) -> bool:
    """Whether an idle connection has no input: any input announces its end."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return not poll.poll(0)


class Calls:
    """The running calls. A call past its limit is aborted, and with it those that have waited half as long."""

    def __init__(self) -> None:
        self._running: dict[int, tuple[Connection, float, float]] = {}
        self._lock = threading.Lock()
        self._has_calls = threading.Event()
        self._closed = threading.Event()
        self._watch: threading.Thread | None = None

    @contextmanager
    def limited(self, connection: Connection, limit: float) -> Iterator[None]:
        if self._watch is None:
            self._start()
        self._running[id(connection)] = (connection, time.monotonic(), limit)
        if not self._has_calls.is_set():
            self._has_calls.set()
        try:
            yield
        finally:
            del self._running[id(connection)]

    def close(self) -> None:
        self._closed.set()
        self._has_calls.set()

    def _start(self) -> None:
        with self._lock:
            if self._watch is None:
                self._watch = threading.Thread(target=self._work, name="holdfast-calls", daemon=True)
                self._watch.start()

    def _work(self) -> None:
        while not self._closed.is_set():
            self._has_calls.clear()
            if not self._running:
                self._has_calls.wait()
            self._closed.wait(POLL_INTERVAL_S)
            self.abort_late(time.monotonic())

    def abort_late(self, now: float) -> None:
        """Abort calls past their limit, and those that have waited half as long: the peer is dead for all of them."""
        calls = list(self._running.values())
        late = [limit for _, since, limit in calls if now - since > limit]
        for connection, since, _ in calls:
            if late and now - since > min(late) / 2:
                _hang_up(connection)


def _hang_up(connection: Connection) -> None:
    """Wake the thread that waits for this connection; it gets a connection error."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as peer:
        peer.shutdown(socket.SHUT_RDWR)


def connect_options(url: str) -> dict[str, Any]:
    """Client-side limits against dead peers; options in the URL take precedence."""
    options: dict[str, Any] = {
        "connect_timeout": int(Timeouts.connect.total_seconds()),
        "tcp_user_timeout": int(Timeouts.statement.total_seconds() * 1000),
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "application_name": "holdfast",
        "autocommit": True,
    }
    in_url = psycopg.conninfo.conninfo_to_dict(url)
    return {name: value for name, value in options.items() if name not in in_url}


def prepared_options(url: str, patience: timedelta = Timeouts.statement) -> dict[str, Any]:
    """Options for prepared statements, which are planned once, for tables of any later size.

    A plan from the time when a table was empty would read, hash or sort a full table. So such plans
    are disabled: an index yields all rows, in its order. Each statement then has only one good plan,
    and a generic plan saves planning at each call.
    """
    in_url = psycopg.conninfo.conninfo_to_dict(url).get("options") or ""
    settings = {
        "plan_cache_mode": "force_generic_plan",
        "jit": "off",
        "timezone": "UTC",
        "statement_timeout": int(patience.total_seconds() * 1000),
        **dict.fromkeys(_DISABLED_PLANS, "off"),
    }
    options = " ".join([str(in_url), *(f"-c {name}={value}" for name, value in settings.items())])
    return {**connect_options(url), "options": options.strip(), "prepare_threshold": 2}


def is_readable(url: str) -> bool:
    """Whether libpq understands *url*, with at most one ``@``: a second one belongs to a password."""
    try:
        psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        return False
    return url.partition("?")[0].count("@") <= 1


def is_temporary(error: BaseException) -> bool:
    """Whether the same work may succeed on another connection."""
    if isinstance(error, _TEMPORARY):
        return True
    if isinstance(
        error, errors.LockNotAvailable | errors.QueryCanceled | errors.DiskFull | errors.ProgramLimitExceeded
    ):
        return False
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)


def translate(error: BaseException) -> BaseException:
    """The error to raise in place of the driver's error."""
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    match error:
        case errors.LockNotAvailable():
            return JobLocked(f"a job's row is locked by another transaction: {text}")
        case errors.DiskFull():
            return StoreFull(f"the disk of the database is full: {text}")
        case errors.ReadOnlySqlTransaction() | errors.InsufficientPrivilege():
            return StoreReadOnly(f"the database cannot be written: {text}")
        case errors.UndefinedTable() | errors.InvalidSchemaName() | errors.UndefinedFunction():
            return SchemaMissing(f"the schema is missing or older than this code: {text}")
        case psycopg.DataError():
            return InvalidInput(f"the database cannot keep this: {text}")
        case psycopg.OperationalError() | psycopg.InterfaceError():
            return StoreUnavailable(f"the database does not answer: {text}")
        case _:
            return error


@contextmanager
def translated() -> Iterator[None]:
    """Raise Holdfast's errors in place of the driver's."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error) from error
