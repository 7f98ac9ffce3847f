"""The writer of a process: threads that write at the same time share a transaction; checkpoints follow it."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from holdfast.errors import StoreUnavailable
from holdfast.store.engine.operation import Operation, Statement, T, run_operation
from holdfast.store.sqlite.files import size_of, translated

#: Operations that one transaction commits.
GROUP_SIZE = 1000

Performer = Callable[[Statement], list[Any]]
#: Before this version, connections that checkpoint at the same time can lose frames of a reset WAL.
SAFE_CHECKPOINTS = (3, 51, 3)
#: Row changes of this process between two checkpoints, with a small and with a large log.
CHANGES_PER_CHECKPOINT, CHANGES_IF_LARGE = 5000, 100
LARGE_LOG_BYTES = 8 * 1024 * 1024


class Writer:
    """The one connection that writes. The thread that gets the lock commits for all threads that wait."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        performer: Callable[[sqlite3.Connection], Performer],
        check: Callable[[], None],
        committed: Callable[[sqlite3.Connection], None],
    ) -> None:
        self._connection = connection
        self._performer = performer
        self._check = check
        self._committed = committed
        self._lock = threading.Lock()
        self._waiting: deque[_Request] = deque()

    def write(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation in a transaction, together with those of other threads."""
        request = _Request(operation)
        self._waiting.append(request)
        with self._lock:
            while not request.finished:
                self._commit_group()
        return cast("T", request.outcome())

    @contextmanager
    def exclusive(self) -> Iterator[sqlite3.Connection]:
        """The connection, while no thread of this process writes."""
        with self._lock:
            yield self._connection

    def _commit_group(self) -> None:
        group: list[_Request] = []
        while self._waiting and len(group) < GROUP_SIZE:
            group.append(self._waiting.popleft())
        try:
            with translated():
                self._run_group(group)
        except Exception as error:  # noqa: BLE001 - each request raises it in its own thread
            for request in group:
                request.error = error
        except BaseException:
            for request in group:
                request.error = StoreUnavailable("the thread that wrote for all was interrupted; nothing was written")
            raise
        finally:
            for request in group:
                request.finished = True
        self._committed(self._connection)

    def _run_group(self, group: list[_Request]) -> None:
        self._check()
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            performer = self._performer(self._connection)  # reads its clock after the wait for the lock
            if len(group) == 1:  # needs no savepoint of its own
                group[0].result = run_operation(group[0].operation(), performer)
            else:
                for request in group:
                    self._run_request(request, performer)
            self._connection.execute("COMMIT")
        except BaseException:
            # After a full disk SQLite may have rolled back already.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def _run_request(self, request: _Request, performer: Performer) -> None:
        self._connection.execute("SAVEPOINT request")
        try:
            request.result = run_operation(request.operation(), performer)
        except Exception as error:
            if not self._connection.in_transaction:  # after a full disk SQLite has rolled everything back
                raise
            request.error = error
            self._connection.execute("ROLLBACK TO request")
        self._connection.execute("RELEASE request")


class _Request:
    __slots__ = ("error", "finished", "operation", "result")

    def __init__(self, operation: Callable[[], Operation[Any]]) -> None:
        self.operation = operation
        self.result: Any = None
        self.error: BaseException | None = None
        self.finished = False

    def outcome(self) -> Any:
        if self.error is not None:
            with translated():
                raise self.error
        return self.result


class Checkpoints:
    """Replaces SQLite's own checkpoints where they are not safe; otherwise it does nothing."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._manual = sqlite3.sqlite_version_info < SAFE_CHECKPOINTS
        self._checkpointed_changes = 0

    def configure(self, connection: sqlite3.Connection) -> None:
        if self._manual:
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            # A reset log is cut to this size, so a larger log is one without a recent checkpoint.
            connection.execute(f"PRAGMA journal_size_limit = {LARGE_LOG_BYTES // 2}")

    def after_commit(self, writer: sqlite3.Connection) -> None:
        """Checkpoint after many changes of this process, or earlier if all processes together made the log large."""
        if not self._manual:
            return
        changes = writer.total_changes - self._checkpointed_changes
        is_large = size_of(f"{self._database}-wal") > LARGE_LOG_BYTES
        if changes < (CHANGES_IF_LARGE if is_large else CHANGES_PER_CHECKPOINT):
            return
        self._checkpointed_changes = writer.total_changes
        with self.lock(wait=False) as acquired, suppress(sqlite3.Error):
            if acquired:
                writer.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def before_close(self, writer: sqlite3.Connection) -> None:
        """Checkpoint the changes of this process; the caller holds the lock."""
        if self._manual and writer.total_changes:
            with suppress(sqlite3.Error):
                writer.execute("PRAGMA wal_checkpoint(PASSIVE)")

    @contextmanager
    def lock(self, *, wait: bool) -> Iterator[bool]:
        """Allow one checkpoint at a time over all processes; closing the last connection is a checkpoint too."""
        if not self._manual:
            yield True
            return
        try:
            descriptor = os.open(f"{self._database}-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:  # in a read-only directory no process checkpoints
            yield False
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(descriptor)
            yield False
            return
        try:
            yield True
        finally:
            os.close(descriptor)
