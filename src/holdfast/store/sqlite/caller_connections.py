"""The caller's own connection: Holdfast writes in its transaction."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from holdfast.errors import NoTransaction, OtherDatabase, StoreLocked
from holdfast.store.engine.operation import OWN_END, OWN_END_HINT
from holdfast.store.sqlite.files import is_busy
from holdfast.store.sqlite.statements import plain_cursor

#: Takes the write lock and changes nothing. It must come before any read: see :func:`lock_for_caller`.
TAKE_LOCK = "DELETE FROM holdfast_meta WHERE false"
RETRY_S = 0.01


def lock_for_caller(connection: sqlite3.Connection) -> None:
    """Make the caller's transaction a writer, and wait for other writers as long as its busy timeout.

    SQLite waits only for a transaction that has not read yet. One that has read fails at once while another
    connection writes; when that one has committed, it can never write: its snapshot is outdated.

    Raises:
        StoreLocked: Another writer did not finish in time, or the transaction has read an outdated snapshot.
        OtherDatabase: The connection leads to a file without a store.
    """
    if not connection.in_transaction:
        connection.execute("BEGIN IMMEDIATE")
    cursor = plain_cursor(connection)
    deadline, pause = time.monotonic() + _busy_timeout_s(cursor), threading.Event()
    while True:
        try:
            cursor.execute(TAKE_LOCK)
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY_SNAPSHOT:
                raise StoreLocked(
                    "this transaction has read the file, and another program has written to it since",
                    hint="Roll back and try again. Enqueue before you read, or begin with BEGIN IMMEDIATE.",
                ) from error
            if "no such table" in str(error):
                raise OtherDatabase("the connection does not lead to the database of this app") from error
            if not is_busy(error) or time.monotonic() >= deadline:
                raise
            pause.wait(RETRY_S)
        else:
            return


@contextmanager
def keep_transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Refuse every statement that would end the open transaction: commit, rollback, scripts; savepoints are allowed.

    Raises:
        NoTransaction: A statement was refused, or the connection was closed.
    """
    refused: list[int] = []

    def authorize(action: int, *_: object) -> int:
        if action != sqlite3.SQLITE_TRANSACTION:
            return sqlite3.SQLITE_OK
        refused.append(action)
        return sqlite3.SQLITE_DENY

    connection.set_authorizer(authorize)
    try:
        yield
        connection.set_authorizer(None)  # an error: the connection was closed
    except sqlite3.Error as error:
        if refused and getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_AUTH:
            raise NoTransaction(OWN_END, hint=OWN_END_HINT) from error
        if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
            raise NoTransaction("the connection was closed within its transaction", hint=OWN_END_HINT) from error
        raise
    finally:
        with suppress(sqlite3.ProgrammingError):
            connection.set_authorizer(None)


@contextmanager
def plain_texts(connection: sqlite3.Connection) -> Iterator[None]:
    """Read texts as str, independent of the text factory of the connection."""
    factory, connection.text_factory = connection.text_factory, str
    try:
        yield
    finally:
        connection.text_factory = factory


def autocommits(connection: sqlite3.Connection) -> bool:
    """Whether a statement outside a transaction would be committed at once."""
    autocommit = getattr(connection, "autocommit", None)
    if autocommit is True or autocommit is False:
        return autocommit
    return connection.isolation_level is None


def _busy_timeout_s(cursor: sqlite3.Cursor) -> float:
    (milliseconds,) = cursor.execute("PRAGMA busy_timeout").fetchone()
    return float(milliseconds) / 1000
