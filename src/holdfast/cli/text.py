"""Text on the terminal: tables, ages, progress and timestamps."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain, islice
from typing import TYPE_CHECKING

from holdfast.domain.names import escape_controls
from holdfast.domain.quantities import checked_timestamp, format_short_duration
from holdfast.errors import InvalidInput
from holdfast.output.printer import Line

if TYPE_CHECKING:
    from holdfast.domain.jobs.job import Job

#: Width of a line without a terminal, in columns.
DEFAULT_WIDTH = 120
#: Number of rows that decide the widths of columns; later rows stream.
MEASURED_ROWS = 100
#: SGR codes (ECMA-48) of cells that a terminal shows in colour.
STYLES = dict.fromkeys(("done", "ok"), "32") | dict.fromkeys(("held", "paused", "warn"), "33")
STYLES |= {"dead": "31", "fail": "31;1", "running": "36", "cancelled": "2"}
HEAD_STYLE = "1"
JOB_HEADS = ("ID", "STATE", "KIND", "QUEUE", "TRIES", "AGE", "LABEL", "NOTE")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[Line]:
    """Lay rows out in columns; the last column takes the rest of the terminal's width."""
    cleaned = ([escape_controls(cell).replace("\n", " ").replace("\t", " ") for cell in row] for row in rows)
    first = list(islice(cleaned, MEASURED_ROWS))
    widths = [max(len(row[place]) for row in [list(heads), *first]) for place in range(len(heads))]
    room = columns()
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
    room = columns() if room is None else room
    return Line(text if len(text) <= room else f"{text[: max(1, room - 1)]}…", paint)


def columns() -> int:
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


def stamp(timestamp: datetime | None) -> str:
    """A timestamp in UTC, to the second."""
    return "" if timestamp is None else timestamp.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def parse_when(text: str, *, ages: bool = True) -> datetime:
    """Parse a WHEN option: RFC 3339, ``now`` or, with *ages*, an age such as ``6h``."""
    from holdfast.domain.jobs.selector import parse_timestamp

    now = datetime.now(UTC)
    try:
        if text == "now":
            return now
        if not ages and re.fullmatch(r"[\d.]+[a-z]*", text):
            raise InvalidInput(f"{text!r} is no moment")  # noqa: TRY301 - every bad value gets the same message
        return checked_timestamp(parse_timestamp(text, now=now))
    except InvalidInput:
        also = ", or an age: 6h" if ages else ", or now"
        raise InvalidInput(f"{text[:100]!r} is no moment", hint=f"Write it as 2030-01-01T06:00:00Z{also}.") from None


def job_table(jobs: Iterable[Job]) -> Iterator[Line]:
    return table(JOB_HEADS, (job_row(job) for job in jobs))


def job_row(job: Job) -> list[str]:
    tries = f"{job.tries}/{job.max_attempts or '∞'}"
    note = job.note or (job.error or "").partition("\n")[0] or progress_text(job)
    return [str(job.id), state_text(job), job.kind, job.queue, tries, age(job.created_at), job.label or "", note]


def state_text(job: Job) -> str:
    """The state of a job. A claimed job that has not started is not called running."""
    return "claimed" if job.claimed else job.state


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
