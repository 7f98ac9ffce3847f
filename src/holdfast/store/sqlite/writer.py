"""The writer of a process: threads that write at the same time share a transaction; checkpoints follow it."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from holdfast.errors import StoreLocked, StoreUnavailable
from holdfast.store.engine.operation import Operation, Statement, T, run_operation
from holdfast.store.sqlite.files import is_busy, size_of, translated
from holdfast.store.sqlite.statements import plain_cursor

#: Operations that one transaction commits.
GROUP_SIZE = 1000
#: Seconds of one wait for the file's lock, after which the writer checks its time limit; and of a long wait in all.
LOCK_WAIT_S, LONG_WAIT_S = 0.5, 2.0

Performer = Callable[[Statement], list[Any]]
#: Before this version, connections that checkpoint at the same time can lose frames of a reset WAL.
SAFE_CHECKPOINTS = (3, 51, 3)
#: Row changes of this process between two checkpoints, with a small and with a large log.
CHANGES_PER_CHECKPOINT, CHANGES_IF_LARGE = 5000, 100
LARGE_LOG_BYTES = 8 * 1024 * 1024


class Writer:
    """The one connection that writes. The thread that gets the lock commits for all threads that wait.

    The connection opens on first use, and again after :meth:`close`.
    """

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        *,
        timeout: float,
        performer: Callable[[sqlite3.Connection], Performer],
        check: Callable[[], None],
        committed: Callable[[sqlite3.Connection], None],
    ) -> None:
        self.connection: sqlite3.Connection | None = None
        self._connect = connect
        self._timeout = timeout
        self._performer = performer
        self._check = check
        self._committed = committed
        self._lock = threading.Lock()
        self._waiting: deque[_Request] = deque()
        #: When the last long wait for the lock ended, by the monotonic clock.
        self.waited_at = float("-inf")
        self._blocked_since: float | None = None

    def use(self, connection: sqlite3.Connection) -> None:
        """Write on this connection from now on."""
        connection.execute(f"PRAGMA busy_timeout = {int(min(LOCK_WAIT_S, self._timeout) * 1000)}")
        self.connection = connection

    def write(self, operation: Callable[[], Operation[T]], *, timeout: float | None = None) -> T:
        """Run an operation in a transaction, together with those of other threads.

        Raises:
            StoreLocked: Another program kept the file locked for *timeout* seconds; nothing was written.
        """
        request = _Request(operation, time.monotonic() + (self._timeout if timeout is None else timeout))
        self._waiting.append(request)
        try:
            if timeout is None:
                with self._lock:
                    self._serve(request)
            elif self._lock.acquire(timeout=timeout) or (not self._withdraw(request) and self._lock.acquire()):
                try:
                    self._serve(request)
                finally:
                    self._lock.release()
            else:
                request.error = StoreLocked("another program keeps the store locked")
        except BaseException:
            self._withdraw(request)  # a later write must not run what was interrupted
            raise
        return cast("T", request.outcome())

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep the threads of this process from writing."""
        with self._lock:
            yield

    def close(self) -> None:
        """Close the connection. The caller keeps other threads from writing."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def _connected(self) -> sqlite3.Connection:
        if self.connection is None:
            self.use(self._connect())
        assert self.connection is not None
        return self.connection

    def _serve(self, own: _Request) -> None:
        while not own.finished:
            self._commit_group(own)

    def _withdraw(self, request: _Request) -> bool:
        """Take a request back; false if a transaction runs it already."""
        try:
            self._waiting.remove(request)
        except ValueError:
            return False
        return True

    def _commit_group(self, own: _Request) -> None:
        """Run the waiting requests. If no transaction can begin, only *own* fails: others wait as long as they like."""
        group = _Group()
        try:
            with translated():
                self._check()
                self._run_group(self._connected(), group, own)
        except Exception as error:  # noqa: BLE001 - each request raises it in its own thread
            group.fail(error)
            if not group.requests:
                self._withdraw(own)
                own.fail(error)
        except BaseException:
            if not group.committed:
                group.fail(StoreUnavailable("the thread that wrote for all was interrupted; nothing was written"))
            raise
        finally:
            group.finish()
        if group.committed:
            self._committed(self._connected())

    def _run_group(self, connection: sqlite3.Connection, group: _Group, own: _Request) -> None:
        try:
            self._begin(connection, own)
            # Taken after the wait for the lock: requests that came meanwhile join.
            while self._waiting and len(group.requests) < GROUP_SIZE:
                group.requests.append(self._waiting.popleft())
            if not group.requests:  # a thread that took the request was interrupted
                group.requests.append(own)
            performer = self._performer(connection)  # reads its clock after the wait for the lock
            if len(group.requests) == 1:  # needs no savepoint of its own
                request = group.requests[0]
                request.result = run_operation(request.operation(), performer)
            else:
                for request in group.requests:
                    self._run_request(connection, request, performer)
            group.committed = True
            connection.execute("COMMIT")
        except BaseException as error:
            # An interrupt after the COMMIT changes nothing. After a full disk SQLite may have rolled back already.
            group.committed = group.committed and not isinstance(error, Exception) and not connection.in_transaction
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _begin(self, connection: sqlite3.Connection, own: _Request) -> None:
        while True:
            began = time.monotonic()
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                self._note_wait(began)
                if not is_busy(error) or time.monotonic() >= own.deadline:
                    raise
            else:
                self._note_wait(began)
                self._blocked_since = None
                return

    def _note_wait(self, began: float) -> None:
        """Remember how long no transaction could begin, over several tries."""
        now = time.monotonic()
        if self._blocked_since is None and now - began >= LOCK_WAIT_S / 2:
            self._blocked_since = began
        if self._blocked_since is not None and now - self._blocked_since >= LONG_WAIT_S:
            self.waited_at = now

    def _run_request(self, connection: sqlite3.Connection, request: _Request, performer: Performer) -> None:
        connection.execute("SAVEPOINT request")
        try:
            request.result = run_operation(request.operation(), performer)
        except Exception as error:
            if not connection.in_transaction:  # after a full disk SQLite has rolled everything back
                raise
            request.error = error
            connection.execute("ROLLBACK TO request")
        connection.execute("RELEASE request")


class _Request:
    __slots__ = ("deadline", "error", "finished", "operation", "result")

    def __init__(self, operation: Callable[[], Operation[Any]], deadline: float) -> None:
        self.operation = operation
        #: When to give up waiting for the file's lock.
        self.deadline = deadline
        self.result: Any = None
        self.error: BaseException | None = None
        self.finished = False

    def fail(self, error: BaseException) -> None:
        self.error = error
        self.finished = True

    def outcome(self) -> Any:
        if self.error is not None:
            with translated():
                raise self.error
        return self.result


class _Group:
    """The requests of one transaction, and whether it was committed."""

    def __init__(self) -> None:
        self.requests: list[_Request] = []
        self.committed = False

    def fail(self, error: BaseException) -> None:
        for request in self.requests:
            request.error = error

    def finish(self) -> None:
        for request in self.requests:
            request.finished = True


class Checkpoints:
    """Replaces SQLite's own checkpoints where they are not safe; otherwise it does nothing."""

    def __init__(self, database: Path) -> None:
        #: Texts: joining a path takes longer than asking for its size.
        self.database, self._log = str(database), f"{database}-wal"
        self._manual = sqlite3.sqlite_version_info < SAFE_CHECKPOINTS
        self._checkpointed_changes = 0

    def opened(self) -> None:
        """The writer has a new connection, which has changed nothing yet."""
        self._checkpointed_changes = 0

    def disable(self, connection: sqlite3.Connection) -> None:
        """Switch off automatic checkpoints of a connection, where they are not safe."""
        if self._manual:
            plain_cursor(connection).execute("PRAGMA wal_autocheckpoint = 0")

    def configure(self, connection: sqlite3.Connection) -> None:
        self.disable(connection)
        if self._manual:
            # A reset log is cut to this size, so a larger log is one without a recent checkpoint.
            connection.execute(f"PRAGMA journal_size_limit = {LARGE_LOG_BYTES // 2}")

    def after_commit(self, writer: sqlite3.Connection) -> None:
        """Checkpoint after many changes of this process, or earlier if all processes together made the log large."""
        if not self._manual:
            return
        changes = writer.total_changes - self._checkpointed_changes
        is_large = changes >= CHANGES_IF_LARGE and size_of(self._log) > LARGE_LOG_BYTES
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
