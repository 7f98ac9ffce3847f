"""A PostgreSQL that crashes forgets: what it says about transactions of before is not believed."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import psycopg
import pytest

from holdfast.errors import StoreUnavailable
from holdfast.store import Store
from holdfast.store.engine.backend import Timeouts
from holdfast.store.postgres.backend import PostgresBackend
from holdfast.store.postgres.commits import Commits, Written
from tests.support.postgres import QUICK, bundled_programs, running

#: Nothing is written to disk by the way: what was not committed is lost with the server.
LAZY = {**QUICK, "wal_writer_delay": "10s", "shared_buffers": "16MB"}
TRIES = 10


@pytest.fixture
def server():
    with running(bundled_programs(), settings=LAZY) as server:
        Store(PostgresBackend(server.url())).close()
        yield server


def commits(server):
    def connect():
        return psycopg.connect(server.url(), autocommit=True)

    return Commits(connect, PostgresBackend(server.url()).statements, threading.Event())


def write(connection):
    connection.execute("INSERT INTO holdfast.queue (name) VALUES ('q') ON CONFLICT (name) DO UPDATE SET name = 'q'")


def lost_in_a_crash(server, asked):
    """A transaction whose number another one has, since the crash."""
    for _ in range(TRIES):
        with psycopg.connect(server.url()) as connection:
            write(connection)
            written = asked.written(connection)
            server.stop("immediate")
            connection.close()
        server.start()
        with psycopg.connect(server.url(), autocommit=True) as connection:
            write(connection)
            ((status,),) = connection.execute("SELECT pg_xact_status(%s::xid8)", (written.transaction,)).fetchall()
        if status == "committed":
            return written
    raise AssertionError("no number was given out again")


def test_a_number_that_was_given_out_again_is_not_taken_for_ours(server):
    """The server says that it was committed, and means somebody else's: the answer is that nobody knows."""
    asked = commits(server)
    written = lost_in_a_crash(server, asked)
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.close()  # COMMIT gets no answer
        with pytest.raises(StoreUnavailable, match="crashed"):
            asked.commit(connection, written)


def test_who_writes_first_after_a_crash_begins_a_new_life(server):
    """And a transaction of that life can be asked for again."""
    asked = commits(server)
    before = lost_in_a_crash(server, asked)
    with psycopg.connect(server.url()) as connection:
        write(connection)
        written = asked.written(connection)
        assert written.epoch != before.epoch
        asked.commit(connection, written)
        asked.commit(_deaf(server), written)
    with psycopg.connect(server.url()) as connection:
        write(connection)
        aborted = asked.written(connection)
        connection.rollback()
    with pytest.raises(psycopg.OperationalError):
        asked.commit(_deaf(server), aborted)


def test_a_host_that_swallows_packets_is_given_up_in_time(server, monkeypatch):
    """The limit counts seconds, not tries: each try may take until the timeout of a new connection."""
    seconds, tries = [0.0], []
    monkeypatch.setattr("holdfast.store.postgres.commits.time", SimpleNamespace(monotonic=lambda: seconds[0]))

    def connect():
        tries.append(1)
        seconds[0] += Timeouts.connect.total_seconds()
        raise psycopg.OperationalError("timeout expired")

    asked = Commits(connect, PostgresBackend(server.url()).statements, threading.Event())
    with pytest.raises(StoreUnavailable, match="did not confirm"):
        asked.commit(_deaf(server), Written("1", "epoch"))
    assert len(tries) == Timeouts.statement / Timeouts.connect


def _deaf(server):
    connection = psycopg.connect(server.url())
    connection.close()
    return connection
