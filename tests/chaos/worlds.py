"""Databases for hundreds of short runs: emptied, not made anew."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from holdfast.domain.jobs.new_job import NewJob
from holdfast.store import Store
from holdfast.store.postgres.backend import PostgresBackend
from holdfast.store.postgres.connections import Connection
from holdfast.store.sqlite.backend import SqliteBackend
from tests.chaos.points import Fault, Points, open_on_points
from tests.chaos.scenarios import World
from tests.support.backends import START, PostgresDatabase, SqliteDatabase, postgres_url

#: What is not emptied between two worlds.
_KEPT = ("meta", "test_clock", "epoch", "timeline")


class _OneConnection(SqliteDatabase):
    """Looks behind the store's back many times over."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.open()
        self._looking = sqlite3.connect(path, timeout=30, isolation_level=None)
        self._looking.execute("PRAGMA synchronous = OFF")

    def execute(self, query: str, parameters: Any = ()) -> list[Any]:
        return self._looking.execute(query.replace("holdfast.", "holdfast_"), parameters).fetchall()

    def close(self) -> None:
        super().close()
        self._looking.close()


class _Impatient(PostgresBackend):
    """Does not wait for locks. A session makes its own settings, so an option of the URL would not last."""

    def _connect_for_pool(self) -> Connection:
        connection = super()._connect_for_pool()
        connection.execute("SET lock_timeout = '20ms'")
        return connection


class Worlds:
    """Makes one empty world after the other on a backend."""

    def __init__(self, backend: str, directory: Path) -> None:
        if backend == "sqlite":
            self.faults = [Fault.CRASH, Fault.ERROR, Fault.DELAY]
            self._database = _OneConnection(directory / "jobs.db")
            clock = self._database.clock
            others = SqliteBackend(self._database.path, durability="fast", clock=clock.now, busy_timeout=0.0)
            rows = self._database.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'holdfast%'"
            )
            self._tables = [name for (name,) in rows if name.removeprefix("holdfast_") not in _KEPT]
        else:
            self.faults = [*Fault]
            self._database = PostgresDatabase(postgres_url(backend))
            others = _Impatient(self._database.url)
        self._process: Store | None = None
        #: Somebody else, who does not wait for a lock.
        self.other = Store(others)
        self._store = self._database.open()
        # Whoever writes first in a server's life says that one has begun: no run is to be the first.
        self._store.jobs.enqueue_many([NewJob(kind="first"), NewJob(kind="second")])

    def make(self) -> World:
        """An empty world at the start of time."""
        if isinstance(self._database, PostgresDatabase):
            self._database.empty()
        else:
            for statement in ("BEGIN", *(f"DELETE FROM {table}" for table in self._tables), "COMMIT"):
                self._database.execute(statement)
        self._database.clock.advance(START - self._database.clock.now())
        return World(self._database, self._store)

    def on_points(self, points: Points) -> Store:
        """A process that will meet its fault. One of PostgreSQL keeps nothing but connections, which end with it."""
        if self._process is None or self._database.name == "sqlite":
            self._process = open_on_points(self._database)
        self._process.backend.points = points
        return self._process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.other.close()
        if self._process is not None and self._database.name != "sqlite":
            self._process.close()
        self._database.close()
