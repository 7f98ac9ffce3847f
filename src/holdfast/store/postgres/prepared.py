"""Statements that are sent without a cursor of the driver, which takes longer than all the rest of a short call."""

from __future__ import annotations

import re
import weakref
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg import errors, generators
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGresult

Connection = psycopg.Connection[Any]
_PARAMETER = re.compile(r"%\((\w+)\)s")


class PreparedStatement:
    """A statement that each connection prepares once."""

    def __init__(self, name: str, text: bytes) -> None:
        """*text* is the statement as psycopg wants it."""
        self._name = f"holdfast_{name}".encode()
        self._parameters = tuple(dict.fromkeys(_PARAMETER.findall(text.decode())))
        places = {parameter: f"${place}" for place, parameter in enumerate(self._parameters, start=1)}
        self._text = _PARAMETER.sub(lambda match: places[match[1]], text.decode()).replace("%%", "%").encode()
        self._prepared: weakref.WeakSet[Connection] = weakref.WeakSet()

    def run(self, connection: Connection, values: Mapping[str, Any]) -> list[Any]:
        """Run it in a transaction of its own, on a connection in autocommit, and return its rows."""
        encoding = connection.info.encoding
        parameters = [_text(values[name], encoding) for name in self._parameters]
        if connection not in self._prepared:
            self._prepare(connection)
        try:
            return self._send(connection, parameters)
        except errors.InvalidSqlStatementName:  # the driver has forgotten its own statements, and this one with them
            self._prepare(connection)
            return self._send(connection, parameters)

    def _prepare(self, connection: Connection) -> None:
        connection.pgconn.send_prepare(self._name, self._text)
        _wait(connection)
        self._prepared.add(connection)

    def _send(self, connection: Connection, parameters: list[bytes | None]) -> list[Any]:
        connection.pgconn.send_query_prepared(self._name, parameters, result_format=Format.BINARY)
        result = _wait(connection)
        if not result.ntuples:
            return []
        rows = Transformer(connection)
        rows.set_pgresult(result, format=Format.BINARY)
        return rows.load_rows(0, result.ntuples, tuple)


def _wait(connection: Connection) -> PGresult:
    results: list[PGresult] = connection.wait(generators.execute(connection.pgconn))
    (result,) = results
    if result.status == ExecStatus.FATAL_ERROR:
        raise errors.error_from_result(result, connection.info.encoding)
    return result


def _text(value: Any, encoding: str) -> bytes | None:
    """A value as PostgreSQL reads it, whatever the settings of the session are."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode(encoding)
    if isinstance(value, bool):
        return b"t" if value else b"f"
    if isinstance(value, list) and not value:
        return b"{}"
    if isinstance(value, timedelta):
        return f"{value.days:+d} days {value.seconds:+d} seconds {value.microseconds:+d} microseconds".encode()
    return (value.isoformat() if isinstance(value, datetime) else str(value)).encode()
