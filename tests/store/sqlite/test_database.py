"""The health of a SQLite file, and its backup."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.selector import Selector
from holdfast.store.engine.operation import query
from holdfast.store.jobs import retention
from holdfast.store.sqlite import database
from tests.support.jobs import prune
from tests.support.processes import open_store

JOB = NewJob(kind="mail")


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


def test_a_large_log_is_reported_with_its_reason(tmp_path, monkeypatch):
    """S1: a transaction that lasts is named, and only then."""
    monkeypatch.setattr(database, "MAX_LOG_BYTES", 1)
    monkeypatch.setattr(database, "LONG_TRANSACTION_S", 0.01)
    with closing(open_store(f"sqlite:///{tmp_path}/jobs.db")) as store:
        store.jobs.enqueue(JOB)
        found = {check.name: check.message for check in store.database.tools.health()}
        assert found["log"].endswith("transactions that read the file overlap")
        with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM holdfast_live").fetchone()
            store.jobs.enqueue(JOB)
            found = {check.name: check.message for check in store.database.tools.health()}
            assert found["log"].endswith("a transaction stays open")


def test_a_backup_of_a_busy_store_ends(tmp_path, monkeypatch):
    """S4: it copies one snapshot; a commit of another connection between two of its steps does not restart it."""

    class Busy(sqlite3.Connection):
        steps = 0

        def backup(self, target, *, pages):
            def step(_status, _remaining, total):
                Busy.steps += 1
                assert Busy.steps <= 2 * total, "S4 is broken: the backup begins anew after each commit"
                store.jobs.enqueue(JOB)

            super().backup(target, pages=1, progress=step)

    with closing(open_store(f"sqlite:///{tmp_path}/jobs.db")) as store:
        store.jobs.enqueue(JOB)
        monkeypatch.setattr(store.backend, "connection_class", Busy)
        store.database.backup(tmp_path / "backup.db")
    with closing(open_store(f"sqlite:///{tmp_path}/backup.db")) as copy:
        assert Busy.steps > 1
        assert [finding.check for finding in copy.database.check() if not finding.ok] == []
        assert copy.views.count(Selector()).count == 1


def fill(store, jobs=600):
    """Jobs of 20 kB each, deleted again."""
    made = store.jobs.enqueue_many([NewJob(kind="mail", payload=json.dumps("x" * 20_000), hold=True)] * jobs)
    store.control.cancel(Selector(), actor="ada")
    store.control.delete(Selector())
    return len(made)


def test_a_file_returns_its_space(tmp_path, monkeypatch):
    """G6: while more than a quarter of it is free; in steps of 4 MB, so that nobody waits."""
    monkeypatch.setattr(retention, "FREE_PAGES", 50)
    file = tmp_path / "jobs.db"
    with closing(open_store(f"sqlite:///{file}")) as store:
        fill(store)
        store.database.tools.backup(tmp_path / "copy.db")
        pages = [store.backend.fetch(query("read_free_pages"))[0]]
        while prune(store, "free pages"):
            pages.append(store.backend.fetch(query("read_free_pages"))[0])
        free, all_pages = pages[-1]
        assert len(pages) > 2, "G6 is broken: the space stays"
        assert free <= max(50, all_pages / 4)
        assert store.database.tools.damage() == []
        store.jobs.enqueue(JOB)
    assert file.stat().st_size < 2_000_000 < (tmp_path / "copy.db").stat().st_size


def test_free_space_of_a_foreign_file_is_reported(tmp_path, monkeypatch):
    """S8: only a vacuum can return it."""
    monkeypatch.setattr(database, "FREE_BYTES", 1_000_000)
    monkeypatch.setattr(retention, "FREE_PAGES", 50)
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as own:
        own.execute("CREATE TABLE mine (n INTEGER)")
    with closing(open_store(f"sqlite:///{tmp_path}/jobs.db")) as store:
        assert "space" not in {check.name for check in store.database.tools.health()}
        fill(store)
        assert prune(store, "free pages") == 0
        assert "space" in {check.name for check in store.database.tools.health()}
        store.database.tools.vacuum()
        assert "space" not in {check.name for check in store.database.tools.health()}
        fill(store)
        assert prune(store, "free pages") == 1000
