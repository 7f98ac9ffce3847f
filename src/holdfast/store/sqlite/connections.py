"""The connections of a process to one SQLite file, and what a fork means for them.

SQLite keeps the locks of a file in the memory of the process. A child that inherits an open connection inherits
that memory, but not the locks: another process could delete the log under it. So all connections are closed
before a fork.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from holdfast.errors import StoreUnavailable
from holdfast.store.engine import forks
from holdfast.store.sqlite.files import is_busy

#: Files that this process, a forked child, cannot use: it has inherited an open connection to them.
_INHERITED_FILES: set[str] = set()
#: Keeps inherited connections alive: closing one would change the log that the parent uses.
_INHERITED: list[Any] = []

#: Seconds between two attempts to switch a locked file to WAL.
WAL_RETRY_S = 0.01


def refuse_inherited(file: str) -> None:
    """Raise StoreUnavailable if this process was forked while a connection to *file* was in use."""
    if file in _INHERITED_FILES:
        raise StoreUnavailable(
            f"this process was forked while a transaction on {file} was open, and SQLite cannot be used in it",
            hint="Fork outside of transactions, or start the process with the method spawn.",
        )


def _refuse_inherited_locks(connection: sqlite3.Connection, file: str) -> None:
    """In a forked child: raise StoreUnavailable if a connection of the caller to *file* is inherited and still open.

    New connections share its memory, and take no lock of their own: another process could delete the log under them.
    """
    if not forks.is_child():
        return
    connection.execute("SELECT 1 FROM sqlite_master").fetchall()  # from now on the connection has a lock
    if not _has_locked(file):
        raise StoreUnavailable(
            f"this process was forked while the program had a connection of its own to {file}: its locks do not count",
            hint="Close your own connections to the file before the fork, or in the child before its first use.",
        )


def _has_locked(file: str) -> bool:
    """Whether this process holds a lock on an open file; true where the system does not report it."""
    try:
        target, names = os.stat(file), os.listdir("/proc/self/fd")  # noqa: PTH116, PTH208 - not paths
    except OSError:
        return True
    is_open = False
    for name in names:
        with suppress(OSError):
            if os.path.samestat(os.fstat(int(name)), target):
                if "\nlock:" in Path(f"/proc/self/fdinfo/{name}").read_text(encoding="ascii"):
                    return True
                is_open = True
    return not is_open


class ForkGate:
    """Counts the threads that use connections. A fork waits until no other thread does, and keeps new ones out.

    A ``with`` block is a short use of a connection, which a fork waits for.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._users: dict[int, int] = {}
        self._guests = 0
        self._shut = False

    def __enter__(self) -> None:
        me = threading.get_ident()
        with self._changed:
            while self._shut and me not in self._users:
                self._changed.wait()
            self._users[me] = self._users.get(me, 0) + 1

    def __exit__(self, *_: object) -> None:
        me = threading.get_ident()
        with self._changed:
            uses = self._users.pop(me) - 1
            if uses:
                self._users[me] = uses
            elif self._shut:
                self._changed.notify_all()

    @contextmanager
    def guest(self) -> Iterator[None]:
        """A use that may last: no fork waits for it, and its children cannot use the file."""
        with self:
            self._guests += 1
        try:
            yield
        finally:
            with self._changed:
                self._guests -= 1

    def shut(self) -> bool:
        """Keep other threads out; false if a connection stays in use."""
        me = threading.get_ident()
        with self._changed:
            self._shut = True
            if self._guests or self._users.get(me):
                return False
            return self._changed.wait_for(lambda: not self._users, forks.FORK_TIMEOUT_S)

    def open(self) -> None:
        with self._changed:
            self._shut = False
            self._changed.notify_all()


#: Connections that read at a time, each with two file descriptors, and how long a thread waits for one of them.
MAX_READERS, MAX_READER_WAIT_S = 6, 1.0


class Readers:
    """Connections that read; each serves one thread at a time.

    They are few, so that many slots do not use up the file descriptors of a worker. A thread that gets none in time
    opens another one.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self.idle: deque[sqlite3.Connection] = deque()
        self._free = threading.Semaphore(MAX_READERS)
        self.add = self.idle.append  # takes over an open connection

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        is_free = self._free.acquire(timeout=MAX_READER_WAIT_S)
        try:
            with self._opened() as connection:
                yield connection
        finally:
            if is_free:
                self._free.release()

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        try:
            connection = self.idle.pop()
        except IndexError:
            connection = self._connect()
        try:
            yield connection
        finally:
            if connection.in_transaction:  # interrupted: the next reader must not see an old snapshot
                connection.execute("ROLLBACK")
            if len(self.idle) < MAX_READERS:
                self.idle.append(connection)
            else:
                connection.close()

    def close(self) -> None:
        with suppress(IndexError):
            while True:
                self.idle.pop().close()


def abandon(file: str, *connections: object) -> None:
    """In a forked child: never use *file*, and never close these *connections*."""
    _INHERITED_FILES.add(file)
    _INHERITED.extend(connections)


def switch_to_wal(connection: sqlite3.Connection, file: str, *, timeout: float) -> None:
    """Switch to WAL, and check the locks of the connection.

    The busy timeout does not cover this when processes open a new file at the same time.
    """
    deadline, pause = time.monotonic() + timeout, threading.Event()
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
            pause.wait(WAL_RETRY_S)
        else:
            _refuse_inherited_locks(connection, file)
            return
