"""Connections to PostgreSQL: one test per promise of store/postgres/pool.py."""

from __future__ import annotations

import threading
import time

import psycopg
import pytest

from holdfast.errors import StoreUnavailable
from holdfast.store.postgres.abandoned import Abandoned
from holdfast.store.postgres.pool import Calls, Pool
from tests.support.backends import postgres_url


def connect():
    return psycopg.connect(postgres_url("postgres"), autocommit=True)


@pytest.fixture
def calls():
    calls = Calls()
    yield calls
    calls.close()


@pytest.fixture
def pool(calls):
    closed = threading.Event()
    made = Pool(connect, size=2, patience=0.05, calls=calls, abandoned=Abandoned(connect, closed))
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
