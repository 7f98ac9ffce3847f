"""After a failover or a restore, ids and tokens of the lost end of the old history never come again."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import psycopg
import pytest

from holdfast.domain.jobs.verdict import Released
from holdfast.store import Store
from holdfast.store.postgres.backend import PostgresBackend
from tests.support.jobs import put, take, take_one
from tests.support.postgres import QUICK, PostgresServer, bundled_programs
from tests.support.processes import connect

#: Sequences go on this much later.
GAP = 1_000_000


def lose_the_end(database) -> None:
    """As on the server that took over: the record is of the old primary."""
    database.execute("UPDATE holdfast.timeline SET history = 'lost'")


def timeline(database):
    return database.execute("SELECT history, last_id, token_base FROM holdfast.timeline")[0]


def test_a_new_history_begins_with_the_next_connection(postgres_database):
    """CORE2 E1: an older job gets a token that no lost claim had; newer ids are out of reach, their tokens are plain."""
    before = postgres_database.open()
    old, claimed = put(before), take_one(before) if put(before, priority=9) else None
    assert claimed.token == 1
    before.leases.settle(claimed, Released())
    lose_the_end(postgres_database)
    store = postgres_database.open()
    new = put(store)
    assert new > old + GAP, "I3 is broken"
    _, last_id, base = timeline(postgres_database)
    assert old < last_id < new
    tokens = {lease.job_id: lease.token for lease in take(store, 5)}
    assert tokens == {old: base + 1, claimed.job_id: base + 1, new: 1}, "I3 is broken"
    assert abs(base / 1000 - time.time()) < timedelta(days=1).total_seconds()


def test_only_the_first_connection_begins_a_history(postgres_database):
    """All others find it, also those that come at the same moment."""
    put(postgres_database.open())
    with connect(postgres_database.url, autocommit=True) as user:
        assert user.execute("SELECT holdfast.begin_timeline()").fetchone() == (False,)
        lose_the_end(postgres_database)
        answers = []

        def begin() -> None:
            with connect(postgres_database.url, autocommit=True) as connection:
                answers.append(connection.execute("SELECT holdfast.begin_timeline()").fetchone()[0])

        threads = [threading.Thread(target=begin) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(answers) == [False, False, False, True]


def test_every_sequence_goes_on_later(postgres_database):
    """Ids of batches, results and events are known to callers too."""
    put(postgres_database.open())
    query = "SELECT sequencename, coalesce(last_value, 1) FROM pg_sequences WHERE schemaname = 'holdfast'"
    before = dict(postgres_database.execute(query))
    lose_the_end(postgres_database)
    put(postgres_database.open())
    after = dict(postgres_database.execute(query))
    assert {name: after[name] - before[name] >= GAP for name in before} == dict.fromkeys(before, True)


def test_a_pooler_hides_no_failover(postgres_database):
    """Its clients keep their connections: the session of the server shows that it has not begun a history."""
    backend = PostgresBackend(postgres_database.url, prepare=False)
    store = Store(backend)
    first, second = put(store), put(store)
    (lease,) = take(store)
    assert (lease.job_id, lease.token) == (first, 1)
    lose_the_end(postgres_database)
    with backend._pool.connection(limit=9) as connection:  # the pooler lends another session
        connection.execute("RESET ALL")
    (lease,) = take(store)
    assert (lease.job_id, lease.token) == (second, timeline(postgres_database)[2] + 1), "I3 is broken"
    backend._ids.discard()
    assert put(store) > second + GAP
    backend.close()


def test_a_crash_begins_no_history_and_a_promotion_does():
    """The standby has lost the last enqueue and the last claim: nothing of them is given out again."""
    settings = {**QUICK, "shared_buffers": "16MB", "hot_standby": "on"}
    old, new = PostgresServer(bundled_programs(), settings=settings), None
    try:
        old.start()
        store = Store(PostgresBackend(old.url()))
        known = put(store)
        first = history(old)
        old.stop("immediate")
        old.start()
        put(store, delay=timedelta(hours=1))
        assert history(old) == first
        new = PostgresServer(bundled_programs(), settings=settings, copy_of=old)
        with psycopg.connect(old.url(), autocommit=True) as connection:  # the copy has not begun to follow
            connection.execute("SELECT pg_switch_wal()")
        claimed, lost = take_one(store), put(store)
        assert (claimed.job_id, claimed.token) == (known, 1)
        store.close()
        old.stop("immediate")
        new.start()
        new.promote()
        after = Store(PostgresBackend(new.url()))
        assert put(after) > lost + GAP / 2, "I3 is broken"
        (again,) = take(after, 1)
        assert again.job_id == known
        assert again.token > claimed.token + 1, "I3 is broken"
        assert history(new) != first
        after.close()
    finally:
        old.close()
        if new is not None:
            new.close()


def history(server) -> str:
    with psycopg.connect(server.url()) as connection:
        return connection.execute("SELECT history FROM holdfast.timeline").fetchone()[0]


@pytest.mark.parametrize("role", ["producer", "worker"])
def test_a_role_of_least_privilege_begins_a_history(postgres_database, role):
    """The function has the rights of the owner: a producer may be the first to connect."""
    store = postgres_database.open()
    put(store)
    store.backend.tools.apply(store.backend.tools.roles())
    lose_the_end(postgres_database)
    with connect(postgres_database.url) as connection:
        connection.execute(f"SET ROLE holdfast_{role}")
        assert connection.execute("SELECT holdfast.begin_timeline()").fetchone() == (True,)
