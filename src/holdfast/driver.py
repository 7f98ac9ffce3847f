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
        raw = await connection.get_raw_connection()
        return raw.driver_connection
    return connection


def _unwrapped(connection: Any) -> Any:
    """SQLAlchemy begins its transaction lazily; the driver's own then begins with the first statement."""
    if hasattr(connection, "exec_driver_sql"):
        return connection.connection.driver_connection
    return connection


def _is_session(connection: Any) -> bool:
    return hasattr(connection, "connection") and hasattr(connection, "add") and hasattr(connection, "flush")


def _is_async(connection: Any) -> bool:
    return type(connection).__name__.startswith("Async") or type(connection).__name__ == "async_scoped_session"
