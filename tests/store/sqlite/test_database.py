"""The health of a SQLite file."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from holdfast.store.sqlite import database
from tests.support.processes import open_store


def test_a_file_that_another_program_keeps_locked_is_reported(tmp_path, monkeypatch):
    """K37: the doctor says why no job starts or finishes."""
    monkeypatch.setattr(database, "LOCK_CHECK_S", 0.05)
    with closing(open_store(f"sqlite:///{tmp_path}/jobs.db")) as store:
        with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            locked = {check.name: check.level for check in store.database.tools.health()}
            other.execute("ROLLBACK")
        assert locked["lock"] == "warn"
        assert "lock" not in {check.name for check in store.database.tools.health()}
