"""Store operations as flows: they say which statement comes next and are sent its rows.

A flow knows neither driver nor colour. The same flow runs in Holdfast's own transaction,
in the caller's (sqlite3, psycopg, SQLAlchemy), and on an async connection, because whoever
drives it does the talking. A flow may be run again from its start when a connection breaks,
so it does nothing but ask.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, ParamSpec, TypeVar

from msgspec import Struct


class Rows:
    """A table of parameters, by column; it reaches the statement as JSON, an array of objects."""

    __slots__ = ("columns",)

    def __init__(self, **columns: Sequence[Any]) -> None:
        self.columns = columns


class ById(Rows):
    """The same with a column ``id``: an object of objects, whose keys are the ids."""

    __slots__ = ()


class Query(Struct, frozen=True):
    """Run the statement *name*; each row comes back as *rows* (a struct), or as a tuple.

    *where* names the conditions that take the place of ``{where}`` in the statement.
    """

    name: str
    parameters: dict[str, Any]
    rows: type[Struct] | None = None
    where: tuple[str, ...] = ()


class BulkInsert(Struct, frozen=True):
    """Append many rows to a table by the fastest way of the backend; nothing comes back."""

    table: str
    columns: dict[str, list[Any]]


T = TypeVar("T")
P = ParamSpec("P")
Statement = Query | BulkInsert
Operation = Generator[Statement, list[Any], T]
OperationFunction = Callable[P, Operation[T]]


def query(name: str, rows: type[Struct] | None = None, /, **parameters: Any) -> Query:
    """Short for an :class:`Ask` with keyword parameters."""
    return Query(name, parameters, rows)


def run_operation(flow: Operation[T], perform: Callable[[Statement], list[Any]]) -> T:
    """Run *flow* to its end, each step by *perform*."""
    try:
        step = next(flow)
        while True:
            step = flow.send(perform(step))
    except StopIteration as stop:
        result: T = stop.value
        return result


async def arun_operation(flow: Operation[T], perform: Callable[[Statement], Awaitable[list[Any]]]) -> T:
    """The same, each step awaited."""
    try:
        step = next(flow)
        while True:
            step = flow.send(await perform(step))
    except StopIteration as stop:
        result: T = stop.value
        return result
