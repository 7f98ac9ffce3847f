"""The PostgreSQL backend: a pool of connections, short transactions, and retries of broken ones."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from holdfast.domain.jobs.job import JobId
from holdfast.errors import NoTransaction, OtherDatabase
from holdfast.store.engine.backend import Timeouts
from holdfast.store.engine.operation import (
    Operation,
    OperationFunction,
    P,
    Query,
    Statement,
    T,
    arun_operation,
    run_operation,
    single,
)
from holdfast.store.postgres.commits import Commits
from holdfast.store.postgres.connections import (
    Connection,
    Pool,
    connect_options,
    is_temporary,
    prepared_options,
    translate,
    translated,
)
from holdfast.store.postgres.notifier import PostgresListener, PostgresNotifier
from holdfast.store.postgres.schema import migrate, open_schema
from holdfast.store.postgres.statements import Statements

if TYPE_CHECKING:
    from holdfast.store.postgres.database import PostgresDatabase


#: Waits before work is sent again. After the last one the caller gets the error.
RETRY_DELAYS_S = (0.05, 0.2, 0.8, 2.0)
#: The channel of notifications; the name of the schema replaces its first word.
CHANNEL = "holdfast.ready"
#: Notifies in a caller's transaction: one constant payload, delivered with its commit. A setting switches it off.
NOTIFY = """SELECT pg_notify('holdfast.ready', '')
WHERE current_setting('holdfast' || '.notify', true) IS DISTINCT FROM 'off'"""


class PostgresBackend:
    """One PostgreSQL database, shared by all threads of this process."""

    name = "postgres"

    def __init__(
        self,
        url: str,
        *,
        schema: str = "holdfast",
        prepare: bool = True,
        create: bool = True,
        may_migrate: bool = False,
        connections: int = 10,
        patience: timedelta | None = None,
    ) -> None:
        self.url = url
        self._prepared = prepare
        self._patience = patience or Timeouts.statement
        self.statements = Statements(schema)
        self._ids = _IdSource(self._draw)
        self._channel = self.statements.in_schema(CHANNEL)
        self._notifier = PostgresNotifier(self._notify)
        self._closed = threading.Event()
        self._commits = Commits(lambda: self.connect(autocommit=True), self.statements, self._closed)
        self._pool = Pool(
            url,
            prepared_options(url, self._patience) if prepare else {"prepare_threshold": None, **connect_options(url)},
            size=connections,
            patience=Timeouts.statement.total_seconds(),
        )
        # A connection of its own fails at once, with the reason, where a pool would wait.
        with translated(), psycopg.connect(url, **connect_options(url)) as connection:
            opened = open_schema(connection, self.statements, create=create, may_migrate=may_migrate)
            self.installation, self.migrated = opened

    def run(self, statement: Query, *, repeatable: bool = False, timeout: timedelta | None = None) -> list[Any]:
        def once(connection: Connection) -> list[Any]:
            if self._prepared:
                return self.statements.perform(connection, statement)
            return self._transaction(connection, single(statement), _begin(timeout or self._patience))

        limit = timeout or Timeouts.call
        return self._retry(once, limit) if repeatable else self._once(once, limit)

    def fetch(self, statement: Query) -> list[Any]:
        return self.run(statement, repeatable=True)

    def write(self, operation: OperationFunction[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        def once(connection: Connection) -> T:
            return self._transaction(connection, operation(*args, **kwargs), _begin(self._patience))

        return self._retry(once)

    def read(self, operation: OperationFunction[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        def once(connection: Connection) -> T:
            begin = _begin(self._patience, mode="ISOLATION LEVEL REPEATABLE READ READ ONLY")
            return self._transaction(connection, operation(*args, **kwargs), begin, writes=False)

        return self._retry(once)

    def draw_ids(self, count: int) -> list[JobId] | None:
        return self._ids.draw(count)

    def run_on(self, connection: Any, operation: Operation[T]) -> T:
        if not isinstance(connection, psycopg.Connection):
            raise OtherDatabase(f"this store is PostgreSQL, and {type(connection).__name__} is no psycopg connection")
        _refuse_autocommit(connection)
        with translated():
            self._check_installation(_installation(connection, self.statements))
            # A savepoint: a refused enqueue leaves nothing in the caller's transaction.
            with connection.transaction():
                result = run_operation(operation, self._performer(connection))
                connection.execute(self.statements.in_schema(NOTIFY).encode())
                return result

    async def arun_on(self, connection: Any, operation: Operation[T]) -> T:
        if isinstance(connection, psycopg.Connection):
            return self.run_on(connection, operation)
        if not isinstance(connection, psycopg.AsyncConnection):
            raise OtherDatabase(f"this store is PostgreSQL, and {type(connection).__name__} is no psycopg connection")
        _refuse_autocommit(connection)
        with translated():
            self._check_installation(await _ainstallation(connection, self.statements))
            async with connection.transaction():
                result = await arun_operation(operation, lambda each: self.statements.aperform(connection, each))
                await connection.execute(self.statements.in_schema(NOTIFY).encode())
                return result

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        with translated(), closing(self.connect()) as connection:
            yield connection
            self._commits.commit(connection, self._commits.written(connection))

    def notify(self) -> None:
        self._notifier.notify()

    def listen(self, wake: Callable[[], None]) -> PostgresListener:
        return PostgresListener(lambda: self.connect(autocommit=True), self._channel, wake=wake)

    def migrate(self) -> list[int]:
        return self._once(lambda connection: migrate(connection, self.statements), Timeouts.migration)

    @cached_property
    def tools(self) -> PostgresDatabase:
        from holdfast.store.postgres.database import PostgresDatabase

        return PostgresDatabase(self)

    def connect(self, *, autocommit: bool = False) -> Connection:
        """A connection outside the pool, for rare work."""
        return psycopg.connect(self.url, **{**connect_options(self.url), "autocommit": autocommit})

    def close(self) -> None:
        self._notifier.close()
        self._closed.set()
        self._pool.close()

    def _once(self, work: Callable[[Connection], T], limit: timedelta = Timeouts.call) -> T:
        with translated(), self._pool.connection(limit=limit.total_seconds()) as connection:
            return work(connection)

    def _retry(self, work: Callable[[Connection], T], limit: timedelta = Timeouts.call) -> T:
        """Send *work* again after a broken connection, until *limit*; a second run of it is harmless."""
        began = time.monotonic()
        for wait in RETRY_DELAYS_S:
            left = limit.total_seconds() - (time.monotonic() - began)
            try:
                with self._pool.connection(limit=left) as connection:
                    return work(connection)
            except psycopg.Error as error:
                left = limit.total_seconds() - (time.monotonic() - began)
                if not is_temporary(error) or left < wait:
                    raise translate(error) from error
            if self._closed.wait(wait):
                break
        return self._once(work, limit)

    def _transaction(self, connection: Connection, operation: Operation[T], begin: str, *, writes: bool = True) -> T:
        connection.execute(begin.encode())
        try:
            result = run_operation(operation, self._performer(connection))
            written = self._commits.written(connection) if writes else None
        except BaseException:
            if not connection.closed and connection.info.transaction_status != TransactionStatus.IDLE:
                connection.execute("ROLLBACK")
            raise
        self._commits.commit(connection, written)
        return result

    def _performer(self, connection: Connection) -> Callable[[Statement], list[Any]]:
        return lambda each: self.statements.perform(connection, each)

    def _notify(self) -> None:
        # A notification may be lost with the server, so the commit does not wait for the disk.
        notify = ("SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, '')", (self._channel,))
        self._once(lambda connection: connection.execute(*notify), Timeouts.brief)

    def _draw(self, count: int) -> list[JobId]:
        return [JobId(row[0]) for row in self.run(Query("allocate_job_ids", {"count": count}), repeatable=True)]

    def _check_installation(self, row: tuple[Any, ...] | None) -> None:
        if row is None or row[0] != self.installation:
            raise OtherDatabase("the connection does not lead to the database of this app")


def _begin(timeout: timedelta, *, mode: str = "") -> str:
    """Begin a transaction that limits its own time; a session setting would not survive PgBouncer."""
    limit = int(timeout.total_seconds() * 1000)
    return (
        f"BEGIN {mode}; SET LOCAL statement_timeout = {limit}; SET LOCAL idle_in_transaction_session_timeout = {limit}"
    )


class _IdSource:
    """Draws ids in growing blocks, so that a busy process needs one query for a thousand."""

    MAX_BLOCK_SIZE = 1000

    def __init__(self, draw: Callable[[int], list[JobId]]) -> None:
        self._draw = draw
        self._lock = threading.Lock()
        self._remaining: list[JobId] = []
        self._block = 1

    def draw(self, count: int) -> list[JobId]:
        with self._lock:
            if len(self._remaining) < count:
                self._remaining += self._draw(max(count - len(self._remaining), self._block))
                self._block = min(self._block * 2, self.MAX_BLOCK_SIZE)
            drawn, self._remaining = self._remaining[:count], self._remaining[count:]
            return drawn


def _installation(connection: Connection, statements: Statements) -> tuple[Any, ...] | None:
    """The installation that a connection leads to; a missing table does not abort its transaction."""
    cursor = connection.cursor(row_factory=tuple_row)
    exists = cursor.execute(_installation_query(statements)).fetchone()
    if exists is None or not exists[0]:
        return None
    return cursor.execute(statements.text(Query("read_installation", {}))).fetchone()


async def _ainstallation(connection: psycopg.AsyncConnection[Any], statements: Statements) -> tuple[Any, ...] | None:
    cursor = connection.cursor(row_factory=tuple_row)
    exists = await (await cursor.execute(_installation_query(statements))).fetchone()
    if exists is None or not exists[0]:
        return None
    return await (await cursor.execute(statements.text(Query("read_installation", {})))).fetchone()


def _installation_query(statements: Statements) -> bytes:
    return statements.in_schema("SELECT to_regclass('holdfast.meta') IS NOT NULL").encode()


def _refuse_autocommit(connection: Connection | psycopg.AsyncConnection[Any]) -> None:
    idle = connection.info.transaction_status == TransactionStatus.IDLE
    if connection.autocommit and idle:
        raise NoTransaction("the connection is in autocommit mode and no transaction is open")
