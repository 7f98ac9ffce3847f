"""Checkpoints of the log, in place of SQLite's own where those are not safe, and restarts of a large log.

A checkpoint copies the log into the file. The next commit begins the log anew only if no transaction reads in it at
that moment. While readers overlap there is no such moment: the log grows, although none of them is long. A *restart*
keeps writers waiting until those that read now have ended; new ones read the file alone meanwhile.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.store.sqlite.files import OpenLog, size_of
from holdfast.store.sqlite.statements import plain_cursor
from holdfast.store.sqlite.writer_queue import TURN_WAIT_S, WriterQueue

#: Before this version, connections that checkpoint at the same time can lose frames of a reset WAL.
SAFE_CHECKPOINTS = (3, 51, 3)
#: Row changes of this process between two checkpoints: with a large log, and the least and the most otherwise.
CHANGES_IF_LARGE, MIN_CHANGES, MAX_CHANGES = 100, 5000, 50_000
#: The pages of the log that a checkpoint should have to copy: SQLite's own default.
PAGES_PER_CHECKPOINT = 1000
LARGE_LOG_BYTES = 8 * 1024 * 1024
#: A connection that has made this many transactions extends the log, by the second value at a time. One that writes
#: little would gain nothing.
EXTEND_AFTER_TRANSACTIONS, EXTENSION_BYTES = 16, 1024 * 1024
#: A log of the first size restarts. It stays below the second one while no transaction reads for long.
RESTART_LOG_BYTES, MAX_LOG_BYTES = 24 * 1024 * 1024, 64 * 1024 * 1024
#: The pause of all processes after a restart that readers prevented, at first and at most. It doubles each time.
RESTART_PAUSE_S, MAX_RESTART_PAUSE_S = 0.1, 30.0


class Checkpoints:
    """Replaces SQLite's own checkpoints where they are not safe, and extends the log."""

    def __init__(self, database: Path) -> None:
        #: Texts: joining a path takes longer than asking for its size.
        self.database, self._log = str(database), f"{database}-wal"
        self._manual = sqlite3.sqlite_version_info < SAFE_CHECKPOINTS
        self._checkpointed_changes = self._transactions = 0
        self._changes_per_checkpoint = MIN_CHANGES
        #: The size of the log when this process extended it last.
        self._extended_to = 0
        self.open_log = OpenLog(self.database)
        #: When this process looks again whether the log may restart, by the monotonic clock.
        self._restart_at = 0.0
        #: When the file was last changed, as far as this process knows.
        self._file_changed_ns = 0

    def opened(self) -> None:
        """The writer has a new connection, which has changed nothing yet."""
        self._checkpointed_changes = self._transactions = 0

    def disable(self, connection: sqlite3.Connection) -> None:
        """Switch off automatic checkpoints of a connection, where they are not safe."""
        if self._manual:
            plain_cursor(connection).execute("PRAGMA wal_autocheckpoint = 0")

    def configure(self, connection: sqlite3.Connection) -> None:
        self.disable(connection)
        # A log that begins anew is cut to this size, so a larger log is one without a recent checkpoint. Up to this
        # size, commits overwrite the old log: to extend a file takes the disk longer.
        connection.execute(f"PRAGMA journal_size_limit = {LARGE_LOG_BYTES}")

    def begun(self, writer: sqlite3.Connection) -> None:
        """Extend the log with zeros when it has grown. The caller holds the lock of the file.

        SQLite reads zeros as the end of the log. A commit that extends the file itself takes twice as long.

        Raises:
            StoreUnavailable: The log was deleted or replaced; the transaction is rolled back.
        """
        if not self.open_log.is_present():
            writer.execute("ROLLBACK")
            self._save(writer)
            raise self.open_log.deleted()
        self._transactions += 1
        if self._transactions < EXTEND_AFTER_TRANSACTIONS:
            return
        size = self.open_log.size
        is_extended = (size - self._extended_to) % EXTENSION_BYTES == 0  # by this process, or another one
        if is_extended or size + EXTENSION_BYTES > LARGE_LOG_BYTES:
            return
        with suppress(OSError):
            log = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                os.write(log, bytes(EXTENSION_BYTES))
            finally:
                os.close(log)
        self._extended_to = size_of(self._log)

    def after_commit(self, writer: sqlite3.Connection, queue: WriterQueue) -> None:
        """Checkpoint now and then, and restart a log that is large all the same."""
        self._checkpoint(writer)
        if self.open_log.size > RESTART_LOG_BYTES and time.monotonic() >= self._restart_at:
            self._restart(writer, queue)

    def _checkpoint(self, writer: sqlite3.Connection) -> None:
        """Checkpoint after many changes of this process, or earlier if all processes together made the log large."""
        if not self._manual:
            return
        changes = writer.total_changes - self._checkpointed_changes
        is_large = changes >= CHANGES_IF_LARGE and size_of(self._log) > LARGE_LOG_BYTES
        if changes < (CHANGES_IF_LARGE if is_large else self._changes_per_checkpoint):
            return
        self._checkpointed_changes = writer.total_changes
        with self.lock(wait=False) as acquired, suppress(sqlite3.Error):
            if acquired:
                _, pages, _ = self._run(writer, "PASSIVE")
                # Some changes share a page: then more of them fit into a log of the same size.
                likely = changes * PAGES_PER_CHECKPOINT // max(1, pages)
                self._changes_per_checkpoint = max(MIN_CHANGES, min(likely, MAX_CHANGES))

    def before_close(self, writer: sqlite3.Connection) -> None:
        """Checkpoint the changes of this process; the caller holds the lock."""
        if self._manual and writer.total_changes:
            with suppress(sqlite3.Error):
                self._run(writer, "PASSIVE")

    def _run(self, writer: sqlite3.Connection, mode: str) -> tuple[bool, int, int]:
        """Run a checkpoint. Returns whether it had to give up, the pages of the log, and how many are copied."""
        row = plain_cursor(writer).execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        with suppress(OSError):
            self._file_changed_ns = os.stat(self.database).st_mtime_ns  # noqa: PTH116 - a text
        return row[0] != 0, row[1], row[2]

    def _restart(self, writer: sqlite3.Connection, queue: WriterQueue) -> None:
        """Let the next commit begin the log anew. Writers wait for readers, at most for the writer's busy timeout.

        If a reader lasts longer, all processes leave the log alone for a while, so that writers can work.
        """
        self._restart_at = time.monotonic() + RESTART_PAUSE_S
        with self._locked(wait=False) as descriptor, suppress(sqlite3.Error):
            if descriptor is None or size_of(self._log) <= RESTART_LOG_BYTES:
                return
            pause = RestartPause(descriptor)
            if not pause.is_over:
                return
            self._run(writer, "PASSIVE")  # copies most of it while others write
            queue.enter(TURN_WAIT_S)
            try:
                is_busy, _, _ = self._run(writer, "RESTART")
            finally:
                queue.leave()
            if is_busy:
                pause.extend()
            else:
                pause.end()

    def progress(self, connection: sqlite3.Connection) -> tuple[int, int] | None:
        """Copy what no reader prevents: the pages of the log, and those copied. None during another checkpoint."""
        with self.lock(wait=False) as acquired:
            return self._run(connection, "PASSIVE")[1:] if acquired else None

    def _save(self, writer: sqlite3.Connection) -> None:
        """Copy a log that was deleted into the file, unless another process has begun a new one."""
        is_replaced = os.path.exists(self._log)  # noqa: PTH110 - a text
        known_ns = max(self._file_changed_ns, self.open_log.changed_ns)
        with self._locked(wait=False) as descriptor, suppress(sqlite3.Error, OSError):
            is_changed = os.stat(self.database).st_mtime_ns > known_ns  # noqa: PTH116 - a text
            if descriptor is not None and not is_replaced and not is_changed:
                self._run(writer, "PASSIVE")

    @contextmanager
    def lock(self, *, wait: bool) -> Iterator[bool]:
        """Allow one checkpoint at a time over all processes; closing the last connection is a checkpoint too."""
        if not self._manual:
            yield True
            return
        with self._locked(wait=wait) as descriptor:
            yield descriptor is not None

    @contextmanager
    def _locked(self, *, wait: bool) -> Iterator[int | None]:
        """Hold the lock file: its descriptor, or None if another process has it."""
        try:
            descriptor = os.open(f"{self.database}-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:  # in a read-only directory no process checkpoints
            yield None
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(descriptor)
            yield None
            return
        try:
            yield descriptor
        finally:
            os.close(descriptor)


class RestartPause:
    """The pause after restarts that readers prevented. Processes share it in the lock file, which the caller holds."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        try:
            until, length = os.pread(descriptor, 64, 0).split()
            self._until, self._length = float(until), float(length)
        except ValueError:  # an empty file
            self._until = self._length = 0.0

    @property
    def is_over(self) -> bool:
        left = self._until - time.monotonic()
        return left <= 0 or left > 2 * MAX_RESTART_PAUSE_S  # the host has started again since

    def extend(self) -> None:
        self._length = min(max(2 * self._length, RESTART_PAUSE_S), MAX_RESTART_PAUSE_S)
        os.pwrite(self._descriptor, f"{time.monotonic() + self._length:20.3f} {self._length:8.3f}".encode(), 0)

    def end(self) -> None:
        if self._length:
            os.ftruncate(self._descriptor, 0)
