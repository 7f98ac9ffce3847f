"""What is up: one file for each store, locked for as long as its holder lives."""

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
    """What ``holdfast up`` runs for a store."""

    pid: int
    url: str
    worker: str
    queues: list[str]
    kinds: list[str]
    started_at: datetime
    log: str | None = None


class PidFile:
    """The place where one store's ``up`` tells of itself.

    The lock, not the file, says whether it lives: the system drops it with the process, however that ends.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    @classmethod
    def of(cls, url: str) -> PidFile:
        """The place of a store; a SQLite file is the same wherever one stands."""
        name = hashlib.sha256(_absolute(url).encode()).hexdigest()[:16]
        return cls(_folder() / f"{name}.json")

    @classmethod
    def all(cls) -> list[PidFile]:
        return [cls(path) for path in sorted(_folder().glob("*.json"))]

    @property
    def log(self) -> Path:
        """Where a detached ``up`` writes."""
        return self.path.with_suffix(".log")

    def take(self) -> None:
        """Become the one that is up.

        Raises:
            Conflict: Another process is.
        """
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            found = self.read()
            pid = "" if found is None else f", with pid {found.pid}"
            raise Conflict(f"Holdfast is up on this store already{pid}", hint="See holdfast status.") from None
        os.ftruncate(descriptor, 0)
        self._descriptor = descriptor

    def tell(self, up: UpStatus) -> None:
        """Say what is up; only after :meth:`take`."""
        assert self._descriptor is not None
        os.pwrite(self._descriptor, msgspec.json.encode(up), 0)

    def read(self) -> UpStatus | None:
        """What is up here: None when nothing is, or it has not yet said what."""
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
    """Everything of this user that is up, or what is up on one store."""
    for standing in PidFile.all() if url is None else [PidFile.of(url)]:
        found = standing.read()
        if found is not None:
            yield standing, found


def _folder() -> Path:
    return user_data(os.environ) / "up"


def _absolute(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme != "sqlite":
        return url
    return f"sqlite:///{Path(unquote(parts.path.removeprefix('/'))).expanduser().absolute()}"
