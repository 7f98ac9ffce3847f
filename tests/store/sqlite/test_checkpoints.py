"""Checkpoints of the log: how often, where SQLite's own are not safe; restarts of a large log, and a deleted one."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import StoreUnavailable
from holdfast.store import Store
from holdfast.store.sqlite import checkpoints
from holdfast.store.sqlite.backend import SqliteBackend
from holdfast.store.sqlite.checkpoints import (
    EXTEND_AFTER_TRANSACTIONS,
    LARGE_LOG_BYTES,
    MAX_LOG_BYTES,
    MAX_RESTART_PAUSE_S,
    MIN_CHANGES,
    RESTART_PAUSE_S,
    SAFE_CHECKPOINTS,
    Checkpoints,
    RestartPause,
)
from holdfast.store.sqlite.writer_queue import WriterQueue
from tests.support.processes import children, open_store, wait_until

#: Payload of one call, in bytes, and how many calls one process makes: the log grows by 60 MB for each.
PAYLOAD, CALLS = '{"x": "%s"}' % ("y" * 100_000), 600


@pytest.mark.skipif(sqlite3.sqlite_version_info >= SAFE_CHECKPOINTS, reason="SQLite's own are used")
@pytest.mark.parametrize(("row_bytes", "checkpoints"), [(10, range(1, 3)), (4000, range(12, 13))])
def test_the_size_of_the_log_decides(tmp_path, row_bytes, checkpoints):
    """Small rows share pages, so that many changes make a small log. Large rows are checkpointed at the least number."""
    file, ran = tmp_path / "test.db", []
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        watched = Checkpoints(file)
        watched.configure(connection)
        connection.execute("CREATE TABLE t (value BLOB)")
        connection.set_trace_callback(lambda text: ran.append(text) if "wal_checkpoint" in text else None)
        for _ in range(12):
            connection.execute("BEGIN")
            connection.executemany("INSERT INTO t VALUES (zeroblob(?))", [(row_bytes,)] * MIN_CHANGES)
            connection.execute("COMMIT")
            watched.after_commit(connection, WriterQueue(str(file)))
        assert len(ran) in checkpoints


def test_the_log_of_a_process_that_writes_much_is_extended(tmp_path):
    """I1: SQLite takes the zeros for the end of the log, also when it reads the log after a crash."""
    backend = SqliteBackend(tmp_path / "jobs.db", durability="fast")
    store, log, sizes = Store(backend), tmp_path / "jobs.db-wal", []
    with closing(store):
        for _ in range(2000):
            store.jobs.enqueue(NewJob(kind="mail"))
            sizes.append(log.stat().st_size)
        grown = [n for n in range(1, len(sizes)) if sizes[n] != sizes[n - 1]]
        assert sum(n > EXTEND_AFTER_TRANSACTIONS for n in grown) < 40, "each commit extends the log"
        assert max(sizes) < 2 * LARGE_LOG_BYTES
        for each in (backend.path, log):
            shutil.copy(each, tmp_path / each.name.replace("jobs", "copy"))
    with closing(sqlite3.connect(tmp_path / "copy.db")) as copy:
        assert copy.execute("SELECT count(*) FROM holdfast_live").fetchone() == (2000,), "I1 is broken"
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def _write(pipe, _index, url):
    """Write CALLS large jobs."""
    with closing(open_store(url)) as store:
        for _ in range(CALLS):
            _log_after_a_write(store)
    pipe.send("done")


def _log_after_a_write(store):
    """The size of the log after one more large job."""
    store.jobs.enqueue(NewJob(kind="mail", payload=PAYLOAD))
    return Path(f"{store.backend.path}-wal").stat().st_size


def _read(pipe, _index, url):
    """Read in transactions of 0.15 s, without a pause, until the test ends."""
    file = url.removeprefix("sqlite:///")
    pause = threading.Event()
    pipe.send("reads")
    while not pipe.poll():
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM holdfast_live").fetchone()
            pause.wait(0.15)
            connection.execute("COMMIT")


def test_the_log_restarts_while_readers_overlap(tmp_path):
    """G1: no transaction is long, but one is always open; three processes write 180 MB, and the log becomes small."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    open_store(url).close()
    with children(3, _read, url) as readers:
        assert [reader.hear() for reader in readers] == ["reads"] * 3
        with children(3, _write, url) as writers:
            for writer in writers:
                writer.hear()
        with closing(open_store(url)) as store:
            # On a busy machine it may have missed some moments in which a restart is possible.
            wait_until(
                lambda: _log_after_a_write(store) < MAX_LOG_BYTES,
                seconds=60,
                failure="G1 is broken: the log grows while readers overlap",
            )
        for reader in readers:
            reader.tell("end")
    with closing(open_store(url)) as store, closing(sqlite3.connect(store.backend.path)) as own:
        assert own.execute("SELECT count(*) FROM holdfast_live").fetchone()[0] >= 3 * CALLS
        assert store.database.tools.damage() == []


def test_a_long_reader_costs_one_restart_in_a_pause(tmp_path, monkeypatch):
    """G2: processes share the pause after a restart that failed; writers do not wait again and again for a reader."""
    restarts: list[str] = []

    class Traced(sqlite3.Connection):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            self.set_trace_callback(lambda text: restarts.append(text) if "(RESTART)" in text else None)

    monkeypatch.setattr(SqliteBackend, "connection_class", Traced)
    monkeypatch.setattr(checkpoints, "RESTART_PAUSE_S", 20.0)
    url = f"sqlite:///{tmp_path}/jobs.db"
    with closing(open_store(url)) as store, closing(open_store(url)) as other:
        store.jobs.enqueue(NewJob(kind="mail"))
        with closing(sqlite3.connect(store.backend.path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM holdfast_live").fetchone()
            monkeypatch.setattr(checkpoints, "RESTART_LOG_BYTES", 1)
            for _ in range(20):
                for each in (store, other):
                    each.jobs.enqueue(NewJob(kind="mail"))
        assert len(restarts) == 1, "G2 is broken"


def test_the_pause_doubles_up_to_its_limit_and_ends(tmp_path):
    """An unreadable lock file means no pause, and so does one of a time before the host started again."""
    descriptor = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    lengths = []
    for _ in range(12):
        pause = RestartPause(descriptor)
        pause.extend()
        lengths.append(float(os.pread(descriptor, 64, 0).split()[1]))
    assert lengths[:3] == [RESTART_PAUSE_S, 2 * RESTART_PAUSE_S, 4 * RESTART_PAUSE_S]
    assert lengths[-1] == MAX_RESTART_PAUSE_S
    assert not RestartPause(descriptor).is_over
    RestartPause(descriptor).end()
    assert RestartPause(descriptor).is_over
    for text in (b"nonsense", b"99999999999.0 30.0"):
        os.pwrite(descriptor, text, 0)
        assert RestartPause(descriptor).is_over
    os.close(descriptor)


def _enqueue_when_told(pipe, _index, url):
    """Enqueue a job for each message, and answer with the error, if there is one. It never closes its store."""
    store = open_store(url)
    while True:
        try:
            store.jobs.enqueue(NewJob(kind="mail"))
        except StoreUnavailable as error:
            pipe.send(str(error))
        else:
            pipe.send("enqueued")
        pipe.recv()


@pytest.mark.parametrize("suffixes", [("-wal",), ("-shm",), ("-wal", "-shm")])
def test_a_deleted_log_is_noticed(tmp_path, suffixes):
    """D11: no process acknowledges another write. What was acknowledged before is in the file after the restart."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    with children(2, _enqueue_when_told, url) as (first, second):
        assert [first.hear(), second.hear()] == ["enqueued"] * 2
        for suffix in suffixes:
            Path(f"{tmp_path}/jobs.db{suffix}").unlink()
        for each in (first, second):
            each.tell("again")
            assert "was deleted or replaced" in each.hear(), "D11 is broken: the write was acknowledged"
        for each in (first, second):
            each.kill()
    with closing(open_store(url)) as store:
        assert store.views.count(Selector()).count == 2, "D11 is broken: acknowledged jobs are gone"


def test_a_log_that_was_replaced_is_left_alone(tmp_path):
    """D11: another process has begun a new log; the old one is not copied over its work."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    with children(1, _enqueue_when_told, url) as (old,):
        assert old.hear() == "enqueued"
        with closing(open_store(url)) as store:
            store.database.tools.vacuum()  # the file has all jobs
        old.tell("again")
        assert old.hear() == "enqueued"
        for suffix in ("-wal", "-shm"):
            Path(f"{tmp_path}/jobs.db{suffix}").unlink()
        with closing(open_store(url)) as store:
            store.jobs.enqueue_many([NewJob(kind="mail")] * 3)
        old.tell("again")
        assert "was deleted or replaced" in old.hear()
        old.kill()
    with closing(open_store(url)) as store:
        assert store.database.tools.damage() == []
        assert store.views.count(Selector()).count == 4


def test_a_store_that_forked_opens_its_log_again(tmp_path):
    """A fork closes all connections, and the last one deletes the log: this is no damage."""
    with closing(open_store(f"sqlite:///{tmp_path}/jobs.db")) as store:
        for _ in range(2):
            store.jobs.enqueue(NewJob(kind="mail"))
            assert store.views.count(Selector()).count
            store.backend.before_fork()
            store.backend.after_fork_in_parent()
            with store.backend.own_connection():
                pass
        assert store.views.count(Selector()).count == 2
