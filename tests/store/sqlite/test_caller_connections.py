"""Enqueue on the caller's own sqlite3 connection, while other connections write."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing

import pytest

from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.job import State
from holdfast.domain.jobs.new_job import NewJob, Unique
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import OtherDatabase, StoreLocked
from holdfast.store.sqlite.checkpoints import SAFE_CHECKPOINTS
from tests.support.processes import open_store

JOB = NewJob(kind="mail")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "jobs.db"


@pytest.fixture
def store(path):
    with closing(open_store(f"sqlite:///{path}")) as store:
        yield store


def connect(path, timeout=30.0):
    return closing(sqlite3.connect(path, isolation_level=None, timeout=timeout, check_same_thread=False))


def test_a_deferred_transaction_waits_for_another_writer(store, path):
    """K36: BEGIN, then enqueue, as SQLAlchemy, Django and autocommit=False do: the busy timeout counts."""
    with connect(path) as other, connect(path) as mine:
        other.execute("BEGIN IMMEDIATE")
        other.execute("CREATE TABLE mine (n)")
        release = threading.Timer(0.1, other.execute, ("COMMIT",))
        release.start()
        mine.execute("BEGIN")
        store.jobs.enqueue_on(mine, [JOB])
        mine.execute("COMMIT")
        release.join()
    assert store.views.count(Selector()).count == 1


def test_a_transaction_that_has_read_waits_for_a_writer_that_rolls_back(store, path):
    """K36: its snapshot stays valid."""
    with connect(path) as other, connect(path) as mine:
        mine.execute("BEGIN")
        mine.execute("SELECT count(*) FROM holdfast_job").fetchall()
        other.execute("BEGIN IMMEDIATE")
        release = threading.Timer(0.1, other.execute, ("ROLLBACK",))
        release.start()
        store.jobs.enqueue_on(mine, [JOB])
        mine.execute("COMMIT")
        release.join()
    assert store.views.count(Selector()).count == 1


def test_a_transaction_with_an_outdated_snapshot_is_told_what_to_do(store, path):
    """K36: no wait can help; the hint names BEGIN IMMEDIATE, and the transaction stays open."""
    with connect(path) as mine:
        mine.execute("BEGIN")
        mine.execute("SELECT count(*) FROM holdfast_job").fetchall()
        store.jobs.enqueue(JOB)
        with pytest.raises(StoreLocked, match="has read the file") as caught:
            store.jobs.enqueue_on(mine, [JOB])
        assert "BEGIN IMMEDIATE" in caught.value.hint
        assert mine.in_transaction
        mine.execute("ROLLBACK")
        mine.execute("BEGIN IMMEDIATE")
        store.jobs.enqueue_on(mine, [JOB])
        mine.execute("COMMIT")


def test_a_wait_ends_with_the_busy_timeout_of_the_connection(store, path):
    """K36: the caller has set it."""
    with connect(path) as other, connect(path, timeout=0.05) as mine:
        other.execute("BEGIN IMMEDIATE")
        mine.execute("BEGIN")
        with pytest.raises(StoreLocked, match="locked"):
            store.jobs.enqueue_on(mine, [JOB])
        other.execute("ROLLBACK")


@pytest.mark.parametrize("begin", [None, "BEGIN", "BEGIN IMMEDIATE"])
def test_another_database_is_refused(store, tmp_path, begin):
    with closing(sqlite3.connect(tmp_path / "other.db")) as mine:
        if begin is not None:
            mine.execute(begin)
        with pytest.raises(OtherDatabase):
            store.jobs.enqueue_on(mine, [JOB])


@pytest.mark.skipif(sqlite3.sqlite_version_info >= SAFE_CHECKPOINTS, reason="its checkpoints are safe")
def test_a_callers_connection_does_not_checkpoint_by_itself(store, path):
    """Before 3.51.3 checkpoints of two connections at once can lose frames: only those under our lock file are safe."""
    with connect(path) as mine:
        mine.execute("BEGIN")
        store.jobs.enqueue_on(mine, [JOB])
        mine.execute("COMMIT")
        assert mine.execute("PRAGMA wal_autocheckpoint").fetchone() == (0,)


def test_texts_may_come_as_bytes(store, path):
    """S11: a text factory of the caller changes no answer, and stays."""
    first = store.jobs.enqueue(NewJob(kind="mail", unique=Unique("k"))).id
    with closing(sqlite3.connect(path)) as connection:
        connection.text_factory = bytes
        requests = [NewJob(kind="mail", unique=Unique("k")), NewJob(kind="mail", after=After(ids=(first,)))]
        answers = store.jobs.enqueue_on(connection, requests)
        connection.commit()
        assert connection.execute("SELECT 'x'").fetchone() == (b"x",)
    assert (answers[0].id, store.views.state(answers[1].id)) == (first, State.WAITING)
