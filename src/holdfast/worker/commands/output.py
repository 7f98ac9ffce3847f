"""The output log of an attempt: capped in size, and never blocking the command."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger("holdfast")

#: Default size limit of a log in bytes. A log that reaches it loses its older half.
MAX_BYTES = 32 * 1024 * 1024
CUT = b"[what came before was cut off]\n"
#: Length of the log's end that a failure includes, in bytes.
TAIL_BYTES = 2000

#: Receives the output of commands as it arrives.
Echo = Callable[[bytes], None]


class AttemptLog:
    """The log of one attempt. A full disk costs output, but does not fail the command."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES, echo: Echo | None = None) -> None:
        self.path = path
        self._echo = echo
        self._max_bytes = max_bytes
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
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        if self._echo is not None:
            self._echo(data)
        if self._file is None:
            return
        try:
            if self._size + len(data) > self._max_bytes:
                self._shorten()
            self._size += _write_all(self._file, data[-self._max_bytes :])
        except OSError as error:
            if not self._lost:
                log.warning("the log %s loses lines: %s", self.path, error)
            self._lost += len(data)
            if error.errno != errno.ENOSPC:
                self.close()

    def tail(self) -> str:
        return self._tail.decode(errors="replace")

    def close(self) -> None:
        """Close the file. Some file systems report a full disk only now; this too costs only output."""
        if self._file is None:
            return
        file, self._file = self._file, None
        try:
            os.close(file)
        except OSError as error:
            log.warning("the log %s may have lost lines: %s", self.path, error)

    def _shorten(self) -> None:
        """Keep the newer half. A reader that follows the file sees that it has become shorter."""
        assert self._file is not None
        newer = os.pread(self._file, self._max_bytes // 2, max(0, self._size - self._max_bytes // 2))
        newer = newer[newer.find(b"\n") + 1 :]
        os.ftruncate(self._file, 0)
        self._size = _write_all(self._file, CUT + newer)


def _write_all(descriptor: int, data: bytes) -> int:
    written = 0
    while written < len(data):
        written += os.write(descriptor, data[written:])
    return written
