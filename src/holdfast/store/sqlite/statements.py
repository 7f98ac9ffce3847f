"""Statements of an operation, run on a sqlite3 connection."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import cache
from itertools import chain
from typing import Any

import msgspec

from holdfast.domain.jobs.selector import Glob
from holdfast.store.engine import sql
from holdfast.store.engine.operation import BulkInsert, ById, Query, Rows, Statement, reader, to_micros, unstorable

_encoder = msgspec.json.Encoder()
#: Types that need no conversion; they are most parameters.
_PLAIN = {int, str, float, bool, type(None)}
#: Rows of one statement of a bulk insert. A statement for each row takes almost twice as long.
ROWS_PER_INSERT = 50


def performer(connection: sqlite3.Connection, now: datetime) -> Callable[[Statement], list[Any]]:
    """A function that runs the steps of an operation; *now* is the time of the whole transaction."""
    micros = to_micros(now)

    def perform(step: Statement) -> list[Any]:
        if isinstance(step, BulkInsert):
            return _insert(connection, step)
        try:
            if (by_row := statement_by_row(step.name)) is not None:
                return _execute_by_row(connection, step, *by_row)
            return _execute(connection, step, {name: to_sql(value) for name, value in step.parameters.items()}, micros)
        except UnicodeEncodeError as error:
            raise unstorable(error) from None

    return perform


def _execute(connection: sqlite3.Connection, step: Query, parameters: dict[str, Any], now: int) -> list[Any]:
    """Run the statements one after the other; ``:chosen`` is the first column of what the one before has returned."""
    parameters["now"] = now
    rows: list[Any] = []
    fetched: list[Any] = []
    for statement in split_statement(step.name, step.where):
        if ":chosen" in statement:
            parameters["chosen"] = _encoder.encode([row[0] for row in fetched]).decode()
        cursor = plain_cursor(connection).execute(statement, parameters)
        if cursor.description is None:
            continue
        fetched = cursor.fetchall()
        columns = tuple([column[0] for column in cursor.description])  # a list is faster than a generator
        if columns == ("packed",):  # all rows as one JSON array, with the fields of the struct
            fetched, columns = msgspec.json.decode(fetched[0][0]), getattr(step.rows, "__struct_fields__", ())
        rows += fetched if step.rows is None else reader(step.rows, columns, micros=True)(fetched)
    return rows


def _execute_by_row(connection: sqlite3.Connection, step: Query, text: str, table: str, names: list[str]) -> list[Any]:
    """Run a statement once for each row of a table: half the time of one that reads the rows from JSON."""
    connection.executemany(text, zip(*[_column(step.parameters[table].columns[name]) for name in names], strict=True))
    return []


def plain_cursor(connection: sqlite3.Connection) -> sqlite3.Cursor:
    """Return a cursor that yields tuples, independent of the row factory of the connection."""
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor


def to_sql(value: Any) -> Any:
    """Convert a parameter for SQLite: instants and durations to microseconds, lists and tables to JSON."""
    if type(value) in _PLAIN or isinstance(value, (int, float)):
        return value
    if isinstance(value, Glob):
        return value.as_glob()
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (datetime, timedelta)):
        return to_micros(value)
    if isinstance(value, ById):
        return _encoder.encode(_by_id(value)).decode()
    if isinstance(value, Rows):
        return _encoder.encode(_objects(value)).decode()
    if isinstance(value, (list, tuple)):
        return msgspec.json.encode([to_sql(cell) for cell in value]).decode()
    raise TypeError(f"no way to bind a {type(value).__name__}")


def _objects(rows: Rows) -> list[dict[str, Any]]:
    names = tuple(rows.columns)
    columns = [_column(cells) for cells in rows.columns.values()]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _by_id(table: ById) -> dict[int, dict[str, Any]]:
    """Key the rows by id, so that SQL does not search for the id in each row's JSON."""
    names = tuple(name for name in table.columns if name != "id")
    rows = zip(*(_column(table.columns[name]) for name in names), strict=True)
    return {key: dict(zip(names, row, strict=True)) for key, row in zip(table.columns["id"], rows, strict=True)}


def _column(cells: Sequence[Any]) -> Sequence[Any]:
    """Convert instants and durations to microseconds; a column holds one type, and often one value."""
    first = next((cell for cell in cells if cell is not None), None)
    if isinstance(first, (datetime, timedelta)):
        micros = to_micros(first)
        return [micros if cell is first else None if cell is None else to_micros(cell) for cell in cells]
    return cells


def _insert(connection: sqlite3.Connection, insert: BulkInsert) -> list[Any]:
    first, *others = insert.columns
    # To bind a value for each row takes longer than to compare them, most of all for enums.
    alike = {name: cells[0] for name in others if (cells := insert.columns[name]).count(cells[0]) == len(cells)}
    constants = [to_sql(value) for value in (*insert.constants.values(), *alike.values())]
    varied = [first, *(name for name in others if name not in alike)]
    columns = [_column(insert.columns[name]) for name in varied]
    names, size = (*insert.constants, *alike, *varied), len(columns[0])
    rest = size % ROWS_PER_INSERT
    many, one = (_insert_text(insert.table, names, len(constants), rows) for rows in (ROWS_PER_INSERT, 1))
    for start in range(0, size - rest, ROWS_PER_INSERT):
        rows = zip(*[cells[start : start + ROWS_PER_INSERT] for cells in columns], strict=True)
        connection.execute(many, [*constants, *chain.from_iterable(rows)])
    if rest:
        rows = zip(*[cells[size - rest :] for cells in columns], strict=True)
        connection.executemany(one, [(*constants, *row) for row in rows])
    return []


@cache
def _insert_text(table: str, names: tuple[str, ...], constants: int, rows: int) -> str:
    """A statement that inserts this number of rows; the first columns are *constants*, bound once for all rows."""
    row = f"({', '.join('?' * (len(names) - constants))})"
    shared = "?, " * constants
    return (
        f"INSERT INTO holdfast_{table} ({', '.join(names)}) "  # noqa: S608 - names from our own code
        f"SELECT {shared}inserted.* FROM (VALUES {', '.join([row] * rows)}) AS inserted"
    )


@cache
def statement_by_row(name: str) -> tuple[str, str, list[str]] | None:
    """Return a statement that names columns of a table, with numbers in their places, the table and the columns."""
    text = sql.compose("sqlite", name, ())
    columns = sorted({place for place in sql.placeholders(text) if "." in place})
    for number, place in enumerate(columns, start=1):
        text = re.sub(rf":{place}\b", f"?{number}", text)
    return (text, columns[0].partition(".")[0], [place.partition(".")[2] for place in columns]) if columns else None


@cache
def split_statement(name: str, where: tuple[str, ...]) -> list[str]:
    """Return the single statements that *name* consists of."""
    return [text for text in sql.compose("sqlite", name, where).split(";\n") if text.strip()]
