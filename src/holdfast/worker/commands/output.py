"""What a program writes, kept in a file of its attempt: capped, and never in the program's way."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger("holdfast")

#: A log holds at most so many bytes; then its older half goes.
LARGEST = 32 * 1024 * 1024
CUT = b"[what came before was cut off]\n"
#: The end of a log that is told with a failure, in bytes.
TAIL = 2000


#: Is given what programs write, as it comes.
Echo = Callable[[bytes], None]


class AttemptLog:
    """One attempt's log. A disk that is full costs lines, and nothing else."""

    def __init__(self, path: Path, *, largest: int = LARGEST, echo: Echo | None = None) -> None:
        self.path = path
        self._echo = echo
        self._largest = largest
        self._size = 0
        self._file: int | None = None
        self._lost = 0
        self._tail = b""
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            log.warning("the log %s cannot be written: %s", path, error)

    def write(self, data: bytes) -> None:
        """Add what the program has written."""
        self._tail = (self._tail + data)[-TAIL:]
        if self._echo is not None:
            self._echo(data)
        if self._file is None:
            return
        try:
            if self._size + len(data) > self._largest:
                self._shorten()
            self._size += _write_all(self._file, data[-self._largest :])
        except OSError as error:
            if not self._lost:
                log.warning("the log %s loses lines: %s", self.path, error)
            self._lost += len(data)
            if error.errno != errno.ENOSPC:
                self.close()

    def tail(self) -> str:
        """The end of it, for people."""
        return self._tail.decode(errors="replace")

    def close(self) -> None:
        """Let go of the file. Some disks tell only now that they are full: that costs lines, too, and nothing else."""
        if self._file is None:
            return
        file, self._file = self._file, None
        try:
            os.close(file)
        except OSError as error:
            log.warning("the log %s may have lost lines: %s", self.path, error)

    def _shorten(self) -> None:
        """Keep the newer half; whoever reads along notices that the file is shorter."""
        assert self._file is not None
        kept = os.pread(self._file, self._largest // 2, max(0, self._size - self._largest // 2))
        kept = kept[kept.find(b"\n") + 1 :]
        os.ftruncate(self._file, 0)
        self._size = _write_all(self._file, CUT + kept)


def _write_all(descriptor: int, data: bytes) -> int:
    written = 0
    while written < len(data):
        written += os.write(descriptor, data[written:])
    return written
