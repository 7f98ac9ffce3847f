"""From what a caller calls a connection to the driver's own connection.

SQLAlchemy's connections and sessions are recognised by their methods, so that it need
not be installed.
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
    return _unwrapped(connection)


async def driver_connection_async(connection: Any) -> Any:
    """The same; async connections and sessions of SQLAlchemy are let through as well."""
    if not _is_async(connection):
        return driver_connection(connection)
    if _is_session(connection):
        connection = await connection.connection()
    if hasattr(connection, "get_raw_connection"):
        if not connection.in_transaction():
            await connection.begin()
        raw = await connection.get_raw_connection()
        return raw.driver_connection
    return connection


def _unwrapped(connection: Any) -> Any:
    """SQLAlchemy begins lazily: without a transaction of its own it would have nothing to commit."""
    if hasattr(connection, "exec_driver_sql"):
        if not connection.in_transaction():
            connection.begin()
        return connection.connection.driver_connection
    return connection


def _is_session(connection: Any) -> bool:
    # Asked of the class: on an instance SQLAlchemy would answer by connecting.
    return hasattr(type(connection), "add") and hasattr(type(connection), "flush")


def _is_async(connection: Any) -> bool:
    return type(connection).__name__.startswith("Async") or type(connection).__name__ == "async_scoped_session"
