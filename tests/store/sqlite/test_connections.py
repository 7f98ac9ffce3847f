"""Forks of a process that uses a SQLite file: both sides write, and nothing that was acknowledged is lost."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing

import pytest

from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import StoreUnavailable
from holdfast.store.engine import forks
from tests.support.forks import Fork
from tests.support.processes import gone, open_store, wait_until

JOB = NewJob(kind="mail")
#: Seconds in which a forked child has enqueued its first job, on a loaded machine.
FIRST_JOB_S = 10.0


@pytest.fixture
def path(tmp_path):
    return tmp_path / "jobs.db"


@pytest.fixture
def store(path):
    with closing(open_store(f"sqlite:///{path}")) as store:
        store.jobs.enqueue(JOB)
        assert store.views.count(Selector()).count == 1  # a reader is open too
        yield store


def ids(path):
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return [row[0] for row in connection.execute("SELECT id FROM holdfast_job ORDER BY id")]


def test_a_parent_that_closes_its_store_takes_nothing_from_its_child(store, path):
    """K1: the close of the parent's last connection does not delete the log under the child."""

    def work(wait):
        store.jobs.enqueue(JOB)
        wait()
        for _ in range(10):
            store.jobs.enqueue(JOB)

    lost = "I1 is broken: acknowledged jobs are lost"
    with Fork(work) as child:
        store.jobs.enqueue(JOB)
        wait_until(lambda: len(ids(path)) == 3 or gone(child.pid), seconds=FIRST_JOB_S, failure=lost)
        assert not gone(child.pid), lost
        store.close()
        child.go()
        assert (child.code(), ids(path)) == (0, [*range(1, 14)]), lost


def test_another_process_that_closes_takes_nothing_from_a_forked_child(store, path):
    """K1: the child holds real locks on the file, so that another process keeps the log."""

    def work(wait):
        store.jobs.enqueue(JOB)
        wait()
        store.jobs.enqueue(JOB)

    with Fork(work) as child:
        # Each look opens and closes the file.
        wait_until(lambda: len(ids(path)) == 2 or gone(child.pid), seconds=FIRST_JOB_S)
        store.close()
        ids(path)
        child.go()
        assert (child.code(), ids(path)) == (0, [1, 2, 3])


def test_forks_while_other_threads_write_and_read(store, path):
    """K1: no child hangs, and no request of the parent is written twice."""
    stop, written = threading.Event(), []

    def write():
        while not stop.is_set():
            written.extend(answer.id for answer in store.jobs.enqueue_many([JOB] * 50))

    def read():
        while not stop.is_set():
            store.views.count(Selector())

    threads = [threading.Thread(target=target) for target in (write, write, read, read)]
    for thread in threads:
        thread.start()
    codes = [Fork(lambda _: (store.jobs.enqueue(JOB), store.views.count(Selector()))).code() for _ in range(8)]
    stop.set()
    for thread in threads:
        thread.join()
    assert codes == [0] * 8
    assert len(ids(path)) == 1 + 8 + len(written)
    assert set(written) < set(ids(path))


def test_a_fork_inside_a_transaction_is_told_that_it_cannot_use_the_file(store, path):
    """K1: SQLite cannot work there; the parent goes on."""

    def work(_):
        with pytest.raises(StoreUnavailable, match="forked"):
            store.jobs.enqueue(JOB)
        with pytest.raises(StoreUnavailable, match="forked"):
            store.views.count(Selector())
        with pytest.raises(StoreUnavailable, match="forked"):
            open_store(f"sqlite:///{path}")

    with store.backend.transaction() as connection:
        child = Fork(work)
        connection.execute("CREATE TABLE mine (n)")
    assert child.code() == 0
    store.jobs.enqueue(JOB)
    assert ids(path) == [1, 2]


def test_a_child_that_inherits_a_connection_of_the_program_is_refused_until_it_closes_it(store, path):
    """S1: SQLite would take no lock for the child, and another process could delete the log under it."""

    def work(wait):
        with pytest.raises(StoreUnavailable, match="forked"):
            store.jobs.enqueue(JOB)
        wait()
        with pytest.raises(StoreUnavailable, match="forked"):
            store.jobs.enqueue(JOB)
        user.close()
        store.jobs.enqueue(JOB)

    with closing(sqlite3.connect(path)) as user:
        user.execute("SELECT count(*) FROM holdfast_job").fetchall()
        child = Fork(work)
    store.close()
    before = ids(path)
    child.go()
    assert (before, child.code(), ids(path)) == ([1], 0, [1, 2]), "I1 is broken: the child's locks are not its own"


def test_a_fork_does_not_wait_for_a_writer_that_waits_itself(store, path, monkeypatch):
    """K1: after a time limit the child goes on without the store."""
    monkeypatch.setattr(forks, "FORK_TIMEOUT_S", 0.05)

    def refused(_):
        with pytest.raises(StoreUnavailable, match="forked"):
            store.jobs.enqueue(JOB)

    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        thread = threading.Thread(target=store.jobs.enqueue, args=(JOB,))
        thread.start()
        while not store.backend._gate._users:
            threading.Event().wait(0.01)
        assert Fork(refused).code() == 0
        other.execute("COMMIT")
    thread.join()
    assert ids(path) == [1, 2]
