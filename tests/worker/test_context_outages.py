"""The store is away while a handler uses its context: the call waits, and the run goes on."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

import holdfast
from holdfast import Selector, State
from holdfast.errors import LeaseLost, ServerReadOnly, StoreLocked, StoreUnavailable
from holdfast.store import Store
from holdfast.store.postgres import backend
from holdfast.store.postgres.commits import Commits
from holdfast.store.sqlite.backend import SqliteBackend
from holdfast.worker import context
from tests.support.postgres import QUICK, bundled_programs, running
from tests.support.processes import wait_until
from tests.support.programs import process_jobs
from tests.support.workers import working

#: Longer than several tries of a call.
OUTAGE_S = 1.0


@pytest.fixture(autouse=True)
def _impatient_calls(monkeypatch):
    """Single calls give up soon, so that the context has to wait."""
    monkeypatch.setattr(backend, "RETRY_DELAYS_S", (0.01,))
    monkeypatch.setattr(context, "RETRY_S", 0.05)


@pytest.fixture
def server():
    with running(bundled_programs(), settings=QUICK) as server:
        yield server


@contextmanager
def stopped(server):
    """The server is away for a while."""
    server.stop("immediate")
    yield
    threading.Event().wait(OUTAGE_S)
    server.start()


@contextmanager
def locked(path):
    """Another program writes to the file for a while."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        threading.Event().wait(OUTAGE_S)
        other.execute("COMMIT")


@contextmanager
def impatient_app(path):
    """Its calls wait for the file's lock for a moment only."""
    with holdfast.Holdfast(f"sqlite:///{path}") as app:
        app.use(app.url, Store(SqliteBackend(path, durability="fast", busy_timeout=0.1)))
        yield app


def under_way(path: Path) -> None:
    wait_until(Path(f"{path}-begun").exists)


@contextmanager
def read_only(server):
    """The server takes no writes for a while, as a standby that is about to be promoted."""

    def switch(admin, mode):
        admin.execute("SET default_transaction_read_only = off")
        admin.execute(f"ALTER DATABASE postgres SET default_transaction_read_only = {mode}")
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'holdfast'")

    with psycopg.connect(server.url(), autocommit=True) as admin:
        switch(admin, "on")
        yield
        threading.Event().wait(OUTAGE_S)
        switch(admin, "off")


@pytest.mark.parametrize(
    ("outage", "executor"), [(stopped, "thread"), (stopped, "process"), (read_only, "thread"), (read_only, "process")]
)
def test_calls_of_a_handler_wait_for_a_restart_of_postgresql(server, tmp_path, outage, executor):
    """K16: progress, checkpoint, heartbeat, enqueue and step succeed after it, in the same attempt.

    A server that takes no writes, as around a failover, is away, too.
    """
    with holdfast.Holdfast(server.url()) as app:
        app.job(executor="process")(process_jobs.double)
        report = app.job(executor=executor, max_attempts=1)(process_jobs.report)
        with working(app, heartbeat=1):
            ref = report.enqueue(str(tmp_path / "go"))
            under_way(tmp_path / "go")
            with outage(server):
                (tmp_path / "go").touch()
            assert ref.wait(60).error is None, "K16 is broken: an outage failed the handler"
            assert ref.result(60) == [1, 1, True, 7]


def test_a_crash_of_postgresql_doubles_no_child(postgres_database, monkeypatch):
    """K16: the server no longer knows whether the enqueue of a handler was committed, so it is sent again."""
    threads, crashes = [], []
    commit = Commits.commit

    def crash_after(commits, connection, written):
        commit(commits, connection, written)
        if threading.get_ident() in threads and not crashes:
            crashes.append(written)
            raise StoreUnavailable("the database crashed and no longer knows whether the transaction was committed")

    with holdfast.Holdfast(postgres_database.url) as app:

        @app.job(max_attempts=1)
        def parent(me: holdfast.Context) -> int:
            threads.append(threading.get_ident())
            return me.enqueue("child").id

        @app.job(queue="other")
        def child() -> None: ...

        monkeypatch.setattr(Commits, "commit", crash_after)
        with working(app, queues=["default"]):
            made = parent.enqueue().result(60)
        children = [job.id for job in app.views.all(Selector(kinds=("child",)))]
        assert (len(crashes), children) == (1, [made]), "K16 is broken: a child twice"


def test_calls_of_a_coroutine_wait_without_blocking_the_loop(server):
    """K16: another coroutine runs on meanwhile. A plain call cannot wait: its progress is dropped."""
    begun, away, seen = threading.Barrier(3), threading.Event(), []

    with holdfast.Holdfast(server.url()) as app:

        @app.job(max_attempts=1)
        async def report(me: holdfast.Context) -> list[object]:
            await asyncio.to_thread(begun.wait, 60)
            await asyncio.to_thread(away.wait, 60)
            me.progress(0)
            await me.aprogress(1, 2)
            await me.acheckpoint("half")
            return [me.attempt, me.token]

        @app.job()
        async def neighbour() -> None:
            await asyncio.to_thread(begun.wait, 60)
            while away.is_set() is False or len(seen) < 3:
                await asyncio.sleep(0.01)
                seen.extend(["turn"] * away.is_set())

        with working(app, heartbeat=1, slots=2):
            refs = [report.enqueue(), neighbour.enqueue()]
            begun.wait(60)
            with stopped(server):
                away.set()
                wait_until(lambda: len(seen) >= 3)
            assert refs[0].result(60) == [1, 1]
            assert refs[1].wait(60).state is State.DONE


def test_calls_of_a_handler_wait_for_another_writer_of_the_file(tmp_path):
    """K16: the SQLite file is locked for longer than a call waits."""
    path = tmp_path / "jobs.db"
    with impatient_app(path) as app:
        app.job(executor="process")(process_jobs.double)
        report = app.job(executor="thread", max_attempts=1)(process_jobs.report)
        with working(app, heartbeat=1):
            ref = report.enqueue(str(tmp_path / "go"))
            under_way(tmp_path / "go")
            with locked(path):
                (tmp_path / "go").touch()
            assert ref.result(60) == [1, 1, True, 7]


@pytest.mark.one_backend
@pytest.mark.parametrize("error", [StoreUnavailable, StoreLocked, ServerReadOnly, LeaseLost])
def test_a_store_that_fails_is_not_a_failure_of_the_handler(real_database, error):
    """K16: the job is released, and has all its attempts."""
    with holdfast.Holdfast(real_database.url) as app:

        @app.job(max_attempts=1)
        def away() -> None:
            raise error("the store does not answer")

        ref = away.enqueue()
        app.worker().tick()
        assert (ref.state, ref.job().attempts) == (State.SCHEDULED, 0)


def test_a_wait_ends_with_the_lease(tmp_path):
    """K16: then the run is fenced, and the handler learns that its lease is lost."""
    errors = []
    with impatient_app(tmp_path / "jobs.db") as app:

        @app.job(max_attempts=1, lease=1)
        def report(me: holdfast.Context) -> None:
            with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                try:
                    me.progress(1)
                except LeaseLost as error:
                    errors.append(str(error))
                    raise

        ref = report.enqueue()
        app.worker().tick()
        assert "within the lease" in errors[0]
        assert (ref.state, ref.job().attempts) == (State.SCHEDULED, 0)
