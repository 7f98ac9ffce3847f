"""Waking workers on PostgreSQL: connections break, callers commit later, SQL enqueues."""

from __future__ import annotations

import psycopg
import pytest

import holdfast
from holdfast.domain.jobs.new_job import NewJob
from tests.support.backends import available, open_database
from tests.support.jobs import put


@pytest.fixture(params=[name for name in available() if name != "sqlite"])
def database(request, tmp_path):
    with open_database(request.param, tmp_path) as database:
        yield database


def test_a_lost_connection_is_made_anew_and_then_read(store, listen, database):
    """Listen first, then read: whatever came meanwhile was told to nobody. SPEC 8.25."""
    listener = listen()
    with psycopg.connect(database.url, autocommit=True) as killer:
        killer.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE query LIKE 'LISTEN%' AND datname = current_database()"
        )
    assert listener.hears()
    listener.settle()
    put(store)
    assert listener.hears()


def test_a_callers_commit_rings(store, listen, database):
    """With the commit, not before."""
    listener = listen()
    with psycopg.connect(database.url) as connection:
        store.jobs.enqueue_on(connection, [NewJob(kind="mail")])
        assert not listener.hears(within=0.05)
    assert listener.hears()


def test_a_callers_ring_can_be_switched_off(store, listen, database):
    listener = listen()
    with psycopg.connect(database.url) as connection:
        connection.execute("SET holdfast.notify = off")
        store.jobs.enqueue_on(connection, [NewJob(kind="mail")])
    assert not listener.hears(within=0.1)


def test_an_enqueue_in_sql_rings(store, listen, database):
    with holdfast.Holdfast(database.url) as app:

        @app.job()
        def mail() -> None: ...

        assert app.store

    listener = listen()
    database.execute("SELECT holdfast.enqueue('mail')")
    assert listener.hears()
