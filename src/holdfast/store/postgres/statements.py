"""Statements of an operation, run on a psycopg connection, plain or async."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from operator import gt
from typing import Any

import msgspec
import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from holdfast.domain.jobs.selector import Glob
from holdfast.store.engine import sql
from holdfast.store.engine.operation import BulkInsert, ById, Query, Rows, Statement, reader, unstorable
from holdfast.store.postgres import direct
from holdfast.store.postgres.connections import roll_back
from holdfast.store.postgres.direct import DirectStatement

_encoder = msgspec.json.Encoder()
_MICROSECOND = timedelta(microseconds=1)
#: Types whose values the driver takes as they are.
_SCALARS = frozenset({str, int, bool, float, type(None), timedelta, datetime})

AnyConnection = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
#: Columns of bulk inserts that hold JSON, and the types of the others.
_JSON = frozenset({"payload", "tags", "retry", "plan", "data"})
_TYPES = {bool: "boolean", float: "double precision", int: "bigint", datetime: "timestamptz"}
#: JSON has no raw control characters and is never empty, so it needs no escapes as an array has them.
_LINES, _ARRAY = "string_to_array(%({0})s, chr(1), '')::{1}[]", "%({0})s::{1}[]"
#: The most rows of one statement, and about the most characters of a column.
MAX_ROWS, MAX_CHARACTERS = 2000, 8_000_000


class Statements:
    """The named statements for one schema."""

    #: Runs statements. A subclass of the backend may watch them.
    cursor_class: type[psycopg.Cursor[Any]] = psycopg.Cursor

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self._composed: dict[tuple[str, tuple[str, ...]], tuple[bytes, list[str], list[list[str]]]] = {}
        self._direct: dict[tuple[str, tuple[str, ...]], DirectStatement] = {}
        self._has_driver = not direct.missing()

    def in_schema(self, text: str) -> str:
        """Return the text with ``holdfast.`` replaced by the schema in use."""
        return text if self.schema == "holdfast" else text.replace("holdfast.", f"{quoted(self.schema)}.")

    def perform(self, connection: psycopg.Connection[Any], step: Statement) -> list[Any]:
        """Run one step of an operation. A denied privilege is reported with the user and the role that has it."""
        try:
            return self._perform(connection, step)
        except errors.InsufficientPrivilege as error:
            raise self._denial(error, connection, step) from error

    def run(self, connection: psycopg.Connection[Any], query: Query) -> list[Any]:
        """Run a statement in a transaction of its own, on a connection that may prepare statements."""
        if not (query.direct and self._has_driver and self.cursor_class is psycopg.Cursor):
            return self.perform(connection, query)
        statement = self._statement(query)
        try:
            steps = [self._step(connection, each) for each in (query.lock, query) if each is not None]
            rows = direct.run(connection, steps)
        except errors.InsufficientPrivilege as error:
            raise self._denial(error, connection, query) from error
        except UnicodeEncodeError as error:
            raise unstorable(error) from None
        return rows if query.rows is None else reader(query.rows, statement.columns, micros=False)(rows)

    def _step(self, connection: psycopg.Connection[Any], query: Query) -> tuple[DirectStatement, list[bytes | None]]:
        """The statement, and its values: an error in one of them is raised before anything is sent."""
        statement, values, encoding = self._statement(query), self.arguments(query), connection.info.encoding
        return statement, [encode(values[name], encoding) for name in statement.parameters]

    def _statement(self, query: Query) -> DirectStatement:
        """One object for each statement, whichever thread needs it first."""
        statement = self._direct.get((query.name, query.where))
        if statement is None:
            statement = DirectStatement("_".join((query.name, *query.where)), self.text(query))
            statement = self._direct.setdefault((query.name, query.where), statement)
        return statement

    def _perform(self, connection: psycopg.Connection[Any], step: Statement) -> list[Any]:
        """The class of the cursor and the binary format are named: a caller's connection may have other defaults.

        The texts of times depend on DateStyle and IntervalStyle.
        """
        if isinstance(step, BulkInsert):
            for text, arguments in self._inserts(step):
                self._execute(connection, text, arguments)
            return []
        if step.lock and connection.info.transaction_status == TransactionStatus.IDLE:
            cursor = self._perform_at_once(connection, step.lock, step)
        else:
            if step.lock:
                self._execute(connection, self.text(step.lock), self.arguments(step.lock))
            cursor = self._execute(connection, self.text(step), self.arguments(step))
        return _rows(step, cursor, cursor.fetchall() if cursor.description else [])

    def _perform_at_once(self, connection: psycopg.Connection[Any], lock: Query, step: Query) -> psycopg.Cursor[Any]:
        """Send a transaction at once. Its level is named: behind a lock it must see what others commit meanwhile."""
        try:
            with connection.pipeline():
                psycopg.Cursor(connection).execute("BEGIN ISOLATION LEVEL READ COMMITTED")
                self._execute(connection, self.text(lock), self.arguments(lock))
                cursor = self._execute(connection, self.text(step), self.arguments(step))
                psycopg.Cursor(connection).execute("COMMIT")
        except BaseException:
            roll_back(connection)
            raise
        return cursor

    def _execute(
        self, connection: psycopg.Connection[Any], text: bytes, arguments: dict[str, Any]
    ) -> psycopg.Cursor[Any]:
        cursor = self.cursor_class(connection, row_factory=tuple_row)
        try:
            return cursor.execute(text, arguments, binary=True)
        except UnicodeEncodeError as error:
            raise unstorable(error) from None

    async def aperform(self, connection: psycopg.AsyncConnection[Any], step: Statement) -> list[Any]:
        """Run one step of an operation on an async connection."""
        try:
            return await self._aperform(connection, step)
        except errors.InsufficientPrivilege as error:
            raise self._denial(error, connection, step) from error

    async def _aperform(self, connection: psycopg.AsyncConnection[Any], step: Statement) -> list[Any]:
        cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)
        if isinstance(step, BulkInsert):
            for text, arguments in self._inserts(step):
                await cursor.execute(text, arguments)
            return []
        await cursor.execute(self.text(step), self.arguments(step), binary=True)
        return _rows(step, cursor, await cursor.fetchall() if cursor.description else [])

    def _denial(self, error: errors.InsufficientPrivilege, connection: AnyConnection, step: Statement) -> Exception:
        from holdfast.store.postgres.roles import denial

        text = next(self._inserts(step))[0] if isinstance(step, BulkInsert) else self.text(step)
        return denial(str(error), text.decode(), user=connection.info.user, schema=self.schema)

    def text(self, query: Query) -> bytes:
        """Return the statement as psycopg wants it."""
        return self._compose(query)[0]

    def arguments(self, query: Query) -> dict[str, Any]:
        """Convert the parameters that the statement names: tables become JSON, or arrays of their columns."""
        (_, names, columns), parameters = self._compose(query), query.parameters
        arguments = {
            name: value if type(value := parameters[name]) in _SCALARS else _converted(value) for name in names
        }
        for name, table, column in columns:
            rows = parameters[table]
            arguments[name] = _column(rows, column) if isinstance(rows, ById) else _literal(rows.columns[column])
        return arguments

    def _compose(self, query: Query) -> tuple[bytes, list[str], list[list[str]]]:
        """The text, the names of plain parameters, and the columns of tables: full name, table and column."""
        composed = self._composed.get((query.name, query.where))
        if composed is None:
            text = sql.compose("postgres", query.name, query.where)
            names = sorted(sql.placeholders(text))
            columns = [[name, *name.split(".", 1)] for name in names if "." in name]
            names = [name for name in names if "." not in name]
            composed = sql.for_psycopg(self.in_schema(text)).encode(), names, columns
            self._composed[query.name, query.where] = composed
        return composed

    def _inserts(self, insert: BulkInsert) -> Iterator[tuple[bytes, dict[str, Any]]]:
        """Yield statements that insert rows from arrays, and their parameters. A value of all rows is sent once."""
        count = len(next(iter(insert.columns.values())))
        varied = {name: cells for name, cells in insert.columns.items() if count == 1 or not _repeats(cells)}
        once = {**{name: cells[0] for name, cells in insert.columns.items() if name not in varied}, **insert.constants}
        types = {name: _type_of(name, cells) for name, cells in varied.items()}
        arrays = ", ".join([(_LINES if types[name] == "json" else _ARRAY).format(name, types[name]) for name in varied])
        values = [f"new.{name}" for name in varied]
        values += ["NULL" if once[name] is None else f"%({name})s::{_type_of(name, [once[name]])}" for name in once]
        text = (
            f"INSERT INTO {quoted(self.schema)}.{insert.table} ({', '.join([*varied, *once])}) "  # noqa: S608 - our own names
            f"SELECT {', '.join(values)} FROM unnest({arrays}) AS new ({', '.join(varied)})"
        ).encode()
        arguments = {name: str(value) if isinstance(value, str) else value for name, value in once.items()}
        longest = max([1, *(len(cell) for cells in varied.values() for cell in cells if isinstance(cell, str))])
        size = max(1, min(MAX_ROWS, MAX_CHARACTERS // longest))
        for start in range(0, count, size):
            rows = slice(start, start + size)
            parts = {name: (_lines if name in _JSON else _literal)(cells[rows]) for name, cells in varied.items()}
            yield text, {**arguments, **parts}


def encode(value: Any, encoding: str) -> bytes | None:
    """A value as PostgreSQL reads it, whatever the settings of the session are."""
    if value is None:
        return None
    if isinstance(value, str):
        if "\0" in value:  # the server would read no further
            raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
        return value.encode(encoding)
    if isinstance(value, bool):
        return b"t" if value else b"f"
    if isinstance(value, int):
        return b"%d" % value
    if isinstance(value, list) and not value:
        return b"{}"
    if isinstance(value, timedelta):
        return f"{value.days:+d} days {value.seconds:+d} seconds {value.microseconds:+d} microseconds".encode()
    return (value.isoformat() if isinstance(value, datetime) else str(value)).encode(encoding)


def quoted(name: str) -> str:
    """Quote a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _column(table: ById, name: str) -> str | None:
    """A column in the order of ids: texts as a JSON array, numbers as an array, durations in microseconds.

    It is NULL if no row has a value in it.
    """
    cells, ids = table.columns.get(name, ()), table.columns["id"]
    first = next((cell for cell in cells if cell is not None), None)
    if first is None:
        return None
    if any(map(gt, ids, islice(ids, 1, None))):  # seldom
        cells = [cells[place] for place in sorted(range(len(ids)), key=ids.__getitem__)]
    if isinstance(first, str):
        return _encoder.encode(cells).decode()
    if isinstance(first, timedelta):
        cells = [None if cell is None else cell // _MICROSECOND for cell in cells]
    return f"{{{','.join(map(str, cells)).replace('None', 'NULL')}}}"


def _converted(value: Any) -> Any:
    if isinstance(value, ById):
        return _encoder.encode(_by_id(value)).decode()
    if isinstance(value, Rows):
        names = tuple(value.columns)
        return _encoder.encode(
            [dict(zip(names, row, strict=True)) for row in zip(*value.columns.values(), strict=True)]
        ).decode()
    if isinstance(value, (list, tuple)):
        return _literal(value) if value else []
    if isinstance(value, Glob):
        return value.as_like()
    # psycopg would send an enum's name.
    return str(value) if isinstance(value, str) else value


def _literal(cells: Sequence[Any]) -> str | list[Any]:
    """Write an array as a literal of PostgreSQL: the driver takes 1 to 2.5 µs for each cell of a list."""
    first = next((cell for cell in cells if cell is not None), None)
    if isinstance(first, Glob):
        return _array([cell.as_like() for cell in cells])
    if isinstance(first, str):
        return _array(cells) if None not in cells else [cell and str(cell) for cell in cells]
    if isinstance(first, datetime):
        texts = [str(first)] * len(cells) if _repeats(cells) else list(map(str, cells))
        return _array(texts).replace('"None"', "NULL")
    if isinstance(first, int | float | None):
        return f"{{{','.join(map(str, cells)).replace('None', 'NULL')}}}"
    return list(cells)


def _array(texts: Sequence[str]) -> str:
    inner = '","'.join(texts)
    if "\\" in inner or inner.count('"') != 2 * len(texts) - 2:
        inner = '","'.join([text.replace("\\", "\\\\").replace('"', '\\"') for text in texts])
    return f'{{"{inner}"}}'


def _lines(texts: Sequence[str | None]) -> str:
    return "\1".join([text or "" for text in texts])


def _by_id(table: ById) -> dict[int, dict[str, Any]]:
    names = tuple(name for name in table.columns if name != "id")
    rows = zip(*(table.columns[name] for name in names), strict=True)
    return {key: dict(zip(names, row, strict=True)) for key, row in zip(table.columns["id"], rows, strict=True)}


def _rows(query: Query, cursor: psycopg.Cursor[Any] | psycopg.AsyncCursor[Any], rows: list[Any]) -> list[Any]:
    if query.rows is None:
        return rows
    columns = tuple(column.name for column in cursor.description or ())
    return reader(query.rows, columns, micros=False)(rows)


def _repeats(cells: Sequence[Any]) -> bool:
    return cells.count(cells[0]) == len(cells)


def _type_of(name: str, cells: Sequence[Any]) -> str:
    kinds = set(map(type, cells))
    return "json" if name in _JSON else next((name for kind, name in _TYPES.items() if kind in kinds), "text")
