"""Views of command logs: whole lines, with the secrets of their jobs masked.

A range counts bytes of the file, but begins and ends with a line: a secret that is cut in two would not be masked. A
long line is cut after it was masked.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import msgspec
from msgspec import Struct

from holdfast.domain.access.masking import MASK, mask_text
from holdfast.domain.commands.command import COMMAND, load_command
from holdfast.domain.jobs.job import Job
from holdfast.domain.names import clean_text
from holdfast.errors import InvalidInput, NotFound
from holdfast.worker.commands.executor import log_path

#: Bytes of a log in one answer; a longer line is left out.
WINDOW_BYTES = 256 * 1024
#: Characters of a line.
MAX_LINE_LENGTH = 4000


class LogPart(Struct, frozen=True):
    """Lines of a log: where they *begin* and *end* in the file, and how large it is."""

    begin: int
    end: int
    size: int
    lines: list[str]


def find_log(folder: Path, job: Job, token: int) -> Path:
    """The log file of one attempt.

    Raises:
        InvalidInput: The job is not a command.
        NotFound: It ran on another host, or has no output yet.
    """
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


def search_log(path: Path, values: Collection[str], text: str, *, limit: int = 200) -> list[tuple[int, str]]:
    """The last lines that contain *text*, with their numbers. Masked parts of a line do not match."""
    matches: list[tuple[int, str]] = []
    text = text.lower()
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            decoded = raw.decode(errors="replace").rstrip("\r\n")
            # Masking is slow: lines that do not match are not masked.
            line = _shown(decoded, values) if text in decoded.lower() else ""
            if line and text in line.lower():
                matches.append((number, line))
                del matches[:-limit]
    return matches


def _shown(line: str, values: Collection[str]) -> str:
    return clean_text(mask_text(line, values), limit=MAX_LINE_LENGTH)
