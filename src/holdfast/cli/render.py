"""Jobs and tables as text for people."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain, islice
from urllib.parse import urlsplit, urlunsplit

from holdfast.cli.output import harmless
from holdfast.domain.history import Attempt, Event
from holdfast.domain.job import Job

#: The room for a line where nobody says how wide it is.
WIDE = 120
#: Rows that are looked at before the widths of columns are fixed.
FIRST = 100


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Columns as wide as the first rows need; the last one takes what the terminal has left."""
    clean = ([harmless(cell).replace("\n", " ").replace("\t", " ") for cell in row] for row in rows)
    first = list(islice(clean, FIRST))
    widths = [max(len(row[place]) for row in [list(heads), *first]) for place in range(len(heads))]
    room = columns()
    for row in chain([list(heads)], first, clean):
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths[:-1], strict=True)]
        line = "  ".join([*cells, row[-1]]).rstrip()
        yield line if len(line) <= room else f"{line[: max(1, room - 1)]}…"


def columns() -> int:
    """How wide the terminal is; COLUMNS overrules, and a pipe has room enough."""
    if (told := os.environ.get("COLUMNS", "")).isdecimal() and int(told):
        return int(told)
    try:
        return os.get_terminal_size(1).columns or WIDE
    except OSError:
        return WIDE


def age(moment: datetime | None) -> str:
    """How long ago, or how soon, in one word."""
    if moment is None:
        return ""
    seconds = (datetime.now(UTC) - moment).total_seconds()
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if abs(seconds) >= size or unit == "s":
            return f"{int(abs(seconds) // size)}{unit}" + (" ago" if seconds >= 0 else "")
    return ""


JOB_HEADS = ("ID", "STATE", "KIND", "QUEUE", "TRIES", "AGE", "LABEL", "NOTE")


def job_table(jobs: Iterable[Job]) -> Iterator[str]:
    return table(JOB_HEADS, (job_row(job) for job in jobs))


def job_row(job: Job) -> list[str]:
    tries = f"{job.attempts}/{job.max_attempts or '∞'}"
    note = job.note or (job.error or "").partition("\n")[0] or _progress(job)
    return [str(job.id), job.state, job.kind, job.queue, tries, age(job.created_at), job.label or "", note]


def _progress(job: Job) -> str:
    if job.progress_done is None:
        return ""
    share = f"/{job.progress_total}" if job.progress_total else ""
    return f"{job.progress_done}{share} {job.progress_message or ''}".strip()


def job_lines(job: Job, attempts: list[Attempt], events: list[Event], reasons: list[str]) -> Iterator[str]:
    """All there is to say about one job."""
    yield f"job {job.id}  {job.state}  {job.kind}"
    facts = {
        "queue": f"{job.queue}, priority {job.priority}",
        "label": job.label,
        "key": job.key,
        "enqueued": f"{stamp(job.created_at)} by {job.actor}",
        "due": stamp(job.due_at),
        "ended": stamp(job.ended_at),
        "worker": job.worker,
        "progress": _progress(job),
        "payload": job.payload,
        "result": job.result,
        "error": job.error,
        "note": job.note,
        "why": "; ".join(reasons),
    }
    for name, value in facts.items():
        if value:
            first, *more = str(value).splitlines()
            yield f"  {name:9} {first}"
            yield from (f"            {line}" for line in more)
    if attempts:
        yield "attempts"
        for attempt in attempts:
            ended = attempt.reason or "running"
            begun = stamp(attempt.started_at)
            yield f"  {attempt.number}  {begun}  {ended}  token {attempt.token}  {attempt.worker or ''}".rstrip()
    yield "history"
    for event in events:
        yield f"  {stamp(event.at)}  {event.name}  {event.actor}  {event.detail or ''}".rstrip()


def stamp(moment: datetime | None) -> str:
    return "" if moment is None else moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def masked(url: str) -> str:
    """The URL without its password."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.replace(f":{parts.password}@", ":***@")))
