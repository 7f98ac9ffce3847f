"""The pid file of ``up``: its lock, and the status of the process that has it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from holdfast.cli.session import CliSession
from holdfast.domain.access.masking import MASK, mask_store_url
from holdfast.domain.store_url import SCHEME, without_driver
from holdfast.errors import Conflict
from holdfast.settings import sqlite_file, user_data
from holdfast.store.engine.forks import ForkSafe, survive_forks
from holdfast.worker.commands.identity import ProcessId

#: A new process waits this long for others that only read the pid file, and tries this often.
LOCK_TIMEOUT_S, LOCK_RETRY_S = 2.0, 0.005


class UpStatus(Struct, frozen=True, kw_only=True):
    """A running ``holdfast up``."""

    pid: int
    url: str
    worker: str
    queues: list[str]
    kinds: list[str]
    started_at: datetime
    log: str | None = None
    #: The address of its dashboard.
    web: str | None = None

    def conflict(self) -> Conflict:
        """The error of a second process on the same store."""
        url = "URL" if MASK in self.url else shlex.quote(self.url)  # a masked password finds no store
        hint = f"See holdfast status. To stop it: holdfast down --url {url}"
        return Conflict(f"Holdfast is up on this store already, with pid {self.pid}: {self.url}", hint=hint)


class PidRecord(Struct, frozen=True):
    """The content of the file: the process that has the lock, and its status once it is up."""

    process: ProcessId
    status: UpStatus | None = None


class PidFile(ForkSafe):
    """The pid file of one store.

    The lock shows that the process is alive: the kernel releases it however the process ends. A process that it has
    forked gives its copy of the lock up. If another library has forked one that keeps it, pid and start time decide.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    @classmethod
    def of(cls, url: str) -> PidFile:
        """The pid file of a store; all names of one SQLite file share it, and so do URLs with and without a driver."""
        url = f"sqlite:///{sqlite_file(url)}" if url.startswith(SCHEME) else without_driver(url)
        return cls(folder() / f"{hashlib.sha256(url.encode()).hexdigest()[:16]}.json")

    @property
    def log(self) -> Path:
        """The log of a detached ``up``."""
        return self.path.with_suffix(".log")

    def lock(self) -> None:
        """Lock the file for this process, or raise Conflict if another process holds the lock."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        pause, began = threading.Event(), time.monotonic()
        while (descriptor := self._try_lock()) is None:
            # A process that reads the file holds the lock for a moment; only one that is up has a status in it.
            if (running := self.read()) is not None or time.monotonic() - began > LOCK_TIMEOUT_S:
                text = "Holdfast is up on this store already"
                raise Conflict(text, hint="See holdfast status.") if running is None else running.conflict()
            pause.wait(LOCK_RETRY_S)
        self._descriptor = descriptor
        survive_forks(self)
        self._write(None)

    def write(self, status: UpStatus) -> None:
        """Write the status of this process; only after :meth:`lock`."""
        self._write(status)

    def read(self) -> UpStatus | None:
        """The status of the process that holds the lock; None without one, or before it has written its status."""
        record = self._record()
        return None if record is None or record.process.is_gone else record.status

    def terminate(self) -> None:
        """Send SIGTERM to the process that holds the lock, and to no later one with its number."""
        if (record := self._record()) is not None:
            record.process.send(signal.SIGTERM)

    def after_fork_in_child(self) -> None:
        """Close the copy of the lock: it would count as this process for as long as the child lives."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _record(self) -> PidRecord | None:
        """The content of the file while a process has the lock."""
        try:
            with self.path.open("rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return msgspec.json.decode(file.read(), type=PidRecord)
        except (OSError, msgspec.MsgspecError):
            pass
        return None

    def _write(self, status: UpStatus | None) -> None:
        assert self._descriptor is not None
        data = msgspec.json.encode(PidRecord(ProcessId.of(os.getpid()), status))
        os.pwrite(self._descriptor, data, 0)
        os.ftruncate(self._descriptor, len(data))

    def _try_lock(self) -> int | None:
        """A descriptor with the lock, or None. A file whose process is gone is replaced: a fork of it has the lock."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if _try_flock(descriptor) and self._is_current(descriptor):
            return descriptor
        os.close(descriptor)
        with self._guard():
            if (record := self._record()) is not None and record.process.is_gone:
                self.path.unlink(missing_ok=True)
        return None

    def _is_current(self, descriptor: int) -> bool:
        """Whether the path still leads to this file, and not to one that has replaced it."""
        try:
            return os.path.samestat(os.fstat(descriptor), self.path.stat())
        except FileNotFoundError:
            return False

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """One process at a time decides that a file is outdated."""
        descriptor = os.open(self.path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def folder() -> Path:
    """The folder of the pid files of this user."""
    return user_data(os.environ) / "up"


def _try_flock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def all_up(url: str | None = None) -> Iterator[tuple[PidFile, UpStatus]]:
    """The processes of this user that are up, on all stores or on one."""
    pid_files = [PidFile(path) for path in sorted(folder().glob("*.json"))] if url is None else [PidFile.of(url)]
    return ((pid_file, status) for pid_file in pid_files if (status := pid_file.read()) is not None)


def elsewhere(session: CliSession) -> str:
    """Where this user's processes are up, if a store is named and nothing is up on it."""
    stores = [] if session.named_url is None else [f"{status.url} (pid {status.pid})" for _, status in all_up()]
    return f" on {mask_store_url(session.url)}; up on: {', '.join(stores)}" if stores else ""
