"""PostgreSQL connections: a pool, short transactions, and work that is sent again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

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
    arun_operation,
    run_operation,
)
from holdfast.store.postgres.commits import Commits
from holdfast.store.postgres.errors import passes, translate
from holdfast.store.postgres.notifier import Notifier, PostgresListener
from holdfast.store.postgres.pool import Pool
from holdfast.store.postgres.schema import check_or_migrate, migrate
from holdfast.store.postgres.statements import Statements

if TYPE_CHECKING:
    from holdfast.store.postgres.database import PostgresDatabase

T = TypeVar("T")

_NEVER_A_PLAN = ("enable_seqscan", "enable_bitmapscan", "enable_sort", "enable_hashjoin", "enable_mergejoin")

#: Waits before work is sent again, in seconds. Then the caller is told.
AGAIN_AFTER = (0.05, 0.2, 0.8, 2.0)
#: Rings go over this channel; the schema's name takes the place of the first part.
CHANNEL = "holdfast.ready"
#: In a caller's transaction: one constant payload, delivered with its commit. A setting switches it off.
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
        connections: int = 10,
        patience: timedelta | None = None,
    ) -> None:
        self.url = url
        self._prepared = prepare
        self._patience = patience or Timeouts.statement
        self.statements = Statements(schema)
        self._ids = _IdSource(self._draw)
        self._channel = self.statements.in_schema(CHANNEL)
        self._ringer = Notifier(self._notify)
        self._closed = threading.Event()
        self._commits = Commits(lambda: self.connect(autocommit=True), self.statements, self._closed)
        self._pool = Pool(
            url,
            _prepared(url, self._patience) if prepare else {"prepare_threshold": None, **_connect_options(url)},
            size=connections,
            patience=Timeouts.statement.total_seconds(),
        )
        # A connection of its own: it fails at once, and with the reason, where a pool would wait.
        with self._translated(), psycopg.connect(url, **_connect_options(url)) as connection:
            self.installation = check_or_migrate(connection, self.statements, create=create)

    # -- Backend ---------------------------------------------------------------------------

    def run(self, ask: Query, *, repeatable: bool = False, timeout: timedelta | None = None) -> list[Any]:
        def once(connection: psycopg.Connection[Any]) -> list[Any]:
            if self._prepared:
                return self.statements.perform(connection, ask)
            return self._transaction(connection, _single(ask), _begin(timeout or self._patience))

        limit = timeout or Timeouts.call
        return self._insist(once, limit) if repeatable else self._once(once, limit)

    def look(self, ask: Query) -> list[Any]:
        return self.run(ask, repeatable=True)

    def write(self, flow: OperationFunction[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        def once(connection: psycopg.Connection[Any]) -> T:
            return self._transaction(connection, flow(*args, **kwargs), _begin(self._patience))

        return self._insist(once)

    def read(self, flow: OperationFunction[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        def once(connection: psycopg.Connection[Any]) -> T:
            begin = _begin(self._patience, mode="ISOLATION LEVEL REPEATABLE READ READ ONLY")
            return self._transaction(connection, flow(*args, **kwargs), begin, writes=False)

        return self._insist(once)

    def draw_ids(self, count: int) -> list[JobId] | None:
        return self._ids.draw(count)

    def run_on(self, connection: Any, flow: Operation[T]) -> T:
        if not isinstance(connection, psycopg.Connection):
            raise OtherDatabase(f"this store is PostgreSQL, and {type(connection).__name__} is no psycopg connection")
        _refuse_autocommit(connection)
        with self._translated():
            self._same_installation(_installation(connection, self.statements))
            # A savepoint: a refused enqueue leaves nothing behind, whatever the caller does next.
            with connection.transaction():
                result = run_operation(flow, self._performer(connection))
                connection.execute(self.statements.in_schema(NOTIFY).encode())
                return result

    async def arun_on(self, connection: Any, flow: Operation[T]) -> T:
        if isinstance(connection, psycopg.Connection):
            return self.run_on(connection, flow)
        if not isinstance(connection, psycopg.AsyncConnection):
            raise OtherDatabase(f"this store is PostgreSQL, and {type(connection).__name__} is no psycopg connection")
        _refuse_autocommit(connection)
        with self._translated():
            self._same_installation(await _ainstallation(connection, self.statements))
            async with connection.transaction():
                result = await arun_operation(flow, lambda step: self.statements.aperform(connection, step))
                await connection.execute(self.statements.in_schema(NOTIFY).encode())
                return result

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection[Any]]:
        with self._translated(), closing(self.connect()) as connection:
            yield connection
            self._commits.commit(connection, self._commits.written(connection))

    def notify(self) -> None:
        self._ringer.notify()

    def listen(self, heard: Callable[[], None]) -> PostgresListener:
        return PostgresListener(
            lambda: psycopg.connect(self.url, **_connect_options(self.url)), self._channel, heard=heard
        )

    def migrate(self) -> list[int]:
        return self._once(lambda connection: migrate(connection, self.statements), Timeouts.migration)

    @cached_property
    def tools(self) -> PostgresDatabase:
        from holdfast.store.postgres.database import PostgresDatabase

        return PostgresDatabase(self)

    def connect(self, *, autocommit: bool = False) -> psycopg.Connection[Any]:
        """A connection beside the pool, for what is seldom done."""
        return psycopg.connect(self.url, **{**_connect_options(self.url), "autocommit": autocommit})

    def close(self) -> None:
        self._ringer.close()
        self._closed.set()
        self._pool.close()

    # -- sending ---------------------------------------------------------------------------

    def _once(self, work: Callable[[psycopg.Connection[Any]], T], limit: timedelta = Timeouts.call) -> T:
        with self._translated(), self._pool.connection(limit=limit.total_seconds()) as connection:
            return work(connection)

    def _insist(self, work: Callable[[psycopg.Connection[Any]], T], limit: timedelta = Timeouts.call) -> T:
        """Send *work* again when the connection broke, until *limit*: its effect is the same once or twice."""
        began = time.monotonic()
        for wait in AGAIN_AFTER:
            left = limit.total_seconds() - (time.monotonic() - began)
            try:
                with self._pool.connection(limit=left) as connection:
                    return work(connection)
            except psycopg.Error as error:
                left = limit.total_seconds() - (time.monotonic() - began)
                if not passes(error) or left < wait:
                    raise translate(error) from error
            if self._closed.wait(wait):
                break
        return self._once(work, limit)

    def _transaction(
        self, connection: psycopg.Connection[Any], flow: Operation[T], begin: str, *, writes: bool = True
    ) -> T:
        connection.execute(begin.encode())
        try:
            result = run_operation(flow, self._performer(connection))
            written = self._commits.written(connection) if writes else None
        except BaseException:
            if not connection.closed and connection.info.transaction_status != TransactionStatus.IDLE:
                connection.execute("ROLLBACK")
            raise
        self._commits.commit(connection, written)
        return result

    def _performer(self, connection: psycopg.Connection[Any]) -> Callable[[Statement], list[Any]]:
        return lambda step: self.statements.perform(connection, step)

    def _notify(self) -> None:
        # A ring may be lost with the server: nobody waits until it is on disk.
        notify = ("SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, '')", (self._channel,))
        self._once(lambda connection: connection.execute(*notify), Timeouts.brief)

    def _draw(self, count: int) -> list[JobId]:
        return [JobId(row[0]) for row in self.run(Query("allocate_job_ids", {"count": count}), repeatable=True)]

    def _same_installation(self, found: tuple[Any, ...] | None) -> None:
        if found is None or found[0] != self.installation:
            raise OtherDatabase("the connection does not lead to the database of this app")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise translate(error) from error


def _begin(timeout: timedelta, *, mode: str = "") -> str:
    """Every transaction limits its own time; a session setting would not survive PgBouncer."""
    limit = int(timeout.total_seconds() * 1000)
    return (
        f"BEGIN {mode}; SET LOCAL statement_timeout = {limit}; SET LOCAL idle_in_transaction_session_timeout = {limit}"
    )


def _single(ask: Query) -> Operation[list[Any]]:
    return (yield ask)


class _IdSource:
    """Draws ids in growing blocks, so that a busy enqueuer asks once for a thousand."""

    LARGEST = 1000

    def __init__(self, draw: Callable[[int], list[JobId]]) -> None:
        self._draw = draw
        self._lock = threading.Lock()
        self._left: list[JobId] = []
        self._block = 1

    def draw(self, count: int) -> list[JobId]:
        with self._lock:
            if len(self._left) < count:
                self._left += self._draw(max(count - len(self._left), self._block))
                self._block = min(self._block * 2, self.LARGEST)
            drawn, self._left = self._left[:count], self._left[count:]
            return drawn


def _installation(connection: psycopg.Connection[Any], statements: Statements) -> tuple[Any, ...] | None:
    """The installation that a connection leads to, without spoiling its transaction."""
    cursor = connection.cursor(row_factory=tuple_row)
    there = cursor.execute(_installation_query(statements)).fetchone()
    if there is None or not there[0]:
        return None
    return cursor.execute(statements.text(Query("read_installation", {}))).fetchone()


async def _ainstallation(connection: psycopg.AsyncConnection[Any], statements: Statements) -> tuple[Any, ...] | None:
    cursor = connection.cursor(row_factory=tuple_row)
    there = await (await cursor.execute(_installation_query(statements))).fetchone()
    if there is None or not there[0]:
        return None
    return await (await cursor.execute(statements.text(Query("read_installation", {})))).fetchone()


def _installation_query(statements: Statements) -> bytes:
    return statements.in_schema("SELECT to_regclass('holdfast.meta') IS NOT NULL").encode()


def _refuse_autocommit(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    idle = connection.info.transaction_status == TransactionStatus.IDLE
    if connection.autocommit and idle:
        raise NoTransaction("the connection is in autocommit mode and no transaction is open")


def _prepared(url: str, patience: timedelta = Timeouts.statement) -> dict[str, Any]:
    """Prepared statements are planned once, for tables of any size to come.

    A plan made while a table was empty would read, hash or sort all of it when it is full, so
    none of that is ever a plan: rows are found by an index, in its order. And since every
    statement then has only one good plan, it need not be weighed again at each call.
    """
    given = psycopg.conninfo.conninfo_to_dict(url).get("options") or ""
    limit = int(patience.total_seconds() * 1000)
    settings = {
        "plan_cache_mode": "force_generic_plan",
        "jit": "off",
        "timezone": "UTC",
        "statement_timeout": limit,
        **dict.fromkeys(_NEVER_A_PLAN, "off"),
    }
    options = " ".join([str(given), *(f"-c {name}={value}" for name, value in settings.items())])
    return {**_connect_options(url), "options": options.strip(), "prepare_threshold": 2}


def readable(url: str) -> bool:
    """Whether libpq understands *url*, with one ``@`` at most: a second one belongs to a password."""
    try:
        psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        return False
    return url.partition("?")[0].count("@") <= 1


def _connect_options(url: str) -> dict[str, Any]:
    """Client-side limits on dead peers; what the URL says itself wins."""
    seconds = int(Timeouts.connect.total_seconds())
    options: dict[str, Any] = {
        "connect_timeout": seconds,
        "tcp_user_timeout": int(Timeouts.statement.total_seconds() * 1000),
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "application_name": "holdfast",
        "autocommit": True,
    }
    given = psycopg.conninfo.conninfo_to_dict(url)
    return {name: value for name, value in options.items() if name not in given}
