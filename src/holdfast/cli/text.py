"""Text on the terminal: tables, ages, progress and timestamps."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import wraps
from itertools import chain, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import click
from msgspec import Struct
from msgspec.structs import replace

from holdfast.cli.command import with_options
from holdfast.domain.names import escape_controls
from holdfast.domain.quantities import checked_timestamp, format_short_duration, stamp
from holdfast.errors import InvalidInput
from holdfast.output.printer import Format, Line

if TYPE_CHECKING:
    from holdfast.cli.session import CliSession
    from holdfast.domain.jobs.job import Job

T = TypeVar("T")

#: Width of a line without a terminal, in columns.
DEFAULT_WIDTH = 120
#: Width of a line that is not cut.
UNLIMITED = 2**31
#: Number of rows that decide the widths of columns; later rows stream.
MEASURED_ROWS = 100
#: SGR codes (ECMA-48) of cells that a terminal shows in colour.
STYLES = dict.fromkeys(("done", "ok"), "32") | dict.fromkeys(("held", "paused", "warn"), "33")
STYLES |= {"dead": "31", "fail": "31;1", "running": "36", "cancelled": "2"}
HEAD_STYLE = "1"


class Column(Struct, Generic[T], frozen=True):
    """A column of a table. The cell of a row is a value that is shown as text; None is shown as an empty cell.

    *sort* returns the value that decides the place of a row, if it is not the cell. A *wide* column is shown only on
    request: by ``-o wide``, or by its name.
    """

    heading: str
    cell: Callable[[T], object]
    sort: Callable[[T], Any] | None = None
    wide: bool = False

    @property
    def name(self) -> str:
        """The name on the command line: ``per-worker`` for ``PER WORKER``."""
        return self.heading.lower().replace(" ", "-")


def age_column(heading: str, get: Callable[[T], datetime | None], *, wide: bool = False) -> Column[T]:
    """A column of times in the past, shown as ages; the youngest sorts first."""

    def elapsed(row: T) -> float | None:
        timestamp = get(row)
        return None if timestamp is None else -timestamp.timestamp()

    return Column(heading, lambda row: age(get(row)), elapsed, wide)


def time_column(heading: str, get: Callable[[T], datetime | None], *, wide: bool = False) -> Column[T]:
    """A column of timestamps."""
    return Column(heading, lambda row: stamp(get(row)), get, wide)


def count_column(heading: str, get: Callable[[T], int | None], *, wide: bool = False) -> Column[T]:
    """A column of numbers that may be large: ``1,234``; empty where a number is unknown."""

    def shown(row: T) -> str:
        return "" if (number := get(row)) is None else f"{number:,}"

    return Column(heading, shown, get, wide)


def sortable_key(key: object) -> tuple[bool, float, str]:
    """The value that sorts keys of units: numbers by size, then all others as text."""
    return (False, key, "") if isinstance(key, int | float) else (True, 0, str(key))


class Table(Struct, Generic[T], frozen=True):
    """The columns of a list. The options of :func:`with_table` choose the shown ones, and the order of the rows."""

    columns: tuple[Column[T], ...]
    #: The name of the column that ``--quiet`` shows alone, for other commands to read; empty: it shows all.
    key: str = ""
    #: The columns to show; None: all that are not wide.
    chosen: tuple[Column[T], ...] | None = None
    #: The column that sorts the rows; None: they stay as they are, and stream.
    sorted_by: Column[T] | None = None
    descending: bool = False
    heading: bool = True
    #: Whether lines end at the width of the terminal.
    is_cut: bool = True

    @property
    def shown(self) -> tuple[Column[T], ...]:
        return tuple(each for each in self.columns if not each.wide) if self.chosen is None else self.chosen

    def column(self, name: str) -> Column[T]:
        known = {column.name: column for column in self.columns}
        if name not in known:
            raise InvalidInput(f"the column {name[:100]!r} is unknown", hint=f"Columns: {', '.join(known)}.")
        return known[name]

    def including(self, name: str) -> Table[T]:
        """The same table, with a wide column among the others."""
        return replace(
            self, columns=tuple(replace(each, wide=each.wide and each.name != name) for each in self.columns)
        )

    def lines(self, rows: Iterable[T]) -> Iterator[Line]:
        if self.sorted_by is not None:
            rows = _sorted(rows, self.sorted_by, descending=self.descending)
        heads = [column.heading for column in self.shown]
        cells = ([_cell_text(column.cell(row)) for column in self.shown] for row in rows)
        return table(heads, cells, heading=self.heading, room=terminal_width() if self.is_cut else UNLIMITED)


def _cell_text(value: object) -> str:
    return "" if value is None else str(value)


def _sorted(rows: Iterable[T], column: Column[T], *, descending: bool) -> list[T]:
    """The rows by the values of a column; rows without a value are last."""
    pairs = [((column.sort or column.cell)(row), row) for row in rows]
    present = sorted((pair for pair in pairs if pair[0] not in (None, "")), key=itemgetter(0), reverse=descending)
    return [row for _, row in present] + [row for value, row in pairs if value in (None, "")]


def with_table(table: Table[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add ``--columns`` and ``--sort`` to a command that lists things; the function receives its table as ``table``."""
    names = ", ".join(column.name for column in table.columns)
    options = (
        click.option("--columns", metavar="NAME,…", help=f"Columns to show, in this order. [{names}]"),
        click.option(
            "--sort",
            metavar="COLUMN",
            help="Sort the rows that are shown by this column; -COLUMN sorts in descending order.",
        ),
    )

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def choose(session: CliSession, *args: Any, columns: str | None, sort: str | None, **values: Any) -> Any:
            return function(session, *args, table=_choose(session, table, columns, sort), **values)

        return with_options(*options)(choose)

    return decorate


def _choose(session: CliSession, table: Table[T], columns: str | None, sort: str | None) -> Table[T]:
    """The table as the command line wants it; JSON has all fields and no columns."""
    if session.output.format is not Format.TEXT and (columns is not None or sort is not None):
        raise InvalidInput(
            f"--columns and --sort are for tables, not for -o {session.output.format}",
            hint="Add -o text, or choose and sort the fields with jq.",
        )
    chosen = table.columns if session.is_wide else None
    is_key_only = session.output.quiet and columns is None and chosen is None and bool(table.key)
    if is_key_only:
        chosen = (table.column(table.key),)
    return replace(
        table,
        chosen=chosen if columns is None else tuple(map(table.column, columns.split(","))),
        sorted_by=None if sort is None else table.column(sort.removeprefix("-")),
        descending=sort is not None and sort.startswith("-"),
        heading=not session.output.quiet,
        is_cut=not session.is_wide and not is_key_only,
    )


def table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, heading: bool = True, room: int | None = None
) -> Iterator[Line]:
    """Lay rows out in columns; the last column takes the rest of the *room*, by default the terminal's width."""
    cleaned = ([escape_controls(cell).replace("\n", " ").replace("\t", " ") for cell in row] for row in rows)
    first = list(islice(cleaned, MEASURED_ROWS))
    measured = [list(heads), *first] if heading else first
    widths = [max((len(row[place]) for row in measured), default=0) for place in range(len(heads))]
    room = terminal_width() if room is None else room
    if heading:
        yield _line(heads, widths, room, dict.fromkeys(heads, HEAD_STYLE))
    for row in chain(first, cleaned):
        yield _line(row, widths, room, STYLES)


def _line(row: Sequence[str], widths: Sequence[int], room: int, styles: Mapping[str, str]) -> Line:
    text, paint = "", []
    for cell, width in zip(row, widths, strict=True):
        if cell in styles and len(text) + len(cell) < room:
            paint.append((len(text), len(text) + len(cell), styles[cell]))
        text += f"{cell.ljust(width)}  "
    return cut(text.rstrip(), tuple(paint), room=room)


def cut(text: str, paint: tuple[tuple[int, int, str], ...] = (), *, room: int | None = None) -> Line:
    """Cut a line to *room* columns, by default to the width of the terminal."""
    room = terminal_width() if room is None else room
    return Line(text if len(text) <= room else f"{text[: max(1, room - 1)]}…", paint)


def terminal_width() -> int:
    """The width of the terminal; ``COLUMNS`` takes precedence."""
    if (width := os.environ.get("COLUMNS", "")).isdecimal() and int(width):
        return int(width)
    try:
        return os.get_terminal_size(1).columns or DEFAULT_WIDTH
    except OSError:
        return DEFAULT_WIDTH


def age(timestamp: datetime | None) -> str:
    """The time since or until a timestamp: ``5m ago``, ``2h``."""
    if timestamp is None:
        return ""
    seconds = (datetime.now(UTC) - timestamp).total_seconds()
    return format_short_duration(abs(seconds)) + (" ago" if seconds >= 0 else "")


def _read_stamp(text: str) -> datetime | None:
    """The inverse of :func:`stamp`: what lists show can be written again. None for other texts."""
    try:
        clock = datetime.fromisoformat(text[:19])  # without the zone
        candidates = [clock.replace(fold=fold).astimezone() for fold in (0, 1)]  # summer time ends: an hour repeats
    except (ValueError, OverflowError):
        return None
    return next((each for each in candidates if stamp(each) == text), None)


def local_day(_ctx: Any, _param: Any, text: str | None) -> str | None:
    """Replace ``today``, ``yesterday`` and a date by the start of that day on this machine; for a WHEN option.

    A time as lists show it is replaced, too.
    """
    if text is None:
        return None
    if (shown := _read_stamp(text)) is not None:
        return shown.isoformat()
    midnight = datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    if text in ("today", "yesterday"):
        start = midnight - timedelta(days=text == "yesterday")
    elif re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        try:
            start = datetime.fromisoformat(text)
        except ValueError:
            return text
    else:
        return text
    return start.astimezone().isoformat()


def parse_when(text: str, *, ages: bool = True) -> datetime:
    """Parse a WHEN option: RFC 3339, a time as lists show it, ``now`` or, with *ages*, an age such as ``6h``."""
    from holdfast.domain.jobs.selector import parse_timestamp

    now = datetime.now(UTC)
    try:
        if text == "now":
            return now
        if not ages and re.fullmatch(r"[\d.]+[a-z]*", text):
            raise InvalidInput(f"{text!r} is not a valid time")  # noqa: TRY301 - every bad value gets the same message
        return checked_timestamp(_read_stamp(text) or parse_timestamp(text, now=now))
    except InvalidInput:
        also = ", or an age: 6h" if ages else ", or now"
        raise InvalidInput(
            f"{text[:100]!r} is not a valid time", hint=f"Write it as 2030-01-01T06:00:00Z{also}."
        ) from None


def progress_text(job: Job) -> str:
    """The progress of a job, with its rate and the remaining time if they are known."""
    if job.progress_done is None:
        return ""
    fields = [f"{job.progress_done}/{job.progress_total}" if job.progress_total else str(job.progress_done)]
    rate = job.progress_rate(datetime.now(UTC))
    if rate is not None:
        fields.append(f"{rate:.3g}/s")
        if job.progress_total and job.progress_total > job.progress_done:
            fields.append(f"{format_short_duration((job.progress_total - job.progress_done) / rate)} left")
    return " ".join([*fields, job.progress_message or ""]).strip()
