"""Connections to PostgreSQL: their options and their errors."""

from __future__ import annotations

import os
import re
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import psycopg
from psycopg import errors
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus

from holdfast.errors import (
    FormerPrimary,
    HoldfastError,
    InvalidInput,
    JobLocked,
    PrivilegeMissing,
    SchemaMissing,
    ServerReadOnly,
    StatementTimeout,
    StoreBusy,
    StoreFull,
    StoreUnavailable,
)
from holdfast.store.engine.backend import IdsTaken, PlanRecorded, Timeouts
from holdfast.store.engine.forks import cut_in_children
from holdfast.store.engine.interrupts import deliver, waits_in_windows

Connection = psycopg.Connection[Any]
#: Plan types that prepared statements never use.
DISABLED_PLANS = ("enable_seqscan", "enable_bitmapscan", "enable_sort", "enable_hashjoin", "enable_mergejoin")
#: The settings of sessions with prepared statements. These are planned once, for tables of any later size: a plan from
#: the time when a table was empty would read, hash or sort a full table. So such plans are disabled: an index yields
#: all rows, in its order. Each statement then has only one good plan, and a generic plan saves planning at each call.
#: The other settings are those that our statements need, whatever a role or a database has.
SESSION_SETTINGS = {
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
    **dict.fromkeys(DISABLED_PLANS, "off"),
    "timezone": "UTC",
    "array_nulls": "on",
    "default_transaction_isolation": "read committed",
    "lock_timeout": "0",
    "transaction_timeout": "0",
}
SET_SETTINGS = """
SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) AS settings (name, value)
WHERE current_setting(name, true) IS NOT NULL
"""
_NO_DATABASE = re.compile(r'FATAL:  database "(.+)" does not exist')
#: The server has rolled the transaction back because of another one.
_CONFLICTS = (errors.DeadlockDetected, errors.SerializationFailure)
#: The server has ended the session because its transaction took too long: this process was stopped for a while.
_TIMED_OUT = (errors.IdleInTransactionSessionTimeout, errors.TransactionTimeout)
#: A server refuses writes for a short time around its promotion.
_TEMPORARY = (*_CONFLICTS, *_TIMED_OUT, errors.ReadOnlySqlTransaction)
#: The ids of new jobs. Which of them a statement violates first is up to its plan.
_JOB_IDS = ("job_pkey", "live_pkey")


#: For calls with a limit of their own; libpq takes no less.
SHORT_CONNECT = timedelta(seconds=2)


class FormerPrimaryError(psycopg.OperationalError):
    """Only a server is reachable that was the primary before a failover which this process has seen."""


#: All connections of this process, and when they were opened, by the monotonic clock.
_OPEN: weakref.WeakKeyDictionary[Connection, float] = weakref.WeakKeyDictionary()


class _Connection(psycopg.Connection[Any]):
    """Delivers interrupts while the main thread waits for the server."""

    def wait(self, gen: PQGen[Any], *args: Any, **options: Any) -> Any:
        return super().wait(_in_windows(gen) if waits_in_windows() else gen, *args, **options)


def _in_windows(work: PQGen[Any]) -> PQGen[Any]:
    """The same work; the driver resumes it at least ten times a second while it waits."""
    try:
        request = next(work)
        while True:
            ready = yield request
            if not ready:
                deliver()
            request = work.send(ready)
    except StopIteration as end:
        return end.value


def connect(url: str, **options: Any) -> Connection:
    """Open a connection, of which a forked child keeps no copy."""
    connection = _Connection.connect(url, **options)
    _OPEN[connection] = time.monotonic()
    return connection


def opened_at(connection: Connection) -> float:
    """When a connection was opened, by the monotonic clock."""
    return _OPEN[connection]


def _cut_inherited() -> None:
    """In a forked child: replace the sockets, which the parent uses. The end of a session would be the parent's end.

    Without the copies here, the server notices when the parent dies.
    """
    nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for connection in list(_OPEN):
        with suppress(OSError, psycopg.Error):
            os.dup2(nowhere, connection.fileno(), inheritable=False)
    os.close(nowhere)


cut_in_children(_cut_inherited)


def connect_options(url: str, *, limit: timedelta | None = None) -> dict[str, Any]:
    """Client-side limits against dead peers; options in the URL take precedence. *limit* is that of a whole call."""
    options: dict[str, Any] = {
        "connect_timeout": int((Timeouts.connect if limit is None else SHORT_CONNECT).total_seconds()),
        "tcp_user_timeout": int(Timeouts.statement.total_seconds() * 1000),
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "application_name": "holdfast",
        "client_encoding": "utf8",
        "autocommit": True,
    }
    in_url = psycopg.conninfo.conninfo_to_dict(url)
    return {name: value for name, value in options.items() if name not in in_url}


def begin_session(connection: Connection, patience: timedelta) -> None:
    """Make the settings of a new session, in one round trip. *patience* limits its statements.

    They are no startup options: PgBouncer ignores these, and the settings of a role or a database would apply.
    A setting that the server does not know is left out.
    """
    settings = {**SESSION_SETTINGS, "statement_timeout": str(int(patience.total_seconds() * 1000))}
    try:
        psycopg.Cursor(connection).execute(SET_SETTINGS, (list(settings), list(settings.values())), prepare=False)
    except BaseException:
        connection.close()
        raise


def is_readable(url: str) -> bool:
    """Whether libpq understands *url*, with at most one ``@``: a second one belongs to a password."""
    try:
        psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        return False
    return url.partition("?")[0].count("@") <= 1


def is_conflict(error: BaseException) -> bool:
    """Whether the work was certainly rolled back, and may succeed when it runs again."""
    return isinstance(error, _CONFLICTS)


def is_temporary(error: BaseException) -> bool:
    """Whether the same work may succeed on another connection."""
    if isinstance(error, _TEMPORARY):
        return True
    if isinstance(
        error, errors.LockNotAvailable | errors.QueryCanceled | errors.DiskFull | errors.ProgramLimitExceeded
    ):
        return False
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)


#: Holdfast's error for an error of the driver, and the beginning of its text. The first match counts.
_TRANSLATIONS: tuple[tuple[tuple[type[BaseException], ...], type[HoldfastError], str], ...] = (
    ((errors.LockNotAvailable,), JobLocked, "another transaction holds a lock on a job or a key"),
    (_CONFLICTS, StoreBusy, "another transaction changed the same rows"),
    ((errors.QueryCanceled,), StatementTimeout, "a statement took too long and was cancelled"),
    ((errors.DiskFull,), StoreFull, "the disk of the database is full"),
    ((errors.ReadOnlySqlTransaction,), ServerReadOnly, "the database refuses writes"),
    ((errors.InsufficientPrivilege,), PrivilegeMissing, "the database user lacks a privilege"),
    (
        (errors.UndefinedTable, errors.InvalidSchemaName, errors.UndefinedFunction),
        SchemaMissing,
        "the schema is missing or older than this code",
    ),
    ((psycopg.DataError,), InvalidInput, "the database cannot store this value"),
    ((FormerPrimaryError,), FormerPrimary, "this server is no longer the primary of the store"),
    ((psycopg.OperationalError, psycopg.InterfaceError, *_TIMED_OUT), StoreUnavailable, "the database does not answer"),
)


def translate(error: BaseException) -> BaseException:
    """The error to raise in place of the driver's error."""
    if isinstance(error, errors.UniqueViolation) and error.diag.constraint_name in _JOB_IDS:
        return IdsTaken(f"a job's id is taken: {error.diag.message_detail}")
    if isinstance(error, errors.UniqueViolation) and error.diag.constraint_name == "plan_pkey":
        return PlanRecorded(f"a plan is recorded already: {error.diag.message_detail}")
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, psycopg.OperationalError) and (name := _NO_DATABASE.search(str(error))):
        hint = f"Create it with: createdb {name[1]}. Or correct the name in the URL."
        return StoreUnavailable(f"the database {name[1]} does not exist on the server", hint=hint)
    for types, translation, beginning in _TRANSLATIONS:
        if isinstance(error, types):
            return translation(f"{beginning}: {text}")
    return error


@contextmanager
def translated() -> Iterator[None]:
    """Raise Holdfast's errors in place of the driver's."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error) from error


def begin(timeout: timedelta, *, mode: str = "ISOLATION LEVEL READ COMMITTED") -> str:
    """Begin a transaction that limits its own time; a session setting would not survive PgBouncer.

    The level is always named: locks on limited queues need READ COMMITTED, and the server's default may differ.
    """
    return f"BEGIN {mode}; {time_limits(timeout)}"


def time_limits(timeout: timedelta) -> str:
    limit = int(timeout.total_seconds() * 1000)
    return f"SET LOCAL statement_timeout = {limit}; SET LOCAL idle_in_transaction_session_timeout = {limit}"


def roll_back(connection: Connection) -> None:
    """End a transaction after an error. An exception of a signal handler leaves a running statement."""
    status = connection.info.transaction_status
    if status == TransactionStatus.ACTIVE:
        connection.close()
    elif not connection.closed and status != TransactionStatus.IDLE:
        connection.execute("ROLLBACK")
