"""The PostgreSQL backend: a pool of connections, short transactions, and retries of broken ones."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import IsolationLevel

from holdfast.domain.jobs.job import JobId, ids_from
from holdfast.domain.jobs.lane_position import EarlierJobs
from holdfast.errors import OtherDatabase
from holdfast.store.engine.backend import IdsTaken, PoolStats, Timeouts
from holdfast.store.engine.changes import NO_CHANGES, Changes, jobs_at
from holdfast.store.engine.forks import ForkSafe, survive_forks
from holdfast.store.engine.interrupts import deliver, uninterrupted
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
from holdfast.store.postgres import caller_connections as callers
from holdfast.store.postgres.abandoned_connections import AbandonedConnections
from holdfast.store.postgres.commits import BEGIN_TIMELINE_ONCE, Commits, begin_timeline
from holdfast.store.postgres.connections import (
    Connection,
    begin,
    begin_session,
    connect_options,
    is_conflict,
    is_temporary,
    roll_back,
    time_limits,
    translate,
    translated,
)
from holdfast.store.postgres.hosts import Hosts, HostState
from holdfast.store.postgres.ids import IdSource
from holdfast.store.postgres.notifier import PostgresListener, PostgresNotifier
from holdfast.store.postgres.pool import Calls, Pool
from holdfast.store.postgres.schema import migrate, open_schema
from holdfast.store.postgres.statements import Statements

if TYPE_CHECKING:
    from holdfast.store.postgres.database import PostgresDatabase

#: Waits before work is sent again. After the last one the caller gets the error.
RETRY_DELAYS_S = (0.05, 0.2, 0.8, 2.0)
#: The shares of a limit: of all tries until the call is aborted, which takes up to 0.5 s, and of one statement.
CALL_SHARE, STATEMENT_SHARE = 0.9, 0.8
#: The connections of a process: those of the pool, two that only heartbeat and settler use, one that listens, and one
#: for work that cannot wait for the pool.
DEFAULT_CONNECTIONS, MIN_CONNECTIONS, RESERVED, OTHERS = 12, 6, 2, 2
#: The channel of notifications; the name of the schema replaces its first word.
CHANNEL = "holdfast.ready"
NOT_PSYCOPG = "this store is PostgreSQL, and {} is not a psycopg connection"
Work = Callable[[Connection], T]
IsHarmless = Callable[[BaseException], bool]


class PostgresBackend(ForkSafe):
    """One PostgreSQL database, shared by all threads of this process."""

    name, single_writer, guard = "postgres", False, staticmethod(callers.keep_transaction)

    def __init__(
        self,
        url: str,
        *,
        schema: str = "holdfast",
        prepare: bool = True,
        create: bool = True,
        may_migrate: bool = False,
        any_schema: bool = False,
        connections: int = DEFAULT_CONNECTIONS,
        patience: timedelta | None = None,
    ) -> None:
        self.url = url
        self._prepared = prepare
        #: The limit of a read with all its tries, and of one statement: the server cancels a slow one first.
        self._limit = Timeouts.call if patience is None else patience * CALL_SHARE
        self._patience = Timeouts.statement if patience is None else patience * STATEMENT_SHARE
        self.statements = Statements(schema)
        self._channel = self.statements.in_schema(CHANNEL)
        self._size = connections
        self._pool_options = {**connect_options(url, limit=patience), "prepare_threshold": 2 if prepare else None}
        self._hosts = Hosts(url)
        self._make_connections()
        survive_forks(self)
        # A connection of its own fails at once, with the reason, where a pool would wait.
        with translated(), self.connect(autocommit=True) as connection:
            opening = {"create": create, "may_migrate": may_migrate, "any_schema": any_schema}
            opened = open_schema(connection, self.statements, **opening)
        self.installation, self.migrated, self.fits = opened.installation, opened.applied, opened.fits

    def _make_connections(self) -> None:
        self._ids = IdSource(self._draw)
        self._notifier = PostgresNotifier(self._channel, self._execute)
        self.notification, self.notify = self._notifier.notification, self._notifier.notify
        self._closed = threading.Event()
        self._spare = threading.BoundedSemaphore()
        self._commits = Commits(self._spare_connection, self.statements, self._closed)
        self._calls, self._abandoned = Calls(), AbandonedConnections(self._spare_connection, self._closed)
        self._pool = self._make_pool(self._size - RESERVED - OTHERS)
        self._reserved_pool = self._make_pool(RESERVED)

    def after_fork_in_child(self) -> None:
        """Begin anew: connections, ids, threads and locks belong to the parent, which keeps them."""
        closed = self._closed.is_set()
        self._notifier.abandon()
        self.__dict__.pop("reserved", None)
        self._hosts = Hosts(self.url)
        self._make_connections()
        if closed:
            self.close()

    @uninterrupted
    def run(self, statement: Query, *, repeatable: bool = False, timeout: timedelta | None = None) -> list[Any]:
        def once(connection: Connection) -> list[Any]:
            if self._prepared:
                return self.statements.run(connection, statement)
            return self._transaction(connection, single(statement), self._begin(timeout or self._patience))

        limit = min(timeout, self._limit) if timeout else self._limit
        return self._retry(once, limit, again=is_temporary if repeatable else is_conflict)

    def fetch(self, statement: Query) -> list[Any]:
        return self.run(statement, repeatable=True)

    @uninterrupted
    def write(self, operation: OperationFunction[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        def once(connection: Connection) -> T:
            return self._transaction(connection, operation(*args, **kwargs), self._begin(self._patience))

        with suppress(IdsTaken):
            return self._retry(once, Timeouts.call)
        self.discard_ids()  # an operation that draws its ids itself draws free ones now
        return self._retry(once, Timeouts.call)

    @uninterrupted
    def read(self, operation: OperationFunction[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        def once(connection: Connection) -> T:
            start = begin(self._patience, mode="ISOLATION LEVEL REPEATABLE READ READ ONLY")
            return self._transaction(connection, operation(*args, **kwargs), start, writes=False)

        return self._retry(once, self._limit)

    @uninterrupted
    def draw_ids(self, count: int) -> Sequence[JobId] | None:
        return self._ids.draw(count)

    @uninterrupted
    def discard_ids(self) -> None:
        self._ids.discard()
        self.run(Query("skip_job_ids", {}))

    def run_on(self, connection: Any, operation: Operation[T], changes: Changes = NO_CHANGES) -> T:
        if not isinstance(connection, psycopg.Connection):
            raise OtherDatabase(NOT_PSYCOPG.format(type(connection).__name__))
        callers.check_caller(connection)
        with translated():
            self._check_installation(callers.installation_of(connection, self.statements))
            # A savepoint: a refused enqueue leaves nothing in the caller's transaction.
            with connection.transaction():
                ready = list[EarlierJobs]()
                result = run_operation(operation, self._performer(connection), ready)
                callers.notify_on(connection, self.statements, changes and changes | jobs_at(ready))
                return result

    async def arun_on(self, connection: Any, operation: Operation[T], changes: Changes = NO_CHANGES) -> T:
        if isinstance(connection, psycopg.Connection):
            return self.run_on(connection, operation, changes)
        if not isinstance(connection, psycopg.AsyncConnection):
            raise OtherDatabase(NOT_PSYCOPG.format(type(connection).__name__))
        callers.check_caller(connection)
        with translated():
            self._check_installation(await callers.ainstallation_of(connection, self.statements))
            async with connection.transaction():
                ready = list[EarlierJobs]()
                result = await arun_operation(operation, lambda each: self.statements.aperform(connection, each), ready)
                await callers.anotify_on(connection, self.statements, changes and changes | jobs_at(ready))
                return result

    @contextmanager
    def transaction(self, *, limit: timedelta | None = None) -> Iterator[Connection]:
        with translated(), closing(self.connect()) as connection:
            if limit is not None:
                connection.execute(time_limits(limit).encode())
            yield connection
            self._commits.commit(connection, self._commits.written(connection))

    def listen(self, wake: Callable[[Changes], None]) -> PostgresListener:
        connect = partial(self.connect, autocommit=True)
        return PostgresListener(connect, self._channel, send=self._notifier.send, wake=wake)

    @uninterrupted
    def migrate(self) -> list[int]:
        # A connection of the pool begins a timeline, which needs the schema.
        with translated(), closing(self.connect(autocommit=True)) as connection:
            return migrate(connection, self.statements)

    @cached_property
    def tools(self) -> PostgresDatabase:
        from holdfast.store.postgres.database import PostgresDatabase

        return PostgresDatabase(self)

    def connect(self, *, autocommit: bool = False) -> Connection:
        """A connection outside the pool, for rare work."""
        connection = self._hosts.connect(**{**connect_options(self.url), "autocommit": autocommit})
        connection.isolation_level = IsolationLevel.READ_COMMITTED
        return connection

    def host_states(self) -> list[HostState]:
        """What each host of the URL is now."""
        return self._hosts.states(**connect_options(self.url))

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    @uninterrupted
    def close(self) -> None:
        self._notifier.close()
        self._closed.set()
        self._calls.close()
        self._pool.close()
        self._reserved_pool.close()

    @cached_property
    def reserved(self) -> PostgresBackend:
        twin = copy.copy(self)
        twin._pool = self._reserved_pool  # noqa: SLF001 - of the same class
        return twin

    def since_lock_wait(self) -> float:
        return float("inf")

    def pool_stats(self) -> PoolStats:
        return self._pool.stats() + self._reserved_pool.stats()

    def _make_pool(self, size: int) -> Pool:
        patience = Timeouts.statement.total_seconds()
        return Pool(self._connect_for_pool, size=size, patience=patience, calls=self._calls, abandoned=self._abandoned)

    def _connect_for_pool(self) -> Connection:
        """A new connection. A pooler that shares sessions by transactions keeps no settings."""
        connection = self._hosts.connect(**self._pool_options)
        try:
            if self._prepared:
                begin_session(connection, self._patience)
            begin_timeline(connection, self.statements)
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _spare_connection(self) -> Iterator[Connection]:
        """The one connection beside the pools for work that cannot wait for them."""
        if not self._spare.acquire(timeout=Timeouts.statement.total_seconds()):
            raise psycopg.OperationalError("the spare connection is in use")
        try:
            with self.connect(autocommit=True) as connection:
                yield connection
        finally:
            self._spare.release()

    def _once(self, work: Work[T], limit: timedelta) -> T:
        with translated(), self._pool.connection(limit=limit.total_seconds()) as connection:
            return work(connection)

    def _retry(self, work: Work[T], limit: timedelta, *, again: IsHarmless = is_temporary) -> T:
        """Send *work* again after errors after which a second run is harmless, until *limit*.

        With a limit of its own, no try begins that ends too late if it takes as long as the last one.
        """
        until = time.monotonic() + limit.total_seconds()
        for wait in RETRY_DELAYS_S:
            tried_at = time.monotonic()
            try:
                with self._pool.connection(limit=until - tried_at) as connection:
                    return work(connection)
            except psycopg.Error as error:
                now = time.monotonic()
                took = now - tried_at if limit < Timeouts.call else 0.0
                if not again(error) or until - now < wait + took:
                    raise translate(error) from error
            if self._closed.wait(wait):
                break
            deliver()
        return self._once(work, max(limit / 10, timedelta(seconds=until - time.monotonic())))

    def _transaction(self, connection: Connection, operation: Operation[T], begin: str, *, writes: bool = True) -> T:
        connection.execute(begin.encode())
        ready = list[EarlierJobs]()
        try:
            result = run_operation(operation, self._performer(connection), ready)
            written = self._commits.written(connection) if writes else None
        except BaseException:
            roll_back(connection)
            raise
        self._commits.commit(connection, written)
        if ready:
            self.notify(jobs_at(ready))
        return result

    def _begin(self, timeout: timedelta) -> str:
        """The begin of a transaction that may write. Behind a pooler, its session may be a new one."""
        statements = begin(timeout)
        return statements if self._prepared else f"{statements}; {self.statements.in_schema(BEGIN_TIMELINE_ONCE)}"

    def _performer(self, connection: Connection) -> Callable[[Statement], list[Any]]:
        return lambda each: self.statements.perform(connection, each)

    def _execute(self, statement: str, parameters: tuple[str, ...]) -> None:
        self._once(lambda connection: connection.execute(statement.encode(), parameters), Timeouts.brief)

    def _draw(self, count: int) -> Sequence[JobId]:
        ((first,),) = self.run(Query("draw_job_ids", {"count": count}, direct=True), repeatable=True)
        return ids_from(first, count)

    def _check_installation(self, row: tuple[Any, ...] | None) -> None:
        if row is None or row[0] != self.installation:
            raise OtherDatabase("the connection does not lead to the database of this app")
