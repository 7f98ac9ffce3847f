"""Checkpoints of the log: how often, where SQLite's own are not safe."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing

import pytest

from holdfast.store.sqlite.checkpoints import (
    COMMITS_BEFORE_EXTENSION,
    EXTENDED_LOG_BYTES,
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
    file, log = tmp_path / "test.db", tmp_path / "test.db-wal"
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        watched = Checkpoints(file)
        connection.execute("CREATE TABLE t (n INTEGER)")
        for n in range(COMMITS_BEFORE_EXTENSION + 5):
            assert log.stat().st_size < EXTENDED_LOG_BYTES or n >= COMMITS_BEFORE_EXTENSION
            connection.execute("INSERT INTO t VALUES (?)", (n,))
            watched.after_commit(connection)
        assert log.stat().st_size == EXTENDED_LOG_BYTES
        for each in (file, log):
            shutil.copy(each, tmp_path / each.name.replace("test", "copy"))
    with closing(sqlite3.connect(tmp_path / "copy.db")) as copy:
        assert copy.execute("SELECT count(*) FROM t").fetchone() == (COMMITS_BEFORE_EXTENSION + 5,), "I1 is broken"
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_log_that_is_in_use_is_not_extended(tmp_path):
    """Another process may write to it at that moment."""
    file = tmp_path / "test.db"
    with (
        closing(sqlite3.connect(file, isolation_level=None, timeout=0)) as connection,
        closing(sqlite3.connect(file, isolation_level=None)) as other,
    ):
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t (n INTEGER)")
        watched = Checkpoints(file)
        other.execute("BEGIN IMMEDIATE")
        size = (tmp_path / "test.db-wal").stat().st_size
        for _ in range(COMMITS_BEFORE_EXTENSION):
            watched.after_commit(connection)
        assert (tmp_path / "test.db-wal").stat().st_size == size
