"""Connections to PostgreSQL: one test per promise of store/postgres/connections.py."""

from __future__ import annotations

import gc
import threading
import time

import psycopg
import pytest

from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import StoreUnavailable
from holdfast.store.postgres.connections import Pool
from tests.support.backends import open_database, postgres_url
from tests.support.forks import Fork


@pytest.fixture
def pool():
    made = Pool(postgres_url("postgres"), {"autocommit": True}, size=2, patience=0.05)
    yield made
    made.close()


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


def test_a_forked_child_shares_neither_sessions_nor_ids(tmp_path):
    """K1: an inherited store begins anew in the child, and the parent keeps its sessions."""
    with open_database("postgres", tmp_path, real_time=True) as database:
        store = database.open()
        store.jobs.enqueue(NewJob(kind="mail"))
        session = store.backend._once(lambda connection: connection.info.backend_pid)

        def work(_):
            for _ in range(5):
                store.jobs.enqueue(NewJob(kind="mail"))
            store.close()
            gc.collect()

        assert Fork(work).code() == 0
        assert database.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (session,)) == [(1,)]
        assert len({store.jobs.enqueue(NewJob(kind="mail")).id for _ in range(5)}) == 5
        assert store.views.count(Selector()).count == 11
