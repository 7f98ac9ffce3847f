"""The writer of a process: threads that write at the same time share a transaction."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, cast

from holdfast.errors import StoreInUse, StoreLocked, StoreUnavailable
from holdfast.store.engine import interrupts
from holdfast.store.engine.operation import Operation, Statement, T, run_operation
from holdfast.store.sqlite.files import is_busy, translated
from holdfast.store.sqlite.writer_queue import WriterQueue

#: Operations that one transaction commits.
GROUP_SIZE = 1000
#: Seconds of one wait for the file's lock, after which the writer checks its time limit; and of a long wait in all.
LOCK_WAIT_S, LONG_WAIT_S = 0.5, 2.0

Performer = Callable[[Statement], list[Any]]


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
        begun: Callable[[sqlite3.Connection], None],
        committed: Callable[[sqlite3.Connection], None],
        queue: WriterQueue,
        path: Path,
    ) -> None:
        #: The open connection, if there is one; a list, so that it can be closed when this object is gone.
        self.opened: list[sqlite3.Connection] = []
        self._connect = connect
        self._timeout = timeout
        self._performer = performer
        self._check = check
        self._begun = begun
        self._committed = committed
        self.queue = queue
        self._path = path
        self._lock = threading.RLock()
        #: Whether the thread that has the lock writes, or keeps others from writing. A finalizer may run in it then.
        self._busy = False
        self._waiting: deque[_Request] = deque()
        #: When the last long wait for the lock ended, by the monotonic clock.
        self.waited_at = float("-inf")
        self._blocked_since: float | None = None

    def use(self, connection: sqlite3.Connection) -> None:
        """Write on this connection from now on."""
        connection.execute(f"PRAGMA busy_timeout = {int(min(LOCK_WAIT_S, self._timeout) * 1000)}")
        self.opened.append(connection)

    def write(self, operation: Callable[[], Operation[T]], *, timeout: float | None = None) -> T:
        """Run an operation in a transaction, together with those of other threads.

        Raises:
            StoreInUse: A finalizer calls that runs in the middle of another call of this thread; nothing was written.
            StoreLocked: Another program kept the file locked for *timeout* seconds; nothing was written.
        """
        request = _Request(operation, time.monotonic() + (self._timeout if timeout is None else timeout))
        try:
            self._waiting.append(request)
            self._write_or_wait(request, limited=timeout is not None)
        except BaseException:
            self._withdraw(request)  # a later write must not run what was interrupted
            raise
        finally:
            self._wake_next()
        with translated(self._path):
            return cast("T", request.outcome())

    def _write_or_wait(self, request: _Request, *, limited: bool) -> None:
        """Write for all that wait, or wait until another thread has written *request* or has stopped writing."""
        while not request.finished:
            interrupts.deliver()
            if self._lock.acquire(blocking=False):
                try:
                    with self._alone():
                        self._serve(request)
                finally:
                    self._lock.release()
                continue
            limit = max(0.0, request.deadline - time.monotonic()) if limited else None
            if self._is_woken(request, limit):
                continue
            if limited and time.monotonic() >= request.deadline:
                if self._withdraw(request):
                    request.fail(StoreLocked("another program keeps the store locked"))
                limited = False  # otherwise a transaction runs it already

    def _is_woken(self, request: _Request, limit: float | None) -> bool:
        """Wait at most *limit* seconds; false after the limit, or when it is time to deliver interrupts."""
        if interrupts.waits_in_windows():
            limit = interrupts.WINDOW_S if limit is None else min(interrupts.WINDOW_S, limit)
        try:
            request.wakes.get(timeout=limit)
        except Empty:
            return False
        return True

    def _wake_next(self) -> None:
        """Let the first thread that waits write, unless another one does: it does the same at its end."""
        with suppress(IndexError):
            self._waiting[0].wakes.put(None)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep the threads of this process from writing."""
        try:
            with self._lock, self._alone():
                yield
        finally:
            self._wake_next()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """The work of the thread that has the lock: a call in the middle of it would wait for itself."""
        if self._busy:
            text = "this thread is in the middle of another call: a finalizer that runs in it cannot write to the store"
            raise StoreInUse(text, hint="Let the finalizer hand its work to another thread, such as with a queue.")
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    def close(self) -> None:
        """Close the connection. The caller keeps other threads from writing."""
        self.queue.close()
        while self.opened:
            self.opened.pop().close()

    @property
    def connection(self) -> sqlite3.Connection | None:
        return self.opened[0] if self.opened else None

    def _connected(self) -> sqlite3.Connection:
        if not self.opened:
            self.use(self._connect())
        return self.opened[0]

    def _serve(self, own: _Request) -> None:
        """Write until *own* is finished, or until it is time to deliver interrupts: their handlers may write, too."""
        while not (own.finished or interrupts.is_pending()):
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
            with translated(self._path):
                self._check()
                self._run_group(self._connected(), group, own)
        except _Interrupted:
            return
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
            self.queue.enter(own.deadline - time.monotonic())
            self._begin(connection, own)
            self._begun(connection)
            # Taken after the wait for the lock: requests that came meanwhile join.
            with suppress(IndexError):  # none is left, or its thread has just withdrawn it
                while len(group.requests) < GROUP_SIZE:
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
        finally:
            self.queue.leave()

    def _begin(self, connection: sqlite3.Connection, own: _Request) -> None:
        while True:
            began = time.monotonic()
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                self._note_wait(began)
                if not is_busy(error) or time.monotonic() >= own.deadline:
                    raise
                if interrupts.is_pending():
                    raise _Interrupted from None
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


class _Interrupted(Exception):
    """No transaction has begun yet, and a signal came."""


class _Request:
    __slots__ = ("deadline", "error", "finished", "operation", "result", "wakes")

    def __init__(self, operation: Callable[[], Operation[Any]], deadline: float) -> None:
        self.operation = operation
        #: When to give up waiting for the file's lock.
        self.deadline = deadline
        self.result: Any = None
        self.error: BaseException | None = None
        self.finished = False
        #: Wakes its thread: it is finished, or may write.
        self.wakes: SimpleQueue[None] = SimpleQueue()

    def fail(self, error: BaseException) -> None:
        self.error = error
        self.finished = True

    def outcome(self) -> Any:
        if self.error is not None:
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
            request.wakes.put(None)
