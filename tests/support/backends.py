"""Stores for tests: the same database opened as often as a test likes, on a clock it can set."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit

from holdfast.store import Store
from holdfast.store.sqlite.backend import SqliteBackend
from tests.support.postgres import QUICK, PostgresServer, bundled_programs, system_programs

START = datetime(2030, 1, 1, 12, tzinfo=UTC)


class Clock(Protocol):
    """The store's clock: it stands still until a test moves it."""

    def now(self) -> datetime: ...

    def advance(self, delta: timedelta | None = None, /, **parts: float) -> None: ...


class Database(Protocol):
    """One database of a test."""

    name: str
    url: str
    clock: Clock

    def open(self) -> Store:
        """A new store on it, with connections of its own, as another process would have."""
        ...

    def execute(self, query: str, parameters: Any = ()) -> list[Any]:
        """Plain SQL, for looking behind the store's back. ``holdfast.`` names its tables on both."""
        ...


class FrozenClock:
    def __init__(self) -> None:
        self._now = START

    def now(self) -> datetime:
        return self._now

    def advance(self, delta: timedelta | None = None, /, **parts: float) -> None:
        self._now += delta if delta is not None else timedelta(**parts)


class SqliteDatabase:
    name = "sqlite"

    def __init__(self, path: Path, *, real_time: bool = False) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"
        self.clock: Clock = FrozenClock()
        self._real_time = real_time
        self._opened: list[Store] = []

    def open(self) -> Store:
        if not self.path.exists():
            _make(self.path)
        options = {} if self._real_time else {"clock": self.clock.now}
        store = Store(SqliteBackend(self.path, durability="fast", **options))
        self._opened.append(store)
        return store

    def execute(self, query: str, parameters: Any = ()) -> list[Any]:
        connection = sqlite3.connect(self.path, timeout=30, isolation_level=None)
        try:
            return connection.execute(query.replace("holdfast.", "holdfast_"), parameters).fetchall()
        finally:
            connection.close()

    def close(self) -> None:
        for store in self._opened:
            store.close()


def _make(path: Path) -> None:
    """A store as it is on its first day, copied: making it takes ten times as long."""
    content, installation = _template()
    path.write_bytes(content.replace(installation, uuid.uuid4().hex.encode()))
    path.chmod(0o600)


@cache
def _template() -> tuple[bytes, bytes]:
    """The bytes of a new store, and those that are its own."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "jobs.db"
        backend = SqliteBackend(path, durability="fast")
        backend.close()
        return path.read_bytes(), backend.installation.encode()


class PostgresClock(FrozenClock):
    def __init__(self, database: PostgresDatabase) -> None:
        super().__init__()
        self._database = database

    def advance(self, delta: timedelta | None = None, /, **parts: float) -> None:
        super().advance(delta, **parts)
        self._database.execute("UPDATE holdfast.test_clock SET at = %s", (self._now,))


class PostgresDatabase:
    """A database that is emptied, not made anew, for each test."""

    def __init__(self, url: str, *, name: str = "postgres", real_time: bool = False) -> None:
        self.name = name
        self.url = url
        self._opened: list[Store] = []
        self._connection = _looking(url)
        self._empty()
        self.clock: Clock = PostgresClock(self)
        if not real_time:
            self._freeze()

    def open(self) -> Store:
        from holdfast.store.postgres.backend import PostgresBackend

        store = Store(PostgresBackend(self.url))
        self._opened.append(store)
        return store

    def execute(self, query: str, parameters: Any = ()) -> list[Any]:
        cursor = self._connection.execute(query.encode(), parameters)
        return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        for store in self._opened:
            store.close()

    def empty(self) -> None:
        """Delete all rows, in one call of a function whose plans the connection keeps."""
        import psycopg

        try:
            self.execute("SELECT holdfast_test.empty()")
        except (psycopg.errors.UndefinedFunction, psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedTable):
            self._define_empty()
            self.execute("SELECT holdfast_test.empty()")

    def _empty(self) -> None:
        there = self.execute(
            "SELECT to_regclass('holdfast.meta') IS NOT NULL AND to_regclass('holdfast.job') IS NOT NULL"
        )
        if not there[0][0]:
            self.execute("DROP SCHEMA IF EXISTS holdfast CASCADE")
            self.open()
        self.execute("CREATE TABLE IF NOT EXISTS holdfast.test_clock (at timestamptz NOT NULL)")
        self.empty()
        self.execute(
            "SELECT setval(oid::regclass, 1, false) FROM pg_class WHERE relkind = 'S' AND relnamespace = %s::regnamespace",
            ("holdfast",),
        )
        self._tell_time("SELECT clock_timestamp()")

    def _define_empty(self) -> None:
        """Deleting a few rows is ten times as fast as making new files. A table that has grown gets new ones."""
        query = "SELECT tablename FROM pg_tables WHERE schemaname = 'holdfast' AND tablename NOT IN ('meta', 'epoch', 'test_clock')"
        tables = [f"holdfast.{name}" for (name,) in self.execute(query)]
        body = "".join(
            f"""
            IF pg_relation_size('{table}') > 40000 THEN grown := grown || '{table}'::text;
            ELSIF EXISTS (SELECT FROM {table}) THEN DELETE FROM {table}; END IF;"""
            for table in tables
        )
        self.execute("CREATE SCHEMA IF NOT EXISTS holdfast_test")
        self.execute(
            f"""CREATE OR REPLACE FUNCTION holdfast_test.empty() RETURNS void LANGUAGE plpgsql AS $$
            DECLARE grown text[] := '{{}}';
            BEGIN
                {body}
                IF grown <> '{{}}' THEN EXECUTE 'TRUNCATE ' || array_to_string(grown, ', '); END IF;
            END $$"""
        )

    def _freeze(self) -> None:
        self.execute("DELETE FROM holdfast.test_clock")
        self.execute("INSERT INTO holdfast.test_clock VALUES (%s)", (START,))
        self._tell_time("SELECT at FROM holdfast.test_clock")

    def _tell_time(self, body: str) -> None:
        """Say what the store's clock is, unless it is that already."""
        query = "SELECT prosrc FROM pg_proc WHERE proname = 'now' AND pronamespace = %s::regnamespace"
        if self.execute(query, ("holdfast",)) != [(body,)]:
            self.execute(_NOW.format(body=body))


_NOW = "CREATE OR REPLACE FUNCTION holdfast.now() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE AS '{body}'"


def _looking(url: str) -> Any:
    """The connection of this test process to a database, with the settings of a new one."""
    import psycopg

    try:
        _connections[url].execute("RESET SESSION AUTHORIZATION; RESET ALL")
    except (KeyError, psycopg.OperationalError):
        _connections[url] = psycopg.connect(url, autocommit=True)
    return _connections[url]


_connections: dict[str, Any] = {}


@cache
def _server(programs: Path) -> PostgresServer:
    """One server per test process, stopped by :func:`stop_servers`."""
    server = PostgresServer(programs, settings=QUICK)
    server.start()
    _started.append(server)
    return server


_started: list[PostgresServer] = []


def stop_servers() -> None:
    for connection in _connections.values():
        connection.close()
    _connections.clear()
    for server in _started:
        server.close()
    _started.clear()
    _server.cache_clear()


def available() -> list[str]:
    """The names of all backends that this machine can test."""
    names = ["sqlite", "postgres"]
    if system_programs() is not None:
        names.append("postgres-system")
    if os.environ.get("HOLDFAST_TEST_POSTGRES_URL"):
        names.append("postgres-url")
    return names


def postgres_url(name: str) -> str:
    """The URL of the database for a PostgreSQL backend name; starts its server."""
    if name == "postgres-url":
        return _own_database(os.environ["HOLDFAST_TEST_POSTGRES_URL"])
    programs = system_programs() if name == "postgres-system" else bundled_programs()
    assert programs is not None
    return _server(programs).url()


@cache
def _own_database(url: str) -> str:
    """A database of this test process on the server that *url* names, made anew."""
    import psycopg

    name = f"holdfast_test_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {name}")
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


@contextmanager
def open_database(name: str, directory: Path, *, real_time: bool = False) -> Iterator[Database]:
    """A fresh, empty database on the backend *name*."""
    database: SqliteDatabase | PostgresDatabase
    if name == "sqlite":
        database = SqliteDatabase(directory / "jobs.db", real_time=real_time)
    else:
        database = PostgresDatabase(postgres_url(name), name=name, real_time=real_time)
    try:
        yield database
    finally:
        database.close()
