"""The connections of a process to PostgreSQL: their number, and those that are reserved."""

from __future__ import annotations

import signal
import threading
from datetime import timedelta

import psycopg
import pytest

import holdfast
from holdfast.domain.jobs.new_job import NewJob, Unique
from holdfast.errors import ConfigurationError, JobLocked, StoreUnavailable
from holdfast.store import open_store
from holdfast.store.engine.operation import query
from holdfast.store.postgres.backend import MIN_CONNECTIONS, RESERVED
from tests.support.backends import open_database
from tests.support.jobs import take_one
from tests.support.processes import wait_until
from tests.support.proxy import Proxy


@pytest.fixture
def database(tmp_path):
    with open_database("postgres", tmp_path, real_time=True) as database:
        yield database


def connections_of(database, name) -> int:
    query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
    return database.execute(query, (name,))[0][0]


def test_an_idle_worker_has_three_connections(database, monkeypatch):
    """K64: one listens, one renews, one does the rest."""
    monkeypatch.setattr("holdfast.store.postgres.pool.IDLE_TIMEOUT_S", 0.5)
    with holdfast.Holdfast(f"{database.url}&application_name=idle") as app:

        @app.job()
        def mail() -> None: ...

        with app.worker(slots=8):
            mail.enqueue().wait(60)
            assert connections_of(database, "idle") >= 2
            wait_until(lambda: connections_of(database, "idle") <= 3)


def test_a_process_opens_no_more_connections_than_allowed(database):
    """K84: whatever it does at the same time."""
    seen, over = [0], threading.Event()
    with holdfast.Holdfast(f"{database.url}&application_name=busy&connections={MIN_CONNECTIONS}") as app:

        @app.job()
        def mail(n: int) -> None: ...

        def enqueue():
            while not over.is_set():
                mail.enqueue_many([{"n": 1}])

        def connections():
            seen.append(connections_of(database, "busy"))
            return seen[-1]

        with app.worker(slots=8):
            threads = [threading.Thread(target=enqueue) for _ in range(12)]
            for thread in threads:
                thread.start()
            try:
                wait_until(lambda: connections() > 3)
                for _ in range(100):
                    connections()
            finally:
                over.set()
            for thread in threads:
                thread.join()
    assert max(seen) <= MIN_CONNECTIONS


@pytest.mark.parametrize("number", ["0", "5", "many", ""])
def test_too_few_connections_are_refused(number):
    """K64: a process needs some."""
    with pytest.raises(ConfigurationError, match="connections is a number from 6"):
        open_store(f"postgresql://h/d?connections={number}")


def test_a_schema_name_that_postgres_would_cut_is_refused():
    with pytest.raises(ConfigurationError, match="not a valid name"):
        open_store(f"postgresql://h/d?schema={'s' * 51}")


def test_enqueues_that_wait_for_a_key_cost_no_lease(database):
    """K8: they give up in time with an error that says so; heartbeat and settler have connections of their own."""
    store = open_store(f"{database.url}&connections={MIN_CONNECTIONS}")
    keyed, refusals = NewJob(kind="child", unique=Unique("same")), []
    store.jobs.enqueue(NewJob(kind="mail"))
    lease = take_one(store, lease_duration=timedelta(minutes=1))

    def enqueue():
        try:
            store.jobs.enqueue(keyed)
        except JobLocked as error:
            refusals.append(error.retryable)

    general = MIN_CONNECTIONS - RESERVED - 2
    waiting = [threading.Thread(target=enqueue) for _ in range(general)]
    with psycopg.connect(database.url) as user:
        store.jobs.enqueue_on(user, [keyed])  # and keeps its transaction open
        for thread in waiting:
            thread.start()
        locks = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        wait_until(lambda: database.execute(locks) == [(general,)])
        assert [renewal.job_id for renewal in store.reserved_store().leases.renew([lease])] == [lease.job_id]
        for thread in waiting:
            thread.join()
    assert refusals == [True] * general
    store.close()


def test_a_pool_in_use_is_named_with_a_way_out(database):
    """K64: the setting is in the hint."""
    store = open_store(f"{database.url}&connections={MIN_CONNECTIONS}")
    pool = store.backend._pool
    refused = pytest.raises(StoreUnavailable)
    with pool.connection(limit=5), pool.connection(limit=5), refused as error, pool.connection(limit=0.05):
        pass
    assert "connections=N" in error.value.hint
    store.close()


class Alarm(Exception):
    """The time limit of a caller, raised by a signal handler."""


def test_an_exception_of_a_signal_handler_ends_the_call(database):
    """S9: it reaches the caller, and the operation is not sent again."""
    store = database.open()
    key = NewJob(kind="mail", unique=Unique("k"))

    def ring(*_):
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    try:
        with psycopg.connect(database.url) as user:
            store.jobs.enqueue_on(user, [key])
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(Alarm):
                store.jobs.enqueue(key)
            user.rollback()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert store.jobs.enqueue(key).created
    assert database.execute("SELECT count(*) FROM holdfast.job") == [(1,)]


@pytest.mark.parametrize("connected", [True, False])
def test_a_read_with_a_limit_ends_with_all_its_tries(database, connected):
    """W8: a page waited for 18 s and more while packets were lost. Without a limit, a call takes 35 s."""
    assert database.open().kinds.names() == []
    proxy = Proxy(database.url)
    store = open_store(proxy.uri, patience=timedelta(seconds=2))
    ended = threading.Event()
    try:
        if connected:
            store.kinds.names()
        proxy.black_hole()

        def read():
            with pytest.raises(StoreUnavailable):
                store.kinds.names()
            ended.set()

        threading.Thread(target=read, daemon=True).start()
        assert ended.wait(25), "E6 is broken: a page waits for a database that does not answer"
    finally:
        proxy.close()
        store.close()


def test_a_transaction_that_the_server_ended_runs_again(database):
    """S10: this process was stopped inside it, for longer than a transaction may be idle."""
    store = open_store(f"{database.url}&application_name=stopped", patience=timedelta(seconds=3))
    pids = []

    def operation():
        rows = yield query("read_now")
        pids.append(len(pids))
        if len(pids) == 1:
            wait_until(lambda: connections_of(database, "stopped") == 0)
        yield query("read_installation")
        return rows

    assert store.backend.write(operation)
    assert len(pids) == 2
    store.close()
