"""The writer of a process: interrupts, time limits, groups."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from datetime import timedelta

import pytest

from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import StoreLocked, StoreUnavailable
from holdfast.store import Store
from holdfast.store.engine.operation import query
from holdfast.store.sqlite.backend import SqliteBackend
from tests.support.processes import wait_until


class Interrupted(sqlite3.Connection):
    """Raises KeyboardInterrupt before or after a COMMIT, once."""

    when: str | None = None

    def execute(self, sql, *parameters):
        when, Interrupted.when = (Interrupted.when, None) if sql == "COMMIT" else (None, Interrupted.when)
        if when == "before":
            raise KeyboardInterrupt
        cursor = super().execute(sql, *parameters)
        if when == "after":
            raise KeyboardInterrupt
        return cursor


class InterruptedBackend(SqliteBackend):
    connection_class = Interrupted


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupt_of_the_writing_thread_reports_the_truth_to_the_others(tmp_path, when):
    """An interrupt right after COMMIT has written everything, one before it nothing."""
    backend = InterruptedBackend(tmp_path / "jobs.db", durability="fast")
    store, answers = Store(backend), {}

    def put(name):
        try:
            answers[name] = store.jobs.enqueue(NewJob(kind=name)).id
        except BaseException as error:  # noqa: BLE001 - the interrupt belongs to this thread
            answers[name] = type(error)

    with closing(store), closing(sqlite3.connect(backend.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        threads = [threading.Thread(target=put, args=(name,)) for name in ("leader", "other")]
        for number, thread in enumerate(threads):
            thread.start()
            wait_until(lambda number=number: len(backend._writer._waiting) == number + 1)
        Interrupted.when = when
        other.execute("COMMIT")
        for thread in threads:
            thread.join()
        assert answers["leader"] is KeyboardInterrupt
        assert store.views.count(Selector()).count == (2 if when == "after" else 0)
        assert answers["other"] == (2 if when == "after" else StoreUnavailable)
        assert store.jobs.enqueue(NewJob(kind="later")).created


class BlockedCommit(sqlite3.Connection):
    """Its second COMMIT waits for an event."""

    commits, go_on = 0, threading.Event()

    def execute(self, sql, *parameters):
        if sql == "COMMIT":
            BlockedCommit.commits += 1
            if BlockedCommit.commits == 2:
                assert BlockedCommit.go_on.wait(60)
        return super().execute(sql, *parameters)


def test_a_thread_whose_job_is_committed_does_not_wait_for_the_next_commit(tmp_path, monkeypatch):
    """Threads that waited would come too late for the next commit as well, and commits would be many and small."""
    backend = SqliteBackend(tmp_path / "jobs.db", durability="fast")
    store = Store(backend)
    backend._disconnect()
    monkeypatch.setattr(backend, "connection_class", BlockedCommit)
    with closing(store), closing(sqlite3.connect(backend.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        both = threading.Thread(target=lambda: [store.jobs.enqueue(NewJob(kind="mail")) for _ in range(2)])
        one = threading.Thread(target=store.jobs.enqueue, args=(NewJob(kind="mail"),))
        for number, thread in enumerate((both, one)):
            thread.start()
            wait_until(lambda number=number: len(backend._writer._waiting) == number + 1)
        other.execute("COMMIT")
        wait_until(lambda: BlockedCommit.commits == 2)
        one.join(30)
        assert not one.is_alive()
        assert both.is_alive()
        BlockedCommit.go_on.set()
        both.join()
        assert store.views.count(Selector()).count == 3


def test_a_time_limit_holds_behind_a_thread_that_waits_longer(tmp_path):
    """K37: the heartbeat learns soon that the file is locked, and others go on waiting."""
    backend = SqliteBackend(tmp_path / "jobs.db", durability="fast")
    store = Store(backend)
    with closing(store), closing(sqlite3.connect(backend.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        patient = threading.Thread(target=store.jobs.enqueue, args=(NewJob(kind="mail"),))
        patient.start()
        wait_until(lambda: backend._writer._waiting)
        with pytest.raises(StoreLocked):
            backend.run(query("allocate_job_ids", count=1), timeout=timedelta(seconds=0.01))
        assert patient.is_alive()
        other.execute("COMMIT")
        patient.join()
        assert store.views.count(Selector()).count == 1


class InterruptedWait(sqlite3.Connection):
    """Raises KeyboardInterrupt while it waits for the file's lock, once."""

    waits = 0

    def execute(self, sql, *parameters):
        if sql == "BEGIN IMMEDIATE":
            InterruptedWait.waits += 1
            if InterruptedWait.waits == 1:
                raise KeyboardInterrupt
        return super().execute(sql, *parameters)


@pytest.mark.parametrize("timeout", [None, timedelta(seconds=5)])
def test_a_call_that_was_interrupted_does_not_take_effect_later(tmp_path, monkeypatch, timeout):
    """S8: Ctrl-C while another program keeps the file locked; the next call writes itself alone."""
    backend = SqliteBackend(tmp_path / "jobs.db")
    store = Store(backend)
    backend._disconnect()
    monkeypatch.setattr(backend, "connection_class", InterruptedWait)
    monkeypatch.setattr(InterruptedWait, "waits", 0)
    with pytest.raises(KeyboardInterrupt):
        backend.run(query("pause_queue", name="first", note=None), timeout=timeout)
    store.queues.pause("second")
    assert [queue.name for queue in store.queues.list()] == ["second"]
    store.close()


def test_a_reader_that_was_interrupted_keeps_no_snapshot(tmp_path):
    """S8: a transaction that was not ended ends before the next read."""
    backend = SqliteBackend(tmp_path / "jobs.db")
    store = Store(backend)
    with backend.reader() as connection:
        connection.execute("BEGIN")  # and an interrupt, before its COMMIT
        assert connection.execute("SELECT count(*) FROM holdfast_job").fetchone() == (0,)
    job_id = store.jobs.enqueue(NewJob(kind="mail")).id
    assert store.views.get(job_id).kind == "mail"
    store.close()
