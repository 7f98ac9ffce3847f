"""The pid file of ``up``: one per store, locked by the process that is up."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct

from holdfast.errors import Conflict
from holdfast.settings import user_data


class UpStatus(Struct, frozen=True, kw_only=True):
    """A running ``holdfast up``."""

    pid: int
    url: str
    worker: str
    queues: list[str]
    kinds: list[str]
    started_at: datetime
    log: str | None = None


class PidFile:
    """The pid file of one store.

    The lock, not the file, shows that the process is alive: the kernel releases it however the process ends.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    @classmethod
    def of(cls, url: str) -> PidFile:
        """The pid file of a store; relative paths of one SQLite file share it."""
        name = hashlib.sha256(_absolute(url).encode()).hexdigest()[:16]
        return cls(_folder() / f"{name}.json")

    @classmethod
    def all(cls) -> list[PidFile]:
        return [cls(path) for path in sorted(_folder().glob("*.json"))]

    @property
    def log(self) -> Path:
        """The log of a detached ``up``."""
        return self.path.with_suffix(".log")

    def lock(self) -> None:
        """Lock the file for this process, or raise Conflict if another process holds the lock."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            running = self.read()
            pid = "" if running is None else f", with pid {running.pid}"
            raise Conflict(f"Holdfast is up on this store already{pid}", hint="See holdfast status.") from None
        os.ftruncate(descriptor, 0)
        self._descriptor = descriptor

    def write(self, status: UpStatus) -> None:
        """Write the status of this process; only after :meth:`lock`."""
        assert self._descriptor is not None
        os.pwrite(self._descriptor, msgspec.json.encode(status), 0)

    def read(self) -> UpStatus | None:
        """The status of the process that holds the lock; None without one, or before it has written its status."""
        try:
            with self.path.open("rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return msgspec.json.decode(file.read(), type=UpStatus)
        except (OSError, msgspec.DecodeError):
            pass
        return None


def all_up(url: str | None = None) -> Iterator[tuple[PidFile, UpStatus]]:
    """The processes of this user that are up, on all stores or on one."""
    for pid_file in PidFile.all() if url is None else [PidFile.of(url)]:
        status = pid_file.read()
        if status is not None:
            yield pid_file, status


def _folder() -> Path:
    return user_data(os.environ) / "up"


def _absolute(url: str) -> str:
    split = urlsplit(url)
    if split.scheme != "sqlite":
        return url
    return f"sqlite:///{Path(unquote(split.path.removeprefix('/'))).expanduser().absolute()}"
