"""Checkpoints of the log: how often, where SQLite's own are not safe."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing

import pytest

from holdfast.domain.jobs.new_job import NewJob
from holdfast.store import Store
from holdfast.store.sqlite.backend import SqliteBackend
from holdfast.store.sqlite.checkpoints import (
    EXTEND_AFTER_TRANSACTIONS,
    LARGE_LOG_BYTES,
    MIN_CHANGES,
    SAFE_CHECKPOINTS,
    Checkpoints,
)


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
            watched.after_commit(connection)
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
