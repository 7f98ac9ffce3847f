"""Connections of callers: checks before an operation runs in their transaction."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from holdfast.errors import NoTransaction
from holdfast.store.engine.operation import Query
from holdfast.store.postgres.connections import Connection
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


def refuse_autocommit(connection: Connection | psycopg.AsyncConnection[Any]) -> None:
    idle = connection.info.transaction_status == TransactionStatus.IDLE
    if connection.autocommit and idle:
        raise NoTransaction("the connection is in autocommit mode and no transaction is open")
