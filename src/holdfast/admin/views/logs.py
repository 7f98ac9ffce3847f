"""What programs have written, in whole lines and without the secrets of their jobs.

Ranges are counted in bytes of the file, but begin and end with lines: a secret that is cut in two could be read in two
answers. A line that is too long is cut only after it was masked.
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

#: What one answer holds of a log at most, in bytes of the file; a longer line is left out of it.
WINDOW = 256 * 1024
#: What is shown of a line.
LONGEST_LINE = 4000


class LogPart(Struct, frozen=True):
    """Lines of a log: where they *begin* and *end* in the file, and how large it is."""

    begin: int
    end: int
    size: int
    lines: list[str]


def find_log(folder: Path, job: Job, token: int) -> Path:
    """Where the log of one attempt is, if it is on this host.

    Raises:
        InvalidInput: The job is no program.
        NotFound: It ran on another host, or has written nothing yet.
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
    path: Path, values: Collection[str], *, begin: int | None = None, window: int = WINDOW, finished: bool = False
) -> LogPart:
    """The lines of a log that begin at *begin* or after it; None: its last ones.

    A line that has not come to its end is not shown, unless the program has *ended*.
    """
    with path.open("rb") as file:
        size = file.seek(0, 2)
        start = max(0, size - window) if begin is None else min(max(0, begin), size)
        # From one byte before: a range that begins right after a line's end begins with a line.
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
    # A line longer than the window is passed over.
    last = first + len(whole) if whole or read_until == size else read_until
    text = whole.decode(errors="replace")
    return LogPart(first, last, size, [_shown(line, values) for line in mask_lines(text, values).splitlines()])


def mask_lines(text: str, values: Collection[str]) -> str:
    """The text without secrets, as many lines as before: a secret of several lines is blotted out line by line."""
    for value in values:
        if "\n" in value:
            text = text.replace(value, "\n".join([MASK] * (value.count("\n") + 1)))
    return text


def search_log(path: Path, values: Collection[str], requested: str, *, limit: int = 200) -> list[tuple[int, str]]:
    """The last lines that hold what is *wanted*, with their numbers: it is looked for in what is shown alone."""
    found: list[tuple[int, str]] = []
    requested = requested.lower()
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            text = raw.decode(errors="replace").rstrip("\r\n")
            # What is not in the line is not in what is shown of it either.
            line = _shown(text, values) if requested in text.lower() else ""
            if line and requested in line.lower():
                found.append((number, line))
                del found[:-limit]
    return found


def _shown(line: str, values: Collection[str]) -> str:
    return clean_text(mask_text(line, values), limit=LONGEST_LINE)
