"""Connections to PostgreSQL: one test per promise of store/postgres/pool.py."""

from __future__ import annotations

import threading
import time

import psycopg
import pytest

from holdfast.errors import StoreUnavailable
from holdfast.store import open_store
from holdfast.store.postgres import connections
from holdfast.store.postgres.abandoned_connections import AbandonedConnections
from holdfast.store.postgres.pool import Calls, Pool
from tests.support.backends import postgres_url
from tests.support.postgres import QUICK, bundled_programs, running
from tests.support.processes import wait_until


def connect():
    return connections.connect(postgres_url("postgres"), autocommit=True)


@pytest.fixture
def calls():
    calls = Calls()
    yield calls
    calls.close()


@pytest.fixture
def pool(calls):
    closed = threading.Event()
    made = Pool(connect, size=2, patience=0.05, calls=calls, abandoned=AbandonedConnections(connect, closed))
    yield made
    made.close()
    closed.set()


def backend_pid(connection):
    return connection.execute("SELECT pg_backend_pid()").fetchone()[0]


def test_a_connection_is_used_again(pool):
    with pool.connection(limit=5) as connection:
        first = backend_pid(connection)
    with pool.connection(limit=5) as connection:
        assert backend_pid(connection) == first


def test_no_more_connections_than_allowed(pool):
    """Whoever waits in vain is told what to do."""
    refused = pytest.raises(StoreUnavailable, match="all 2 connections")
    with pool.connection(limit=5), pool.connection(limit=5), refused, pool.connection(limit=5):
        pass


def test_a_connection_that_the_server_closed_is_not_handed_out(pool):
    """No caller pays for a restart that happened while nobody asked."""
    with pool.connection(limit=5) as connection:
        pid = backend_pid(connection)
    with psycopg.connect(postgres_url("postgres"), autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
    with pool.connection(limit=5) as connection:
        assert backend_pid(connection) != pid


def test_one_broken_connection_casts_doubt_on_the_idle_ones(pool):
    with pool.connection(limit=5) as first, pool.connection(limit=5) as second:
        idle, doubted = backend_pid(first), backend_pid(second)
    assert idle != doubted
    with pool.connection(limit=5) as connection:
        connection.close()
    with pool.connection(limit=5) as connection:
        assert backend_pid(connection) not in (idle, doubted)


def test_a_call_without_an_answer_is_broken_off(pool):
    """From outside: the thread that waits could not do it. Those that have waited as long go with it."""
    errors = []

    def wait_in_vain(limit):
        try:
            with pool.connection(limit=limit) as connection:
                connection.execute("SELECT pg_sleep(60)")
        except psycopg.OperationalError as error:
            errors.append(error)

    threads = [threading.Thread(target=wait_in_vain, args=(limit,)) for limit in (0.1, 50)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 2
    assert time.monotonic() - began < 30


def test_a_closed_pool_says_so(pool):
    pool.close()
    with pytest.raises(StoreUnavailable, match="closed"), pool.connection(limit=5):
        pass


def test_a_connection_that_is_read_only_is_not_handed_out_again(pool):
    """After a failover the old primary may answer as a standby: a new connection finds the new primary."""
    with pool.connection(limit=5) as connection:
        standby = backend_pid(connection)
        connection.execute("SET default_transaction_read_only = on")
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction), pool.connection(limit=5) as connection:
        connection.execute("CREATE TABLE never (id integer)")
    with pool.connection(limit=5) as connection:
        assert backend_pid(connection) != standby


def test_idle_connections_are_closed_but_one(calls, pool, monkeypatch):
    """K64: also when nobody calls any more."""
    monkeypatch.setattr("holdfast.store.postgres.pool.IDLE_TIMEOUT_S", 0.1)
    with pool.connection(limit=5), pool.connection(limit=5):
        assert pool.stats().connections == {"in_use": 2, "idle": 0, "abandoned": 0}
    wait_until(lambda: pool.stats().connections == {"in_use": 0, "idle": 1, "abandoned": 0})


def test_a_short_wait_opens_no_second_connection(calls, monkeypatch):
    """K64: services of an idle worker that meet by chance share one. Under load everyone gets their own."""
    monkeypatch.setattr("holdfast.store.postgres.pool.GROW_DELAY_S", 60)
    pool = Pool(connect, size=4, patience=60, calls=calls, abandoned=AbandonedConnections(connect, threading.Event()))
    met = []

    def call():
        with pool.connection(limit=60) as connection:
            met.append(backend_pid(connection))

    with pool.connection(limit=60) as connection:
        first = backend_pid(connection)
        thread = threading.Thread(target=call)
        thread.start()
        wait_until(lambda: pool._contended_at > 0)
        with pool.connection(limit=60) as another:  # the second that waits within a second
            assert backend_pid(another) != first
    thread.join()
    assert len(met) == 1
    assert sum(pool.stats().connections.values()) == 2
    pool.close()


def test_abandoned_connections_count_until_the_server_has_ended_them(calls):
    """K84: the bound holds for what the server has, not for what this process remembers."""
    reachable, closed = threading.Event(), threading.Event()

    def reach():
        if not reachable.is_set():
            raise psycopg.OperationalError("no route to host")
        return connect()

    pool = Pool(connect, size=2, patience=0.05, calls=calls, abandoned=AbandonedConnections(reach, closed))
    pids = []
    for _ in range(2):
        with pool.connection(limit=5) as connection:
            pids.append(backend_pid(connection))
        with pytest.raises(psycopg.OperationalError), pool.connection(limit=0.1) as connection:
            connection.execute("SELECT pg_sleep(60)")
    assert pool.stats().connections == {"in_use": 0, "idle": 0, "abandoned": 2}
    with pytest.raises(StoreUnavailable, match="2 of 2 connections got no answer"), pool.connection(limit=5):
        pass
    reachable.set()
    wait_until(lambda: pool.stats().connections["abandoned"] == 0)
    with connect() as other:
        assert other.execute("SELECT pid FROM pg_stat_activity WHERE pid = ANY(%s)", (pids,)).fetchall() == []
    with pool.connection(limit=5) as connection:
        assert backend_pid(connection) not in pids
    pool.close()


def test_a_backend_of_somebody_else_with_the_same_pid_is_left_alone():
    """S13: after a failover the pid of an abandoned connection may belong to a backend of the new primary."""
    gone, closed = threading.Event(), threading.Event()
    with connect() as innocent:
        abandoned = AbandonedConnections(connect, closed)
        opened_at = time.monotonic() - 3600  # on the old primary, an hour before
        abandoned.add(backend_pid(innocent), opened_at=opened_at, closed=gone.set)
        assert gone.wait(30), "an unknown backend does not count"
        assert innocent.execute("SELECT 1").fetchone() == (1,)
    closed.set()


def test_a_commit_that_waits_for_a_standby_is_left_alone():
    """K84: an end of its wait would show it before the standby has it. Its connection counts until then."""
    settings = {**QUICK, "wal_level": "replica", "max_wal_senders": "4"}
    with (
        running(bundled_programs(), settings=settings) as server,
        psycopg.connect(server.url(), autocommit=True) as admin,
    ):
        admin.execute("CREATE TABLE t (id integer)")
        store = open_store(f"{server.url()}&connections=6")
        pool, seen = store.backend._pool, lambda: admin.execute("SELECT count(*) FROM t").fetchone()[0]
        wait_for_standbys(admin, "nobody")
        for _ in range(2):
            with pytest.raises(psycopg.OperationalError), pool.connection(limit=0.1) as connection:
                connection.execute("INSERT INTO t VALUES (1)")
        wait_until(lambda: store.backend._abandoned._checks > 2)
        assert (store.backend.pool_stats().connections["abandoned"], seen()) == (2, 0)
        with pytest.raises(StoreUnavailable, match="2 of 2"), pool.connection(limit=0.1):
            pass
        wait_until(lambda: connection_check(store).level == "warn")
        assert "2 connections wait for a synchronous standby" in connection_check(store).message
        wait_for_standbys(admin, "")
        wait_until(lambda: store.backend.pool_stats().connections["abandoned"] == 0)
        assert seen() == 2
        store.close()


def connection_check(store):
    (check,) = [check for check in store.backend.tools.health() if check.name == "connections"]
    return check


def wait_for_standbys(admin, names):
    admin.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
    admin.execute("SELECT pg_reload_conf()")
    wait_until(lambda: admin.execute("SHOW synchronous_standby_names").fetchone() == (names,))
