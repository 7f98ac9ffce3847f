"""Checkpoints of the log: how often, where SQLite's own are not safe."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from holdfast.store.sqlite.checkpoints import MIN_CHANGES, SAFE_CHECKPOINTS, Checkpoints

pytestmark = pytest.mark.skipif(sqlite3.sqlite_version_info >= SAFE_CHECKPOINTS, reason="SQLite's own are used")


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
