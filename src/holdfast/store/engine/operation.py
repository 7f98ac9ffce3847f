"""Store operations: generators that yield statements and receive their rows, as tuples or structs.

An operation knows no driver. The same operation runs in Holdfast's own transaction, in the
caller's (sqlite3, psycopg, SQLAlchemy) and on an async connection. An operation may run again
from its start when a connection breaks, so it has no effect besides its statements.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Awaitable, Callable, Generator, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache, update_wrapper
from operator import attrgetter
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload

from msgspec import Struct

from holdfast.domain.jobs.lane_position import EarlierJobs
from holdfast.errors import InvalidText
from holdfast.store.engine.changes import JOBS, NO_CHANGES, Changes

if TYPE_CHECKING:
    from holdfast.store.engine.backend import Backend

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

#: Why code of the user must not end a transaction of Holdfast.
OWN_END = "this transaction must not be committed or rolled back by your code"
OWN_END_HINT = "It is committed at the end of its block, and rolled back when the block raises. Savepoints are fine."

Row = Sequence[Any]
Reader = Callable[[list[Any]], list[Any]]


class Rows:
    """A table of parameters, by column; it reaches the statement as JSON, an array of objects."""

    __slots__ = ("columns",)

    def __init__(self, **columns: Sequence[Any]) -> None:
        self.columns = columns


class ById(Rows):
    """A table with a column ``id``; it reaches the statement as an object of objects, keyed by id."""

    __slots__ = ()


class Query(Struct, frozen=True):
    """Run the statement *name*; each row comes back as *rows* (a struct), or as a tuple.

    - *where* names the conditions that take the place of ``{where}`` in the statement.
    - *lock* is a statement that takes locks before this one, in the same transaction. PostgreSQL receives both at once:
      a process that is stopped in between would keep the locks. SQLite has one writer, and leaves it out.
    - *direct*: PostgreSQL runs it without a cursor of the driver, which would take longer than the rest of the call.
    """

    name: str
    parameters: dict[str, Any]
    rows: type[Struct] | None = None
    where: tuple[str, ...] = ()
    lock: Query | None = None
    direct: bool = False


class MadeReady(Struct, frozen=True):
    """Tell that jobs became ready. Workers are notified of their places with the commit; nothing comes back."""

    jobs: Sequence[EarlierJobs]


class BulkInsert(Struct, frozen=True):
    """Append many rows to a table by the fastest way of the backend; nothing comes back.

    *constants* are columns with one value for all rows.
    """

    table: str
    columns: dict[str, list[Any]]
    constants: dict[str, Any] = {}


T = TypeVar("T")
P = ParamSpec("P")
#: What a backend performs. An operation also yields notes, which its runner keeps.
Statement = Query | BulkInsert
Operation = Generator[Statement | MadeReady, list[Any], T]
OperationFunction = Callable[P, Operation[T]]


def columns_of(rows: Sequence[Any], *names: str, **paths: str) -> dict[str, list[Any]]:
    """The attributes of *rows* by column: those of these *names*, and those with a dotted path."""
    every = {**{name: name for name in names}, **paths}
    return {name: [*map(attrgetter(path), rows)] for name, path in every.items()}


def without_empty(columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Leave out columns without a value: the database need not read so for every row."""
    return {name: cells for name, cells in columns.items() if cells[0] is not None or cells.count(None) < len(cells)}


def query(name: str, rows: type[Struct] | None = None, /, **parameters: Any) -> Query:
    """Build a :class:`Query` from keyword parameters."""
    return Query(name, parameters, rows)


def read_now() -> Operation[datetime]:
    """Read the store's clock: the time by which this transaction decides."""
    return timestamp((yield query("read_now"))[0][0])


class Noun:
    """A part of the store's interface. Its methods run statements and operations on one backend."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def now(self) -> datetime:
        """Return the time of the store's clock, which decides what is due and what is late."""
        return self._backend.read(read_now)

    def _fetch(self, name: str, rows: type[Struct] | None = None, /, **parameters: Any) -> list[Any]:
        """Read with one statement."""
        return self._backend.fetch(Query(name, parameters, rows))

    def _wake(self, answer: T, changes: Changes = JOBS) -> T:
        """Notify workers of *changes* if *answer* is truthy, and return it."""
        if answer and changes:
            self._backend.notify(changes)
        return answer


N = TypeVar("N", bound=Noun)


class OperationMethod(Generic[N, P, T]):
    """A method whose body is an operation: a call runs it and returns its result.

    ``Batches.resume.operation(batches, batch_id)`` is the operation itself, for use as a part of
    another operation or in the caller's transaction.
    """

    def __init__(
        self, operation: Callable[Concatenate[N, P], Operation[T]], *, reads: bool = False, wakes: Changes = NO_CHANGES
    ) -> None:
        self.operation = operation
        self._reads = reads
        self._wakes = wakes
        update_wrapper(cast("Callable[..., Any]", self), operation)

    @overload
    def __get__(self, noun: None, owner: type[N]) -> OperationMethod[N, P, T]: ...
    @overload
    def __get__(self, noun: N, owner: type[N]) -> Callable[P, T]: ...
    def __get__(self, noun: N | None, owner: type[N]) -> OperationMethod[N, P, T] | Callable[P, T]:
        return self if noun is None else MethodType(self, noun)

    def __call__(self, noun: N, *args: P.args, **kwargs: P.kwargs) -> T:
        backend = noun._backend  # noqa: SLF001 - the method of a noun
        if self._reads:
            return backend.read(self.operation, noun, *args, **kwargs)
        answer = backend.write(self.operation, noun, *args, **kwargs)
        return noun._wake(answer, self._wakes)  # noqa: SLF001


def transaction(
    *, wakes: Changes = NO_CHANGES
) -> Callable[[Callable[Concatenate[N, P], Operation[T]]], OperationMethod[N, P, T]]:
    """Make an operation a method that runs it in one transaction.

    *wakes*: the changes that workers are notified of after the commit, if the answer is truthy.
    """
    return lambda operation: OperationMethod(operation, wakes=wakes)


def read(operation: Callable[Concatenate[N, P], Operation[T]]) -> OperationMethod[N, P, T]:
    """Make an operation that only reads a method; all its statements see the same snapshot."""
    return OperationMethod(operation, reads=True)


def delegate(operation: Callable[P, Operation[T]], *, wakes: Changes = NO_CHANGES) -> OperationMethod[Noun, P, T]:
    """Make a method of an operation in another module; it runs in one transaction."""

    def method(_noun: Noun, /, *args: P.args, **kwargs: P.kwargs) -> Operation[T]:
        return operation(*args, **kwargs)

    update_wrapper(method, operation)
    return OperationMethod(method, wakes=wakes)


def run_operation(
    operation: Operation[T], perform: Callable[[Statement], list[Any]], ready: list[EarlierJobs] | None = None
) -> T:
    """Run *operation* to its end; *perform* executes each statement. Jobs that it made ready are added to *ready*."""
    try:
        statement = next(operation)
        while True:
            if isinstance(statement, MadeReady):
                _note(statement, ready)
                statement = operation.send([])
            else:
                statement = operation.send(perform(statement))
    except StopIteration as stop:
        return cast("T", stop.value)


def _note(made: MadeReady, ready: list[EarlierJobs] | None) -> None:
    if ready is not None:
        ready.extend(made.jobs)


async def arun_operation(
    operation: Operation[T],
    perform: Callable[[Statement], Awaitable[list[Any]]],
    ready: list[EarlierJobs] | None = None,
) -> T:
    """Run *operation* to its end as :func:`run_operation` does; *perform* is awaited."""
    try:
        statement = next(operation)
        while True:
            if isinstance(statement, MadeReady):
                _note(statement, ready)
                statement = operation.send([])
            else:
                statement = operation.send(await perform(statement))
    except StopIteration as stop:
        return cast("T", stop.value)


def single(statement: Query) -> Operation[list[Any]]:
    """An operation of one statement."""
    return (yield statement)


def unstorable(error: UnicodeEncodeError) -> InvalidText:
    """The error for a parameter with half a character, such as a word of a command line that is not UTF-8.

    Or for one that the encoding of a caller's connection cannot express.
    """
    if not error.encoding.lower().startswith("utf"):
        text = f"a text cannot be written in the encoding of the connection, {error.encoding}: {error.object[:40]!r}"
        return InvalidText(text, hint="Set its client_encoding to UTF8.")
    return InvalidText(f"a text holds half of a character (a lone surrogate): {error.object[:40]!r}")


def to_micros(value: datetime | timedelta) -> int:
    """An instant or a duration in microseconds, the form that SQLite stores."""
    return (value - EPOCH if isinstance(value, datetime) else value) // _MICROSECOND


def from_micros(value: int) -> datetime:
    return EPOCH + timedelta(microseconds=value)


def timestamp(value: datetime | int) -> datetime:
    """Convert an instant of a backend to UTC: PostgreSQL uses the session's zone, SQLite microseconds."""
    if not isinstance(value, datetime):
        return from_micros(value)
    return value if value.tzinfo is UTC else value.astimezone(UTC)


@cache
def reader(struct: type[Struct], columns: tuple[str, ...], *, micros: bool) -> Reader:
    """Build a function that converts rows with these *columns* to *struct*, by position.

    *micros*: instants and booleans are integers (SQLite).
    """
    if columns != struct.__struct_fields__:
        raise TypeError(f"{struct.__name__} has the fields {struct.__struct_fields__}, the rows have {columns}")
    hints = typing.get_type_hints(struct)
    possible = [_converter(_without_none(hints[name]), micros=micros) for name in columns]
    converters = [(position, convert) for position, convert in enumerate(possible) if convert is not None]

    def read(rows: list[Any]) -> list[Any]:
        if not rows:
            return []
        # Column by column takes half the time of row by row for a thousand leases.
        table: list[Any] = list(zip(*rows, strict=True))
        for position, convert in converters:
            cells = table[position]
            if isinstance(cells[0], datetime):  # its hash takes longer than its conversion
                if cells[0].tzinfo is not UTC:  # all of them have the zone of the session
                    table[position] = [None if cell is None else convert(cell) for cell in cells]
            else:  # a column often repeats a few values
                known = {cell: None if cell is None else convert(cell) for cell in set(cells)}
                table[position] = [known[cell] for cell in cells]
        return list(map(struct, *table))

    return read


def _converter(kind: Any, *, micros: bool) -> Callable[[Any], Any] | None:
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return kind
    if kind is datetime:
        return timestamp
    if micros and kind is bool:
        return bool
    if micros and kind is timedelta:
        return lambda value: timedelta(microseconds=value)
    return None


def _without_none(kind: Any) -> Any:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        (kind,) = (option for option in typing.get_args(kind) if option is not type(None))
    return kind
