"""Run the steps of a flow on a psycopg connection, plain or async."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Any

import psycopg

from holdfast.domain.selector import Glob
from holdfast.store import sql
from holdfast.store.flow import Ask, Columns, Fill, Step
from holdfast.store.rows import reader

_UNSAFE = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


class Statements:
    """The named statements for one schema."""

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self._known = {name: self.in_schema(text) for name, text in sql.statements("postgres").items()}
        self._composed: dict[tuple[str, tuple[str, ...]], bytes] = {}

    def in_schema(self, text: str) -> str:
        """The text with ``holdfast.`` replaced by the schema in use."""
        return text if self.schema == "holdfast" else text.replace("holdfast.", f"{quoted(self.schema)}.")

    def perform(self, connection: psycopg.Connection[Any], step: Step) -> list[Any]:
        """Do one step of a flow."""
        if isinstance(step, Fill):
            with connection.cursor() as cursor, cursor.copy(self._copy(step)) as copy:
                for block in _blocks(step):
                    copy.write(block)
            return []
        cursor = connection.execute(self.text(step), to_sql(step.parameters))
        return _rows(step, cursor, cursor.fetchall() if cursor.description else [])

    async def aperform(self, connection: psycopg.AsyncConnection[Any], step: Step) -> list[Any]:
        """The same on an async connection."""
        if isinstance(step, Fill):
            async with connection.cursor() as cursor, cursor.copy(self._copy(step)) as copy:
                for block in _blocks(step):
                    await copy.write(block)
            return []
        cursor = await connection.execute(self.text(step), to_sql(step.parameters))
        return _rows(step, cursor, await cursor.fetchall() if cursor.description else [])

    def text(self, ask: Ask) -> bytes:
        """The statement as psycopg wants it."""
        composed = self._composed.get((ask.name, ask.where))
        if composed is None:
            composed = sql.for_psycopg(sql.compose(self._known, ask.name, ask.where)).encode()
            self._composed[ask.name, ask.where] = composed
        return composed

    def _copy(self, fill: Fill) -> bytes:
        return f"COPY {quoted(self.schema)}.{fill.table} ({', '.join(fill.columns)}) FROM STDIN".encode()


def quoted(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def to_sql(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters as psycopg can take them: tables become one array per column."""
    plain: dict[str, Any] = {}
    for name, value in parameters.items():
        if isinstance(value, Columns):
            for column, cells in value.columns.items():
                plain[f"{name}_{column}"] = _array(cells)
        elif isinstance(value, (list, tuple)):
            plain[name] = _array(value)
        else:
            plain[name] = _scalar(value)
    return plain


def _array(cells: Any) -> list[Any]:
    if cells and isinstance(cells[0], str):
        return [_scalar(cell) for cell in cells]
    return list(cells)


def _scalar(value: Any) -> Any:
    if isinstance(value, Glob):
        return value.as_like()
    # psycopg would send an enum's name.
    return str(value) if isinstance(value, str) else value


def _rows(ask: Ask, cursor: psycopg.Cursor[Any] | psycopg.AsyncCursor[Any], rows: list[Any]) -> list[Any]:
    if ask.rows is None:
        return rows
    columns = tuple(column.name for column in cursor.description or ())
    return reader(ask.rows, columns, micros=False)(rows)


def _blocks(fill: Fill, size: int = 2000) -> Any:
    """The rows in COPY's text format, in large blocks."""
    values = fill.values
    for start in range(0, len(values), size):
        yield "".join(["\t".join(map(_cell, row)) + "\n" for row in values[start : start + size]])


@cache
def _moment(value: datetime) -> str:
    return value.isoformat()


def _cell(value: Any) -> str:
    if value is None:
        return "\\N"
    if isinstance(value, str):
        return value.translate(_UNSAFE) if ("\\" in value or not value.isprintable()) else str(value)
    if isinstance(value, bool):
        return "t" if value else "f"
    return _moment(value) if isinstance(value, datetime) else str(value)
