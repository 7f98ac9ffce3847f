"""The log files of attempts on this host: capped in size, never blocking a command, and deleted with their jobs."""

from __future__ import annotations

import errno
import logging
import math
import os
import re
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from holdfast.domain.commands.command import COMMAND, load_command
from holdfast.domain.jobs.job import Job, JobId
from holdfast.domain.names import path_part
from holdfast.domain.quantities import host_limit
from holdfast.domain.retention import ZERO
from holdfast.errors import InvalidInput
from holdfast.store import Store

log = logging.getLogger("holdfast")

LOST = b"[output is lost here: the disk is full, or nearly so]\n"
#: Default size limit of a log in bytes. A log that reaches it loses its older half.
MAX_BYTES = 32 * 1024 * 1024
CUT = b"[what came before was cut off]\n"
#: Free space that logs leave on their disk, for the store and for other programs; a tenth of a small disk.
KEEP_FREE = "64M"
#: Length of the log's end that a failure includes, in bytes.
TAIL_BYTES = 2000
#: A log with a more recent write stays, even if the store has no job for it.
MIN_AGE_S = 60.0
#: A step that deletes at least this share of the logs it checks has found a backlog: the next one follows at once.
BACKLOG_SHARE = 0.1
#: Tries to create a log while maintenance removes the empty folder that it belongs into.
CREATE_TRIES = 5
_NAME = re.compile(r"(\d{1,18})-\d+\.log")

#: Receives the output of commands as it arrives.
Echo = Callable[[bytes], None]


def log_path(folder: Path, job_id: int, token: int, parameters: Mapping[str, str]) -> Path:
    """The log of one attempt, in one folder level per parameter."""
    levels = [f"{name}={path_part(value)}" for name, value in parameters.items()]
    return folder.joinpath(*levels, f"{job_id}-{token}.log")


class AttemptLog:
    """The log of one attempt; its file begins with the first output. A full disk costs output, and fails no command.

    Nothing is written while the disk has less than *keep_free*, a size or a share: the store may be there.
    """

    def __init__(
        self, path: Path, *, max_bytes: int = MAX_BYTES, echo: Echo | None = None, keep_free: str = KEEP_FREE
    ) -> None:
        self.path = path
        self._keep_free = keep_free
        self._echo = echo
        self._max_bytes = max_bytes
        self._size = 0
        self._file: int | None = None
        self._lost = 0
        self._tail = b""
        with suppress(OSError):
            if path.is_file():  # of an earlier store with the same ids
                path.unlink()

    @property
    def lost(self) -> str | None:
        """What is missing in the file, because the disk was full or nearly full; None: nothing."""
        return f"{self._lost:,} bytes of its output are not in its log: the disk was full" if self._lost else None

    @property
    def has_output(self) -> bool:
        return bool(self._tail)

    def _open(self) -> None:
        for tries in range(CREATE_TRIES):
            try:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
            except OSError as error:
                if isinstance(error, FileNotFoundError) and tries + 1 < CREATE_TRIES:
                    continue
                log.warning("cannot write the log %s: %s", self.path, error)
            return

    def write(self, data: bytes) -> None:
        if not self._tail:
            self._open()
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        if self._echo is not None:
            self._echo(data)
        if self._file is None:
            return
        try:
            if _is_nearly_full(self._file, self._keep_free, factor=2 if self._lost else 1):
                self._lose(data, f"less than {self._keep_free}, or a tenth, of its disk is free", marks=True)
                return
            if self._size + len(data) > self._max_bytes:
                self._shorten()
            self._size += _write_all(self._file, data[-self._max_bytes :])
        except OSError as error:
            self._lose(data, str(error), marks=error.errno == errno.ENOSPC)
            if error.errno != errno.ENOSPC:
                self.close()

    def _lose(self, data: bytes, reason: str, *, marks: bool) -> None:
        """Count lost output. The first loss is logged; *marks*: the file can have a line about it."""
        if not self._lost:
            log.warning("the log %s loses lines: %s", self.path, reason)
            if marks and self._file is not None:
                with suppress(OSError):
                    self._size += _write_all(self._file, LOST)
        self._lost += len(data)

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


def free_floor(keep_free: str, total: int) -> int:
    """The free bytes that logs leave on a disk of *total* bytes."""
    return min(host_limit(keep_free, total), total // 10)


def _is_nearly_full(file: int, keep_free: str, *, factor: int = 1) -> bool:
    """Whether the disk of a file has less free space than logs leave. *factor*: to go on again, it needs more."""
    disk = os.fstatvfs(file)
    return disk.f_bavail * disk.f_frsize < factor * free_floor(keep_free, disk.f_blocks * disk.f_frsize)


def _write_all(descriptor: int, data: bytes) -> int:
    written = 0
    while written < len(data):
        written += os.write(descriptor, data[written:])
    return written


class DeletedJobLogs:
    """The logs of jobs that are going to be deleted. Read them before: afterwards the store has no trace of them."""

    def __init__(self, folder: Path, jobs: Iterable[Job]) -> None:
        self._folder = folder
        self._here: dict[JobId, list[Path]] = {}
        self._elsewhere: set[JobId] = set()
        for job in jobs:
            if paths := _existing_logs(folder, job):
                self._here[job.id] = paths
            elif job.kind == COMMAND and job.worker is not None and not ran_here(job.worker):
                self._elsewhere.add(job.id)

    def delete(self, deleted: Collection[JobId]) -> None:
        """Delete the logs of deleted jobs: the store never deletes a running one, and no id is used again."""
        for path in (path for job_id in deleted for path in self._here.get(job_id, ())):
            _delete_log(path, self._folder)

    def count_left(self, deleted: Collection[JobId]) -> int:
        """The number of deleted jobs whose logs are on other hosts, where maintenance deletes them."""
        return len(self._elsewhere.intersection(deleted))


def _existing_logs(folder: Path, job: Job) -> list[Path]:
    if job.kind != COMMAND:
        return []
    try:
        parameters = load_command(job.payload).parameters
    except (msgspec.DecodeError, InvalidInput):
        return []  # maintenance finds it by its name
    paths = (log_path(folder, job.id, token, parameters) for token in range(1, job.token + 1))
    return [path for path in paths if path.is_file()]


def ran_here(worker: str) -> bool:
    """Whether a worker is one of this host."""
    return worker.startswith(f"{socket.gethostname()[:40]}-")


def _delete_log(path: Path, root: Path) -> None:
    """Delete a log and the folders that become empty, up to *root*."""
    with suppress(OSError):  # another process on this host was faster, or a folder is not empty
        path.unlink()
        for folder in path.parents:
            if folder == root:
                return
            folder.rmdir()


class _LogFile(NamedTuple):
    path: Path
    job_id: JobId
    age_s: float


class LogFiles:
    """The folder of logs. :meth:`prune` walks through it in small steps.

    A log is deleted when its job is gone, or when nothing was written to it for *max_age*; zero is no limit.
    """

    def __init__(self, store: Store, folder: Path, *, max_age: timedelta = ZERO) -> None:
        self._store = store
        self._folder = folder
        self._max_age_s = max_age.total_seconds() or math.inf
        self._rest: Iterator[_LogFile] = iter(())

    def prune(self, *, limit: int) -> tuple[int, bool]:
        """Check up to *limit* logs; returns the number of deleted ones, and whether many more are likely."""
        files = list(islice(self._rest, limit))
        if not files:
            self._rest = _old_logs(self._folder)
            files = list(islice(self._rest, limit))
        existing = self._store.views.existing([file.job_id for file in files])
        gone = [file.path for file in files if file.job_id not in existing or file.age_s > self._max_age_s]
        for path in gone:
            _delete_log(path, self._folder)
        return len(gone), len(files) == limit and len(gone) >= BACKLOG_SHARE * limit


def _old_logs(folder: Path) -> Iterator[_LogFile]:
    """The logs in a folder and its folders, as far as they exist: this process and others delete some meanwhile."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _old_logs(Path(entry.path))
            elif (match := _NAME.fullmatch(entry.name)) and (age_s := _age_s(entry)) > MIN_AGE_S:
                yield _LogFile(Path(entry.path), JobId(int(match[1])), age_s)


def _age_s(entry: os.DirEntry[str]) -> float:
    """The time since the last write to a file; zero if it is gone."""
    try:
        return time.time() - entry.stat().st_mtime
    except OSError:
        return 0.0
