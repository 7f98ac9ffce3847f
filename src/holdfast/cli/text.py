"""Jobs and tables as text for people."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from holdfast.domain.access.masking import mask_text
from holdfast.domain.durations import format_short_duration
from holdfast.domain.names import escape_controls
from holdfast.output.printer import Line

if TYPE_CHECKING:
    from holdfast.admin.views.jobs import JobDetail
    from holdfast.domain.jobs.job import Job

#: The room for a line where nobody says how wide it is.
WIDE = 120
#: Rows that are looked at before the widths of columns are fixed.
FIRST = 100
#: How words of a table are painted on a terminal: by the codes of ECMA-48.
STYLES = {
    "done": "32",
    "ok": "32",
    "dead": "31",
    "fail": "31;1",
    "running": "36",
    "held": "33",
    "paused": "33",
    "warn": "33",
    "cancelled": "2",
}
HEAD = "1"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[Line]:
    """Columns as wide as the first rows need; the last one takes what the terminal has left."""
    clean = ([escape_controls(cell).replace("\n", " ").replace("\t", " ") for cell in row] for row in rows)
    first = list(islice(clean, FIRST))
    widths = [max(len(row[place]) for row in [list(heads), *first]) for place in range(len(heads))]
    room = columns()
    yield _line(heads, widths, room, dict.fromkeys(heads, HEAD))
    for row in chain(first, clean):
        yield _line(row, widths, room, STYLES)


def _line(row: Sequence[str], widths: Sequence[int], room: int, styles: Mapping[str, str]) -> Line:
    text, paint = "", []
    for cell, width in zip(row, widths, strict=True):
        if cell in styles and len(text) + len(cell) < room:
            paint.append((len(text), len(text) + len(cell), styles[cell]))
        text += f"{cell.ljust(width)}  "
    return cut(text.rstrip(), tuple(paint), room=room)


def cut(text: str, paint: tuple[tuple[int, int, str], ...] = (), *, room: int | None = None) -> Line:
    """A line no longer than the terminal is wide."""
    room = columns() if room is None else room
    return Line(text if len(text) <= room else f"{text[: max(1, room - 1)]}…", paint)


def columns() -> int:
    """How wide the terminal is; COLUMNS overrules, and a pipe has room enough."""
    if (told := os.environ.get("COLUMNS", "")).isdecimal() and int(told):
        return int(told)
    try:
        return os.get_terminal_size(1).columns or WIDE
    except OSError:
        return WIDE


def age(timestamp: datetime | None) -> str:
    """How long ago, or how soon, in one word."""
    if timestamp is None:
        return ""
    seconds = (datetime.now(UTC) - timestamp).total_seconds()
    return format_short_duration(abs(seconds)) + (" ago" if seconds >= 0 else "")


JOB_HEADS = ("ID", "STATE", "KIND", "QUEUE", "TRIES", "AGE", "LABEL", "NOTE")


def job_table(jobs: Iterable[Job]) -> Iterator[Line]:
    return table(JOB_HEADS, (job_row(job) for job in jobs))


def place_table(jobs: Iterable[Job]) -> Iterator[Line]:
    """Jobs with the directories in which programs run."""
    from holdfast.cli.commands.text import directory

    heads = (*JOB_HEADS[:-1], "DIRECTORY", JOB_HEADS[-1])
    return table(heads, ([*(row := job_row(job))[:-1], directory(job), row[-1]] for job in jobs))


def job_row(job: Job) -> list[str]:
    tries = f"{job.attempts}/{job.max_attempts or '∞'}"
    note = job.note or (job.error or "").partition("\n")[0] or progress(job)
    return [str(job.id), job.state, job.kind, job.queue, tries, age(job.created_at), job.label or "", note]


def progress(job: Job, *, now: datetime | None = None) -> str:
    """How far a job is; with its rate and the time left where they are known."""
    if job.progress_done is None:
        return ""
    words = [f"{job.progress_done}/{job.progress_total}" if job.progress_total else str(job.progress_done)]
    begun = job.started_at or job.claimed_at
    took = 0.0 if begun is None or job.finished_at is not None else ((now or datetime.now(UTC)) - begun).total_seconds()
    if job.progress_done > 0 and took > 0:
        rate = job.progress_done / took
        words.append(f"{rate:.3g}/s")
        if job.progress_total and job.progress_total > job.progress_done:
            words.append(f"{format_short_duration((job.progress_total - job.progress_done) / rate)} left")
    return " ".join([*words, job.progress_message or ""]).strip()


def job_lines(job: Job, told: JobDetail, reasons: list[str]) -> Iterator[str]:
    """All there is to say about one job."""
    from holdfast.cli.commands.text import command_of, described

    yield f"job {job.id}  {job.state}  {job.kind}"
    command = command_of(job)
    for name, text in () if command is None else described(job, command):
        yield f"  {name:9} {escape_controls(mask_text(text))}"
    facts = {
        "queue": f"{job.queue}, priority {job.priority}" if command is None else None,
        "label": job.label,
        "key": job.key,
        "enqueued": f"{stamp(job.created_at)} by {job.actor}",
        "due": stamp(job.due_at),
        "finished": stamp(job.finished_at),
        "worker": job.worker,
        "progress": progress(job),
        "payload": _as_json(told.job["payload"]) if command is None else None,
        "result": _as_json(told.job["result"]),
        "error": told.job["error"],
        "note": told.job["note"],
        "why": "; ".join(reasons),
    }
    for name, value in facts.items():
        if value:
            first, *more = str(value).splitlines()
            yield f"  {name:9} {first}"
            yield from (f"            {line}" for line in more)
    if told.attempts:
        yield "attempts"
        for attempt in told.attempts:
            finished = attempt.reason or "running"
            begun = stamp(attempt.started_at)
            yield f"  {attempt.number}  {begun}  {finished}  token {attempt.token}  {attempt.worker or ''}".rstrip()
    yield "history"
    for event in told.events:
        yield f"  {stamp(event.at)}  {event.name}  {event.actor}  {event.detail or ''}".rstrip()


def _as_json(value: Any) -> str:
    if value is None:
        return ""
    import msgspec

    return msgspec.json.encode(value).decode()


def stamp(timestamp: datetime | None) -> str:
    return "" if timestamp is None else timestamp.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
