"""Views of jobs, their history and their logs, with secrets masked."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec
from msgspec import Struct, structs

from holdfast.admin.views.masking import Masks, mask_payload, values_of
from holdfast.domain.access.masking import MASK, mask_cut, mask_json, mask_text
from holdfast.domain.commands.command import COMMAND, load_command
from holdfast.domain.jobs.history import Attempt, Event
from holdfast.domain.jobs.job import Job
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.why import WhyReason
from holdfast.domain.names import clean_text
from holdfast.errors import InvalidInput, NotFound
from holdfast.store import Store
from holdfast.store.fleet.dashboard import DependencyEdge, JobRecord
from holdfast.store.jobs.queries import LEFT_OUT

T = TypeVar("T", Attempt, Event)

#: Fields that hold JSON in the store, and are decoded in a view.
JSON_FIELDS = ("payload", "result", "checkpoint", "tags", "retry", "refusals")
#: Fields of text that may contain a secret of the payload.
TEXT_FIELDS = ("error", "note", "progress_message", "label", "key")

_VIEW_FIELDS = [(field.name, Any if field.name in JSON_FIELDS else field.type) for field in structs.fields(Job)]
#: *claimed*: a worker holds the job, and has not recorded its start.
JobView = msgspec.defstruct(
    "JobView",
    [*_VIEW_FIELDS, ("claimed", bool)],
    frozen=True,
    namespace={"__doc__": "A job: its request, its present state and its outcome."},
)


class Reasons(Struct, frozen=True):
    """Why a job is not running, the nearest reason first."""

    reasons: list[WhyReason]


class JobDetail(Struct, frozen=True):
    """One job: its state and the reasons for it, its attempts, its history."""

    job: JobView  # type: ignore[valid-type]
    attempts: list[Attempt]
    events: list[Event]
    why: list[WhyReason]


def masked_job(job: Job, masks: Masks | None = None) -> Job:
    """A job without secrets: none in its payload, and none of the payload's in its texts."""
    declared = () if masks is None else masks.of(job.kind)
    values = values_of(job.kind, job.payload, declared)
    texts: dict[str, str | None] = {name: getattr(job, name) for name in TEXT_FIELDS}
    masked = {name: mask_cut(text, values) for name, text in texts.items() if text is not None}
    documents: dict[str, str | None] = {name: getattr(job, name) for name in JSON_FIELDS}
    del documents["payload"]
    for name, text in documents.items():
        if text is not None:
            masked[name] = msgspec.json.encode(mask_json(text, declared, values)).decode()
    return structs.replace(job, payload=mask_payload(job.kind, job.payload, declared, values), **masked)


def job_view(job: Job, masks: Masks | None = None, *, brief: bool = False) -> dict[str, Any]:
    """A job as the fields of :data:`JobView`, without secrets; *brief* leaves out the payload."""
    return decoded_job(masked_job(job, masks), brief=brief)


def decoded_job(job: Job, *, brief: bool = False) -> dict[str, Any]:
    """The fields of :data:`JobView` of a :func:`masked_job`."""
    data: dict[str, Any] = {**msgspec.to_builtins(job), "attempts": job.tries, "claimed": job.claimed}
    for name in JSON_FIELDS:
        data[name] = None if data[name] is None else msgspec.json.decode(data[name])
    return {**data, "payload": None} if brief else data


def masked_jobs(jobs: Sequence[Job], masks: Masks, store: Store) -> list[Job]:
    """The rows of a list, without secrets. Payloads that the list leaves out are read to find their secrets."""
    ids = tuple(job.id for job in jobs if job.payload == LEFT_OUT)
    payloads = {job.id: job.payload for job in store.views.page(Selector(ids=ids), limit=len(ids)).jobs} if ids else {}
    return [masked_job(structs.replace(job, payload=payloads.get(job.id, job.payload)), masks) for job in jobs]


def list_views(jobs: Sequence[Job], masks: Masks, store: Store) -> list[dict[str, Any]]:
    """The rows of a list, without secrets and payloads."""
    return [decoded_job(job, brief=True) for job in masked_jobs(jobs, masks, store)]


def edge_views(edges: Sequence[DependencyEdge], masks: Masks, store: Store) -> list[DependencyEdge]:
    """Dependencies, with secrets of the far jobs masked in their labels."""
    ids = tuple({edge.far for edge in edges if edge.label is not None})
    jobs = store.views.page(Selector(ids=ids), limit=len(ids)).jobs if ids else []
    labels = {job.id: masked_job(job, masks).label for job in jobs}
    return [structs.replace(edge, label=labels.get(edge.far)) for edge in edges]


def job_detail(record: JobRecord, masks: Masks | None = None) -> JobDetail:
    job = record.job
    values = values_of(job.kind, job.payload, () if masks is None else masks.of(job.kind))
    return JobDetail(
        job=job_view(job, masks),
        attempts=[_masked(each, "error", values) for each in record.attempts],
        events=[_masked(each, "detail", values) for each in record.events],
        why=[structs.replace(each, text=mask_text(each.text, values)) for each in record.why],
    )


def _masked(row: T, field: str, values: list[str]) -> T:
    text = getattr(row, field)
    return row if text is None else structs.replace(row, **{field: mask_cut(text, values)})


#: Bytes of a log in one answer; a longer line is left out.
WINDOW_BYTES = 256 * 1024
#: Characters of a line.
MAX_LINE_LENGTH = 4000
#: Limits of a search in a log: the piece of a line that is searched, bytes in all, and time.
SEARCH_PIECE_BYTES = 64 * 1024
MAX_SEARCH_BYTES = 256 * 1024 * 1024
MAX_SEARCH_S = 3.0


class LogPart(Struct, frozen=True):
    """Lines of a log: where they *begin* and *end* in the file, and how large it is."""

    begin: int
    end: int
    size: int
    lines: list[str]


def find_log(folder: Path, job: Job, token: int) -> Path:
    """The log file of one attempt. It is missing if the command ran on another host, or has no output yet."""
    from holdfast.worker.commands.executor import log_path

    if job.kind != COMMAND:
        raise InvalidInput(f"job {job.id} is no program, and has no log", hint="See holdfast show.")
    try:
        path = log_path(folder, job.id, token, load_command(job.payload).parameters)
    except (msgspec.DecodeError, InvalidInput):
        raise NotFound(f"the payload of job {job.id} cannot be read, and so its log cannot be found") from None
    if not path.is_file():
        raise NotFound(f"there is no log of job {job.id} on this host", hint=f"It was run by {job.worker or 'nobody'}.")
    return path


def read_log(
    path: Path, values: Collection[str], *, begin: int | None = None, window: int = WINDOW_BYTES, finished: bool = False
) -> LogPart:
    """The lines that begin at the offset *begin* or after it; without it, the last lines.

    An incomplete last line is left out, unless the command has *finished*.
    """
    with path.open("rb") as file:
        size = file.seek(0, 2)
        start = max(0, size - window) if begin is None else min(max(0, begin), size)
        # Read one byte more, to see whether the range begins with a line.
        file.seek(max(0, start - 1))
        data = file.read(window + 1)
    skipped = 0
    if start:
        cut = data.find(b"\n")
        skipped = len(data) if cut < 0 else cut + 1
    first, read_until = max(0, start - 1) + skipped, max(0, start - 1) + len(data)
    whole = data[skipped:]
    if not (finished and read_until == size):
        whole = whole[: whole.rfind(b"\n") + 1]
    # A line longer than the window is skipped.
    last = first + len(whole) if whole or read_until == size else read_until
    text = whole.decode(errors="replace")
    return LogPart(first, last, size, [_shown(line, values) for line in mask_lines(text, values).splitlines()])


def mask_lines(text: str, values: Collection[str]) -> str:
    """Mask secrets of several lines line by line, so that the number of lines stays the same."""
    for value in values:
        if "\n" in value:
            text = text.replace(value, "\n".join([MASK] * (value.count("\n") + 1)))
    return text


class LogMatches(Struct, frozen=True):
    """Lines of a log that contain a text, with their numbers; not *complete*: the search took too long and ended."""

    lines: list[tuple[int, str]]
    complete: bool


def search_log(
    path: Path, values: Collection[str], text: str, *, limit: int = 200, seconds: float = MAX_SEARCH_S
) -> LogMatches:
    """The last lines that contain *text*, with their numbers. Masked parts of a line do not match.

    The search ends after :data:`MAX_SEARCH_BYTES`, and after some *seconds*.
    """
    matches: deque[tuple[int, str]] = deque(maxlen=limit)
    text = text.lower()
    with path.open("rb") as file:
        for number, raw in enumerate(_line_starts(file, time.monotonic() + seconds), 1):
            decoded = raw.decode(errors="replace").rstrip("\r\n")
            # Masking is slow: lines that do not match are not masked.
            line = _shown(decoded, values) if text in decoded.lower() else ""
            if line and text in line.lower():
                matches.append((number, line))
        return LogMatches(list(matches), complete=not file.read(1))


def _line_starts(file: BinaryIO, end: float) -> Iterator[bytes]:
    """The first piece of each line, until the time *end*: a line of many megabytes is never held as a whole."""
    is_start, size = True, 0
    while time.monotonic() < end and size < MAX_SEARCH_BYTES and (piece := file.readline(SEARCH_PIECE_BYTES)):
        size += len(piece)
        if is_start:
            yield piece
        is_start = piece.endswith(b"\n")


def _shown(line: str, values: Collection[str]) -> str:
    return clean_text(mask_text(line, values), limit=MAX_LINE_LENGTH)
