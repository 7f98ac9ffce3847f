"""Connections of callers: checks before an operation runs in their transaction, and its notification."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from holdfast.errors import InvalidInput, NoTransaction, StoreUnavailable
from holdfast.store.engine.changes import Changes, encode
from holdfast.store.engine.operation import OWN_END, OWN_END_HINT, Query
from holdfast.store.postgres.connections import Connection
from holdfast.store.postgres.notifier import NOTIFY
from holdfast.store.postgres.statements import Statements


def installation_of(connection: Connection, statements: Statements) -> tuple[Any, ...] | None:
    """The installation that a connection leads to; a missing table does not abort its transaction."""
    cursor = connection.cursor(row_factory=tuple_row)
    exists = cursor.execute(_installation_query(statements)).fetchone()
    if exists is None or not exists[0]:
        return None
    return cursor.execute(statements.text(Query("read_installation", {}))).fetchone()


async def ainstallation_of(connection: psycopg.AsyncConnection[Any], statements: Statements) -> tuple[Any, ...] | None:
    cursor = connection.cursor(row_factory=tuple_row)
    exists = await (await cursor.execute(_installation_query(statements))).fetchone()
    if exists is None or not exists[0]:
        return None
    return await (await cursor.execute(statements.text(Query("read_installation", {})))).fetchone()


def _installation_query(statements: Statements) -> bytes:
    return statements.in_schema("SELECT to_regclass('holdfast.meta') IS NOT NULL").encode()


def check_caller(connection: Connection | psycopg.AsyncConnection[Any]) -> None:
    """Check that an operation can run on the connection, as a part of the caller's transaction.

    Raises:
        NoTransaction: It would commit by itself.
        InvalidInput: It is in pipeline mode, where no statement gets an answer at once.
    """
    if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
        raise NoTransaction("the connection is in autocommit mode and no transaction is open")
    if connection.info.pipeline_status != PipelineStatus.OFF:
        raise InvalidInput("the connection is in pipeline mode", hint="Enqueue before or after the pipeline block.")


#: Exists as long as the transaction in which it was set.
_SAVEPOINT = "holdfast_unit"


@contextmanager
def keep_transaction(connection: Connection) -> Iterator[None]:
    """Refuse a commit and a rollback of the open transaction; detect those that are sent as SQL. Savepoints are fine.

    Raises:
        NoTransaction: The transaction has ended, or a failed statement has spoiled it.
        StoreUnavailable: The connection broke, so nothing is kept.
    """
    try:
        with _kept(connection):
            yield
    except (psycopg.Error, NoTransaction) as error:
        if connection.broken:
            raise StoreUnavailable(f"the connection was lost within the transaction: {error}") from error
        raise


@contextmanager
def _kept(connection: Connection) -> Iterator[None]:
    def refuse() -> None:
        raise NoTransaction(OWN_END, hint=OWN_END_HINT)

    connection.execute(f"SAVEPOINT {_SAVEPOINT}")
    connection.commit = connection.rollback = refuse  # type: ignore[method-assign]
    try:
        yield
    finally:
        del connection.commit, connection.rollback
    if connection.closed:
        raise NoTransaction("the connection was closed within its transaction", hint=OWN_END_HINT)
    if connection.info.transaction_status == TransactionStatus.INERROR:
        hint = "PostgreSQL keeps nothing of a transaction after an error; use a savepoint for a part that may fail."
        raise NoTransaction("a statement failed within the transaction", hint=hint)
    try:
        connection.execute(f"RELEASE SAVEPOINT {_SAVEPOINT}")
    except (psycopg.errors.InvalidSavepointSpecification, psycopg.errors.NoActiveSqlTransaction) as error:
        text = "your code has ended this transaction; what it wrote may be kept"
        raise NoTransaction(text, hint=OWN_END_HINT) from error


def notify_on(connection: Connection, statements: Statements, changes: Changes) -> None:
    """Notify of *changes* when the caller commits."""
    if changes:
        psycopg.Cursor(connection).execute(statements.in_schema(NOTIFY).encode(), (encode(changes),))


async def anotify_on(connection: psycopg.AsyncConnection[Any], statements: Statements, changes: Changes) -> None:
    if changes:
        await psycopg.AsyncCursor(connection).execute(statements.in_schema(NOTIFY).encode(), (encode(changes),))
