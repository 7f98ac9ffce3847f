"""Where a store under test lives: a SQLite file, or a PostgreSQL of our own, with or without something before it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from holdfast.store import Store
from tests.chaos.standby import Cluster
from tests.support.backends import SqliteDatabase
from tests.support.pgbouncer import pgbouncer
from tests.support.postgres import QUICK, PostgresServer, bundled_programs
from tests.support.proxy import Proxy, proxy_to


class Site(ABC):
    """A store: *url* is what workers and clients are told; :meth:`execute` goes past all that may be in between."""

    name = "sqlite"
    server: PostgresServer | None = None
    proxy: Proxy | None = None
    cluster: Cluster | None = None

    def __init__(self, url: str) -> None:
        self.url = url

    @abstractmethod
    def execute(self, query: str, parameters: Any = ()) -> list[Any]:
        """Run one statement behind the store's back."""

    @abstractmethod
    def keep(self, folder: Path) -> None:
        """Write a copy of the store into *folder*, for somebody to look at."""

    @abstractmethod
    def set_clock(self, by: float) -> None:
        """From now on the store's clock is off by so many seconds."""


class SqliteSite(Site):
    """A file in *folder*, whose clock can be stepped."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "jobs.db"
        super().__init__(f"sqlite:///{self.path}?durability=fast")
        self._database = SqliteDatabase(self.path, real_time=True)

    def execute(self, query: str, parameters: Any = ()) -> list[Any]:
        return self._database.execute(query, parameters)

    def keep(self, folder: Path) -> None:
        self.execute("VACUUM INTO ?", (str(folder / "store.db"),))

    def set_clock(self, by: float) -> None:
        offset = self.path.with_suffix(".clock")
        fresh = offset.with_suffix(".new")
        fresh.write_text(str(by))
        fresh.replace(offset)


def stepped_store(url: str) -> Store:
    """A store on a SQLite file whose clock is read together with the offset that lies beside it."""
    from holdfast.store.sqlite.backend import SqliteBackend

    path = Path(url.removeprefix("sqlite:///").partition("?")[0])
    offset = path.with_suffix(".clock")

    def now() -> datetime:
        return datetime.now(UTC) + timedelta(seconds=float(offset.read_text()))

    return Store(SqliteBackend(path, durability="fast", clock=now))


class PostgresSite(Site):
    """A server that may be gone at any moment: every question comes by a connection of its own."""

    name = "postgres"

    def __init__(self, server_url: str, url: str | None = None) -> None:
        super().__init__(url or server_url)
        self.server_url = server_url

    def execute(self, query: str, parameters: Any = ()) -> list[Any]:
        import psycopg

        where = self.server_url if self.cluster is None else self.cluster.url
        with psycopg.connect(where, autocommit=True, connect_timeout=10) as connection:
            cursor = connection.execute(query.encode(), parameters)
            return cursor.fetchall() if cursor.description else []

    def keep(self, folder: Path) -> None:
        where = self.server_url if self.cluster is None else self.cluster.url
        command = [str(bundled_programs() / "pg_dump"), "--file", str(folder / "store.sql"), where]
        subprocess.run(command, check=True, capture_output=True, text=True)

    def set_clock(self, by: float) -> None:
        self.execute("CREATE TABLE IF NOT EXISTS chaos_clock (by interval)")
        self.execute("DELETE FROM chaos_clock")
        self.execute("INSERT INTO chaos_clock VALUES (make_interval(secs => %s))", (by,))
        self.execute(
            "CREATE OR REPLACE FUNCTION holdfast.now() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE "
            "AS 'SELECT clock_timestamp() + coalesce((SELECT max(by) FROM public.chaos_clock), ''0'')'"
        )


@contextmanager
def open_site(backend: str, folder: Path, *, before: str | None = None, **settings: str) -> Iterator[Site]:
    """A store of our own. *before* it stands nothing, a ``proxy``, ``pgbouncer``, or a proxy with a ``standby`` behind the
    primary, which may be an ``asynchronous standby``.
    """
    if backend == "sqlite":
        yield SqliteSite(folder)
        return
    with ExitStack() as stack:
        if before in ("standby", "asynchronous standby"):
            cluster = stack.enter_context(_closing(Cluster(synchronous=before == "standby")))
            proxy = stack.enter_context(proxy_to(cluster.url))
            site = PostgresSite(cluster.url, proxy.uri)
            site.cluster, site.proxy = cluster, proxy
        else:
            server = PostgresServer(bundled_programs(), settings={**QUICK, "shared_buffers": "64MB", **settings})
            stack.callback(server.close)
            server.start()
            site = PostgresSite(server.url())
            site.server = server
        if before == "proxy":
            site.proxy = stack.enter_context(proxy_to(site.server_url))
            site.url = site.proxy.uri
        if before == "pgbouncer":
            site.url = f"{stack.enter_context(pgbouncer(site.server_url))}&prepare=off"
        yield site


@contextmanager
def small_disk(megabytes: int) -> Iterator[Path]:
    """A file system of so many megabytes. Only root can make one."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-disk-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        shutil.rmtree(folder, ignore_errors=True)


def fill_disk(folder: Path) -> Path:
    """Write a file until no byte is left; returns it."""
    filling = folder / "fill"
    with filling.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    return filling


@contextmanager
def _closing(cluster: Cluster) -> Iterator[Cluster]:
    try:
        yield cluster
    finally:
        cluster.close()
