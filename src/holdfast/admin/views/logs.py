"""Views of the logs of commands, with secrets masked."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

from holdfast.admin.views.job_detail import mask_field
from holdfast.admin.views.jobs import masked_job
from holdfast.admin.views.payload_secrets import job_secrets
from holdfast.domain.access.masking import MASK, mask_text
from holdfast.domain.commands.command import COMMAND, load_command
from holdfast.domain.commands.log_stream import SecretFilter
from holdfast.domain.jobs.history import Attempt
from holdfast.domain.jobs.job import JobId
from holdfast.domain.names import clean_text
from holdfast.errors import InvalidInput, NotFound
from holdfast.store import Store

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


class LogMatches(Struct, frozen=True):
    """Lines of a log that contain a text, with their numbers; not *complete*: the search took too long and ended."""

    lines: list[tuple[int, str]]
    complete: bool


class JobLogs:
    """The logs of one job, by the token of an attempt. Secrets of the payload are masked."""

    def __init__(self, store: Store, folder: Path, job_id: int) -> None:
        job = store.views.get(JobId(job_id))
        #: The job, masked.
        self.job = masked_job(job, store)
        self._payload, self._secrets = job.payload, job_secrets(store, job)
        self._store, self._folder = store, folder

    def attempts(self) -> list[Attempt]:
        """Every attempt until now."""
        return [mask_field(each, "error", self._secrets) for each in self._store.views.attempts(self.job.id)]

    def is_finished(self) -> bool:
        """Whether no attempt follows."""
        return self._store.views.state(self.job.id).finished

    def secret_filter(self) -> SecretFilter:
        """A filter for a log that is read as a stream."""
        return SecretFilter(self._secrets)

    def refuse_handler(self) -> None:
        """Refuse a job that is not a command: it has no logs."""
        if self.job.kind != COMMAND:
            worker = "its worker" if self.job.worker is None else f"worker {self.job.worker}"
            hint = f"Its handler prints and logs to the output of {worker}. Errors: holdfast show {self.job.id}."
            raise InvalidInput(f"job {self.job.id} runs a Python handler: only commands have a log", hint=hint)

    def path(self, token: int) -> Path:
        """The log file of one attempt. It is missing if the command ran on another host, or wrote no output."""
        from holdfast.worker.commands.log_files import log_path

        self.refuse_handler()
        try:
            return log_path(self._folder, self.job.id, token, load_command(self._payload).parameters)
        except (msgspec.DecodeError, InvalidInput):
            raise NotFound(f"the payload of job {self.job.id} cannot be read, and so its log cannot be found") from None

    def read(self, token: int, *, begin: int | None = None) -> LogPart:
        """The lines of one attempt that begin at the offset *begin* or after it; without it, the last lines."""
        path = self._existing(token)
        if path is None:
            return LogPart(0, 0, 0, [])
        finished = self.job.state.finished or token != self.job.token
        return read_log(path, self._secrets, begin=begin, finished=finished)

    def search(self, token: int, text: str) -> LogMatches:
        """The last lines of one attempt that contain *text*."""
        path = self._existing(token)
        return LogMatches([], complete=True) if path is None else search_log(path, self._secrets, text)

    def ran_here(self, token: int) -> bool:
        """Whether this host ran the attempt: if its log is missing, there was no output, or it was deleted."""
        from holdfast.worker.commands.log_files import ran_here

        workers = [each.worker for each in self._store.views.attempts(self.job.id) if each.token == token]
        return any(worker is not None and ran_here(worker) for worker in workers)

    def _existing(self, token: int) -> Path | None:
        """The log file of one attempt; None: it wrote no output."""
        path = self.path(token)
        if path.is_file():
            return path
        if self.ran_here(token):
            return None
        hint = f"Worker {self.job.worker} ran it on its own host." if self.job.worker else "No worker has run it."
        raise NotFound(f"there is no log of job {self.job.id} on this host", hint=hint)


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
