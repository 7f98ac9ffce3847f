"""Checkpoints of the log, in place of SQLite's own where those are not safe."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.store.sqlite.files import size_of
from holdfast.store.sqlite.statements import plain_cursor

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

    def opened(self) -> None:
        """The writer has a new connection, which has changed nothing yet."""
        self._checkpointed_changes = self._transactions = 0

    def disable(self, connection: sqlite3.Connection) -> None:
        """Switch off automatic checkpoints of a connection, where they are not safe."""
        if self._manual:
            plain_cursor(connection).execute("PRAGMA wal_autocheckpoint = 0")

    def configure(self, connection: sqlite3.Connection) -> None:
        self.disable(connection)
        if self._manual:
            # A reset log is cut to this size, so a larger log is one without a recent checkpoint. Up to this size,
            # commits overwrite the old log: to extend a file takes the disk longer.
            connection.execute(f"PRAGMA journal_size_limit = {LARGE_LOG_BYTES}")

    def begun(self) -> None:
        """Extend the log with zeros when it has grown. The caller holds the lock of the file.

        SQLite reads zeros as the end of the log. A commit that extends the file itself takes twice as long.
        """
        self._transactions += 1
        if self._transactions < EXTEND_AFTER_TRANSACTIONS:
            return
        size = size_of(self._log)
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

    def after_commit(self, writer: sqlite3.Connection) -> None:
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
                _, pages, _ = plain_cursor(writer).execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                # Some changes share a page: then more of them fit into a log of the same size.
                likely = changes * PAGES_PER_CHECKPOINT // max(1, pages)
                self._changes_per_checkpoint = max(MIN_CHANGES, min(likely, MAX_CHANGES))

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
            descriptor = os.open(f"{self.database}-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
