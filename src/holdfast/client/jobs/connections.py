"""Driver connections behind the connections and sessions that callers pass.

SQLAlchemy objects are recognised by their methods, so SQLAlchemy need not be installed.
"""

from __future__ import annotations

from typing import Any

from holdfast.errors import InvalidInput


def driver_connection(connection: Any) -> Any:
    """The sqlite3 or psycopg connection behind *connection*."""
    if _is_async(connection):
        raise InvalidInput("this is an async connection", hint="Use await handler.aenqueue(...).")
    if _is_session(connection):
        connection = connection.connection()
    if not hasattr(connection, "exec_driver_sql"):
        return connection
    # SQLAlchemy begins lazily: without a transaction of its own it would commit nothing.
    if not connection.in_transaction():
        connection.begin()
    return connection.connection.driver_connection


async def driver_connection_async(connection: Any) -> Any:
    """The same, also for async connections and sessions of SQLAlchemy."""
    if not _is_async(connection):
        return driver_connection(connection)
    if _is_session(connection):
        connection = await connection.connection()
    if not hasattr(connection, "get_raw_connection"):
        return connection
    if not connection.in_transaction():
        await connection.begin()
    raw = await connection.get_raw_connection()
    return raw.driver_connection


def _is_session(connection: Any) -> bool:
    # The check is on the class: on an instance, SQLAlchemy would connect to the database.
    return hasattr(type(connection), "add") and hasattr(type(connection), "flush")


def _is_async(connection: Any) -> bool:
    return type(connection).__name__.startswith("Async") or type(connection).__name__ == "async_scoped_session"
