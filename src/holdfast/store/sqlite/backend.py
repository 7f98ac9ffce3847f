"""SQLite connections: private files, group commits, careful checkpoints."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.domain.jobs.job import JobId
from holdfast.errors import NO_STORE, NoTransaction, OtherDatabase, SchemaMissing, StoreUnavailable
from holdfast.store.engine.operation import Operation, OperationFunction, P, Query, Statement, run_operation
from holdfast.store.sqlite.errors import translated
from holdfast.store.sqlite.files import create_private, refuse_network_file_system, size_of
from holdfast.store.sqlite.notifier import Notifier, SqliteListener
from holdfast.store.sqlite.schema import check_or_migrate, holds_store, migrate
from holdfast.store.sqlite.statements import perform, plain_cursor

if TYPE_CHECKING:
    from holdfast.store.sqlite.database import SqliteDatabase

T = TypeVar("T")

#: Before this version, connections that checkpoint at once can lose frames of a reset WAL.
SAFE_CHECKPOINTS = (3, 51, 3)
#: Row changes of this process between two checkpoints; fewer when the log is larger than so many bytes.
CHECKPOINT_CHANGES, SOON, LARGE = 5000, 100, 8 * 1024 * 1024
GROUP = 1000


def utc_now() -> datetime:
    return datetime.now(UTC)


class SqliteBackend:
    """One SQLite file, shared by all threads of this process and by other processes.

    Writers of one process commit in groups: whoever gets the lock commits for all who wait.
    """

    name = "sqlite"
    #: What connections are made of: a test can stand before every statement.
    made_of = sqlite3.Connection

    def __init__(
        self,
        path: str | Path,
        *,
        durability: str = "full",
        clock: Callable[[], datetime] = utc_now,
        busy_timeout: float = 30.0,
        create: bool = True,
        patience: timedelta | None = None,
    ) -> None:
        self.path = Path(path).expanduser().absolute()
        self.clock = clock
        self._synchronous = "NORMAL" if durability == "fast" else "FULL"
        self._busy_timeout = busy_timeout
        self._patience = None if patience is None else patience.total_seconds()
        self._lock = threading.Lock()
        self._waiting: deque[_Request] = deque()
        self._idle_readers: deque[sqlite3.Connection] = deque()
        self._closed = False
        self._doorbells = Notifier(self.path)
        self._checkpointed = 0
        self._careful = sqlite3.sqlite_version_info < SAFE_CHECKPOINTS
        refuse_network_file_system(self.path)
        if create:
            create_private(self.path)
        elif not holds_store(self.path):
            raise SchemaMissing(f"there is no store at {self.path}", hint=NO_STORE)
        self._writer = self.connect()
        self._inode = self.path.stat().st_ino
        try:
            self.installation = check_or_migrate(self._writer)
        except BaseException:
            self._writer.close()
            raise

    # -- Backend ---------------------------------------------------------------------------

    def run(self, ask: Query, *, repeatable: bool = False, timeout: timedelta | None = None) -> list[Any]:
        del repeatable, timeout  # a local commit always answers; the busy timeout limits every wait
        return self.write(_single, ask)

    def look(self, ask: Query) -> list[Any]:
        with self._reader() as connection, translated():
            return perform(connection, ask, now=self.clock())

    def write(self, flow: OperationFunction[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        request = _Request(lambda: flow(*args, **kwargs))
        self._waiting.append(request)
        with self._lock:
            while not request.finished:
                self._commit_group()
        result: T = request.outcome()
        return result

    def read(self, flow: OperationFunction[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._reader() as connection, translated():
            connection.execute("BEGIN")
            try:
                return run_operation(flow(*args, **kwargs), self._performer(connection))
            finally:
                connection.execute("COMMIT")

    def draw_ids(self, count: int) -> list[JobId] | None:  # noqa: ARG002 - drawn in the flow
        return None

    def run_on(self, connection: Any, flow: Operation[T]) -> T:
        if not isinstance(connection, sqlite3.Connection):
            raise OtherDatabase(
                f"this store is a SQLite file, and {type(connection).__name__} is no sqlite3 connection"
            )
        self._check_installation(connection)
        if not connection.in_transaction and _autocommits(connection):
            raise NoTransaction("the connection is in autocommit mode and no transaction is open")
        with translated():
            if not connection.in_transaction:
                # Not a plain BEGIN: a transaction that reads first could not become a writer later.
                connection.execute("BEGIN IMMEDIATE")
            return self._drive_in_savepoint(connection, flow)

    def _drive_in_savepoint(self, connection: sqlite3.Connection, flow: Operation[T]) -> T:
        """A refused enqueue leaves nothing behind in the caller's transaction, whatever comes next."""
        connection.execute("SAVEPOINT holdfast")
        try:
            result = run_operation(flow, self._performer(connection))
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK TO holdfast")
                connection.execute("RELEASE holdfast")
            raise
        connection.execute("RELEASE holdfast")
        return result

    async def arun_on(self, connection: Any, flow: Operation[T]) -> T:
        """A sqlite3 connection has no async form; a local file answers at once."""
        return self.run_on(connection, flow)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        with translated(), closing(self.connect()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def notify(self) -> None:
        self._doorbells.notify()

    def listen(self, heard: Callable[[], None]) -> SqliteListener:
        return SqliteListener(self._doorbells, heard=heard)

    def migrate(self) -> list[int]:
        with self._lock, translated():
            return migrate(self._writer)

    @cached_property
    def tools(self) -> SqliteDatabase:
        from holdfast.store.sqlite.database import SqliteDatabase

        return SqliteDatabase(self)

    @contextmanager
    def checkpointing(self) -> Iterator[None]:
        """Nobody else writes or checkpoints meanwhile."""
        with self._lock, self._checkpoint_lock(wait=True):
            yield

    def close(self) -> None:
        with self._lock, self._checkpoint_lock(wait=True):
            if not self._closed and self._careful and self._writer.total_changes:
                with suppress(sqlite3.Error):
                    self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)")
            self._closed = True
            self._doorbells.close()
            self._close_readers()
            self._writer.close()

    def _close_readers(self, *, only_if_closed: bool = False) -> None:
        if only_if_closed and not self._closed:
            return
        with suppress(IndexError):
            while True:
                self._idle_readers.pop().close()

    # -- writing ---------------------------------------------------------------------------

    def _commit_group(self) -> None:
        """Commit all that wait, in one transaction; several, each behind its own savepoint."""
        group: list[_Request] = []
        while self._waiting and len(group) < GROUP:
            group.append(self._waiting.popleft())
        try:
            with translated():
                self._run_group(group)
        except Exception as error:  # noqa: BLE001 - each of them raises it in its own thread
            for request in group:
                request.error = error
        except BaseException:
            for request in group:
                request.error = StoreUnavailable("the thread that wrote for all was interrupted; nothing was written")
            raise
        finally:
            for request in group:
                request.finished = True
        self._checkpoint_if_large()

    def _run_group(self, group: list[_Request]) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        self._refuse_deleted_file()
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            performer = self._performer(self._writer)  # its clock is read after the wait for the lock
            if len(group) == 1:  # nobody else's work is in this transaction
                group[0].result = run_operation(group[0].flow(), performer)
            else:
                for request in group:
                    self._run_request(request, performer)
            self._writer.execute("COMMIT")
        except BaseException:
            # A full disk may have rolled back already.
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            raise

    def _refuse_deleted_file(self) -> None:
        """What is written to a file that nobody can open any more would be lost; what is read there is of the past."""
        try:
            inode = os.stat(self.path).st_ino  # noqa: PTH116 - before every look, and twice as quick
        except OSError:
            inode = None
        if inode != self._inode:
            raise StoreUnavailable(
                f"{self.path} was deleted or replaced while it was open",
                hint="Start this program again: it has the old file open.",
            )

    def _run_request(self, request: _Request, performer: Callable[[Statement], list[Any]]) -> None:
        self._writer.execute("SAVEPOINT request")
        try:
            request.result = run_operation(request.flow(), performer)
        except Exception as error:
            if not self._writer.in_transaction:  # a full disk: SQLite has rolled everything back
                raise
            request.error = error
            self._writer.execute("ROLLBACK TO request")
        self._writer.execute("RELEASE request")

    def _performer(self, connection: sqlite3.Connection) -> Callable[[Statement], list[Any]]:
        now = self.clock()
        return lambda step: perform(connection, step, now=now)

    # -- connections -----------------------------------------------------------------------

    def connect(self) -> sqlite3.Connection:
        with translated():
            connection = sqlite3.connect(
                self.path,
                timeout=self._busy_timeout,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
                factory=self.made_of,
            )
            try:
                self._switch_to_wal(connection)
                connection.execute(f"PRAGMA synchronous = {self._synchronous}")
                connection.execute("PRAGMA mmap_size = 0")
                if self._careful:
                    connection.execute("PRAGMA wal_autocheckpoint = 0")
                    # A log that begins anew is cut to this: a larger one is one that nobody has checkpointed.
                    connection.execute(f"PRAGMA journal_size_limit = {LARGE // 2}")
            except BaseException:
                connection.close()
                raise
            return connection

    def _switch_to_wal(self, connection: sqlite3.Connection) -> None:
        """Processes that open a new file at once would find it locked here, busy timeout or not."""
        deadline, pause = time.monotonic() + self._busy_timeout, threading.Event()
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                locked = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
                if not locked or time.monotonic() > deadline:
                    raise
                pause.wait(0.01)
            else:
                return

    @contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        self._refuse_deleted_file()
        try:
            connection = self._idle_readers.pop()
        except IndexError:
            connection = self.connect()
        if self._patience is not None:
            until = time.monotonic() + self._patience
            connection.set_progress_handler(lambda: time.monotonic() > until, 10_000)
        try:
            yield connection
        finally:
            self._idle_readers.append(connection)
            self._close_readers(only_if_closed=True)

    def _check_installation(self, connection: sqlite3.Connection) -> None:
        try:
            (found,) = plain_cursor(connection).execute("SELECT installation FROM holdfast_meta").fetchone()
        except (sqlite3.Error, TypeError):
            found = None
        if found not in (self.installation, self.installation.encode()):
            raise OtherDatabase("the connection does not lead to the database of this app", url=str(self.path))

    # -- checkpoints -----------------------------------------------------------------------

    def _checkpoint_if_large(self) -> None:
        """Count what was written here; and many who write little, or are killed, fill the log together."""
        if self._closed or not self._careful:
            return
        changes = self._writer.total_changes - self._checkpointed
        if changes < (SOON if size_of(f"{self.path}-wal") > LARGE else CHECKPOINT_CHANGES):
            return
        self._checkpointed = self._writer.total_changes
        with self._checkpoint_lock(wait=False) as mine, suppress(sqlite3.Error):
            if mine:
                self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)")

    @contextmanager
    def _checkpoint_lock(self, *, wait: bool) -> Iterator[bool]:
        """One checkpoint at a time over all processes; closing the last connection is one too."""
        if not self._careful:
            yield True
            return
        try:
            descriptor = os.open(f"{self.path}-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:  # a directory that cannot be written: nobody here checkpoints either
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


class _Request:
    """One writer's work and what came of it."""

    __slots__ = ("error", "finished", "flow", "result")

    def __init__(self, flow: Callable[[], Operation[Any]]) -> None:
        self.flow = flow
        self.result: Any = None
        self.error: BaseException | None = None
        self.finished = False

    def outcome(self) -> Any:
        if self.error is not None:
            with translated():
                raise self.error
        return self.result


def _single(ask: Query) -> Operation[list[Any]]:
    return (yield ask)


def _autocommits(connection: sqlite3.Connection) -> bool:
    """Whether a statement outside a transaction would be committed at once."""
    autocommit = getattr(connection, "autocommit", None)
    if autocommit is True or autocommit is False:
        return autocommit
    return connection.isolation_level is None
