"""The database restarts, closes connections or stops answering: workers continue and nothing is lost."""

from __future__ import annotations

import os
import threading
import time

import psycopg
import pytest

from holdfast import HoldfastError, Selector, State
from holdfast.client.jobs.job_ref import JobRef
from tests.support.fleet import Audit, fleet, make_app
from tests.support.postgres import DURABLE, bundled_programs, running
from tests.support.processes import wait_until
from tests.support.proxy import proxy_to

#: The campaigns of tests/chaos strike more often, and check more.
RESTARTS = int(os.environ.get("HOLDFAST_RESTARTS", "5"))
SECONDS = int(os.environ.get("HOLDFAST_CHAOS_SECONDS", "10"))
#: Seconds until work continues after the database is back, which is before a lease expires.
SOON = 15.0
LEASE = 20.0
#: Longer than a worker waits for an answer.
SILENCE = 9.0
#: Jobs that were acknowledged while the database failed.
ENOUGH = 50


class Database:
    """A PostgreSQL server for one test, with a record of all finished jobs."""

    name = "postgres"

    def __init__(self, server) -> None:
        self.server = server
        self.url = server.url()

    def execute(self, query, parameters=()):
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(query, parameters)
            return cursor.fetchall() if cursor.description else []

    def restart(self) -> None:
        """Crash all server processes, then recover."""
        self.server.stop("immediate")
        self.server.start()


@pytest.fixture
def database():
    with running(bundled_programs(), settings=DURABLE) as server:
        yield Database(server)


@pytest.fixture
def app(database):
    with make_app(database.url, lease=LEASE) as app:
        assert app.store
        yield app


@pytest.fixture
def audit(app, database):
    return Audit(database)


class Enqueuer:
    """Enqueues continuously and keeps the acknowledged jobs."""

    def __init__(self, app) -> None:
        self.refs: list[JobRef] = []
        self.unknown = 0
        self._app = app
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()

    def finish(self) -> None:
        """Continue until there are enough jobs for a verdict, however slow the machine is, then stop."""
        wait_until(lambda: len(self.refs) > ENOUGH)
        self.__exit__()

    def _work(self) -> None:
        n = 0
        while not self._end.wait(0.01):
            n += 1
            try:
                self.refs.append(self._app.enqueue("slow", {"n": n}))
            except HoldfastError:
                self.unknown += 1


def seconds_until_work_goes_on(app) -> float:
    """Wait until a new job is done, ahead of the backlog."""
    began = time.monotonic()
    while True:
        try:
            app.enqueue("quick", {"n": 0}, priority=9).wait(20)
        except HoldfastError:
            continue
        return time.monotonic() - began


def assert_all_is_well(app, audit, enqueued, long_ref) -> None:
    """Every acknowledged job is done once, and no live worker has lost a job."""
    states = (State.READY, State.RUNNING, State.SCHEDULED)
    wait_until(lambda: app.views.count(Selector(states=states), cap=1).count == 0)
    assert {ref.state for ref in enqueued.refs} == {State.DONE}
    assert set(audit.ends().values()) == {1}
    assert (long_ref.job().result, long_ref.job().token) == ('"patient"', 1)


@pytest.mark.slow
def test_immediate_restarts_under_load(app, audit, database, tmp_path):
    """The server crashes again and again."""
    path = tmp_path / "go"
    long_ref = app.enqueue("patience", {"path": str(path)})
    waits = []
    with fleet(database.url, 2, lease=LEASE), Enqueuer(app) as enqueued:
        wait_until((tmp_path / "go-begun").exists)
        for _ in range(RESTARTS):
            database.restart()
            waits.append(seconds_until_work_goes_on(app))
        path.touch()
        long_ref.wait(120)
        enqueued.finish()
        assert_all_is_well(app, audit, enqueued, long_ref)
    assert max(waits) < SOON


@pytest.mark.slow
def test_all_backends_terminated_every_second(app, audit, database, tmp_path):
    """For some seconds."""
    path = tmp_path / "go"
    long_ref = app.enqueue("patience", {"path": str(path)})
    with fleet(database.url, 2, lease=LEASE), Enqueuer(app) as enqueued:
        wait_until((tmp_path / "go-begun").exists)
        for _ in range(SECONDS):
            database.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )
            threading.Event().wait(1)
        assert seconds_until_work_goes_on(app) < SOON
        path.touch()
        long_ref.wait(120)
        enqueued.finish()
        assert_all_is_well(app, audit, enqueued, long_ref)


@pytest.mark.slow
def test_a_black_hole(app, audit, database, tmp_path):
    """The workers' connections stop answering for good; new ones work later."""
    path = tmp_path / "go"
    with proxy_to(database.url) as proxy:
        long_ref = app.enqueue("patience", {"path": str(path)})
        with fleet(proxy.uri, 2, lease=LEASE), Enqueuer(app) as enqueued:
            wait_until((tmp_path / "go-begun").exists)
            proxy.black_hole()
            threading.Event().wait(SILENCE)
            proxy.heal()
            assert seconds_until_work_goes_on(app) < SOON
            path.touch()
            long_ref.wait(120)
            enqueued.finish()
            assert_all_is_well(app, audit, enqueued, long_ref)
