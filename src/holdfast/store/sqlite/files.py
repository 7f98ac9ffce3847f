"""The file of a SQLite store: private, local, opened only by SQLite; its errors become Holdfast's."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.errors import (
    NetworkFileSystem,
    NotAStore,
    StatementTimeout,
    StoreFull,
    StoreLocked,
    StoreMoved,
    StoreReadOnly,
    StoreUnavailable,
)
from holdfast.store.engine.backend import PlanRecorded

_REMOTE_TYPES = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "9p", "fuse.sshfs", "glusterfs", "ceph", "lustre"}
)
#: A file system with less room is full: SQLite needs some pages for the log and its index.
FULL_BYTES = 1_000_000


def create_private(path: Path) -> None:
    """Create an empty file that only this user can read, unless it exists.

    An existing file is not opened: closing a second descriptor would release SQLite's locks.
    """
    if path.is_dir():
        raise StoreReadOnly(f"{path} is a directory, not a file", path=str(path), hint="Name a file in it.")
    try:
        if not path.parent.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except (PermissionError, NotADirectoryError) as error:
        raise StoreReadOnly(f"the store cannot be created: {error}", path=str(path)) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(f"the store cannot be created: {error}", path=str(path)) from error
        raise StoreUnavailable(f"the store cannot be created: {error}", path=str(path)) from error


def refuse_network_file_system(path: Path, *, mounts: str | None = None) -> None:
    """Raise NetworkFileSystem if *path* is on one; *mounts* is the text of /proc/mounts."""
    if mounts is None:
        try:
            mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return
    kind = _file_system(path, mounts)
    if kind in _REMOTE_TYPES:
        raise NetworkFileSystem(f"{path} lies on a network file system ({kind})", path=str(path), file_system=kind)


def _file_system(path: Path, mounts: str) -> str:
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ")
        if len(point) >= len(best) and path.is_relative_to(point):
            best, kind = point, fields[2]
    return kind


def size_of(path: str) -> int:
    """The size of a file, 0 if it does not exist."""
    try:
        return os.stat(path).st_size  # noqa: PTH116 - called at every commit
    except OSError:
        return 0


class OpenLog:
    """The log of a file and the log's index, as the connections of this process have them open.

    SQLite does not notice that they are deleted: it goes on in files that no other process sees.
    """

    def __init__(self, database: str) -> None:
        self._database = database
        self._log, self._index = f"{database}-wal", f"{database}-shm"
        #: The inodes of both; None while this process keeps no connection, and SQLite may delete them.
        self._inodes: tuple[int, int] | None = None
        #: The size of the log when a transaction began last, and when the log had changed before.
        self.size = self.changed_ns = 0

    def opened(self) -> None:
        """A connection that stays open has read the file."""
        if self._inodes is None:
            with suppress(OSError):
                self._inodes = os.stat(self._log).st_ino, os.stat(self._index).st_ino  # noqa: PTH116 - texts

    def closed(self) -> None:
        """No connection of this process is left."""
        self._inodes = None

    def is_present(self) -> bool:
        """Whether both are what they were when this process opened them."""
        try:
            log, index = os.stat(self._log), os.stat(self._index)  # noqa: PTH116 - in every transaction
        except OSError:
            return self._inodes is None
        if self._inodes is not None and (log.st_ino, index.st_ino) != self._inodes:
            return False
        self.size, self.changed_ns = log.st_size, log.st_mtime_ns
        return True

    def deleted(self) -> StoreUnavailable:
        """The error of a process whose log was deleted."""
        text = f"{self._log} or {self._index} was deleted or replaced while the store was open"
        hint = "Stop all processes that use the store, then start them again. Never delete these files: they hold jobs."
        return StoreUnavailable(text, hint=hint)


def is_full(path: Path) -> bool:
    """Whether the file system of a store has no room for another change, or for another file."""
    try:
        system = os.statvfs(path.parent)
    except OSError:
        return False
    return system.f_bavail * system.f_frsize < FULL_BYTES or (system.f_files > 0 and system.f_favail == 0)


@contextmanager
def translated(path: Path | None = None) -> Iterator[None]:
    """Raise Holdfast's errors in place of SQLite's; *path* is the file of the store, whose disk may be full."""
    try:
        yield
    except sqlite3.Error as error:
        unopened = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CANTOPEN
        if unopened and path is not None and not os.access(path.parent, os.W_OK):
            text = f"{path.parent} cannot be written, and SQLite needs to write beside its file: {error}"
            raise StoreReadOnly(text, path=str(path)) from error
        # Most calls of SQLite report a file that cannot grow as an error of input and output.
        if _primary(error) in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and path is not None and is_full(path):
            raise StoreFull(f"the disk of {path} is full: {error}") from error
        raise _translate(error) from error


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection holds the lock of the file."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _primary(error: sqlite3.Error) -> int | None:
    """The primary code of an error of SQLite; None for one of Python's module."""
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _translate(error: sqlite3.Error) -> Exception:
    match _primary(error):
        case sqlite3.SQLITE_FULL:
            return StoreFull("the disk is full")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return StoreReadOnly(f"the store cannot be written: {error}")
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return NotAStore(f"the file is not a SQLite database, or it is damaged: {error}")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreLocked(f"another program keeps the store locked: {error}")
        case sqlite3.SQLITE_INTERRUPT:
            return StatementTimeout("a statement took too long and was cancelled")
        case sqlite3.SQLITE_CANTOPEN:
            return StoreUnavailable(f"the store cannot be opened: {error}")
        case sqlite3.SQLITE_CONSTRAINT if str(error).startswith("E_STORE_MOVED: "):
            return StoreMoved(str(error).removeprefix("E_STORE_MOVED: "))
        case sqlite3.SQLITE_CONSTRAINT if "failed: holdfast_plan.schedule" in str(error):
            return PlanRecorded(f"a plan is recorded already: {error}")
        case sqlite3.SQLITE_IOERR:
            return StoreUnavailable(f"the disk failed: {error}")
        case _:
            return error
