"""Logs on this host follow their jobs."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.domain.jobs.verdict import Done
from holdfast.worker.commands.log_files import MIN_AGE_S, AttemptLog, LogFiles
from tests.support.jobs import only, put, take_one


def write(folder, name, *, age=2 * MIN_AGE_S):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("output")
    at = path.stat().st_mtime - age
    os.utime(path, (at, at))
    return path


def test_the_logs_of_deleted_jobs_are_deleted(store, tmp_path):
    """K39: with the last log of a folder the folder goes; other files and fresh logs stay."""
    kept, deleted = put(store), put(store)
    for lease in (take_one(store), take_one(store)):
        store.leases.settle(lease, Done())
    logs = LogFiles(store, tmp_path / "logs")
    stays = [
        write(tmp_path / "logs", f"{kept}-1.log"),
        write(tmp_path / "logs", "notes.log"),
        write(tmp_path / "logs", f"{deleted}-2.log", age=0),
    ]
    goes = write(tmp_path / "logs", f"rate=1/{deleted}-1.log")
    assert logs.prune(limit=10) == (0, False)
    store.control.delete(only(deleted))
    assert logs.prune(limit=10) == (1, False)
    assert ([path.exists() for path in stays], goes.parent.exists()) == ([True] * 3, False)


def test_logs_are_checked_in_small_steps(store, tmp_path):
    """K39: a walk goes on where it was."""
    for number in range(5):
        write(tmp_path / "logs", f"{number + 100}-1.log")
    logs = LogFiles(store, tmp_path / "logs")
    assert [logs.prune(limit=2) for _ in range(4)] == [(2, True), (2, True), (1, False), (0, False)]


def test_a_step_goes_on_where_a_folder_has_vanished(store, tmp_path):
    """K39: each log of a sweep has a folder of its own; two workers of the host prune the same ones."""
    for number in range(60):
        write(tmp_path / "logs", f"rate={number}/seed=1/{number + 100}-1.log")
    one, other = (LogFiles(store, tmp_path / "logs") for _ in range(2))
    try:
        deleted = sum(logs.prune(limit=limit)[0] for _ in range(20) for logs, limit in ((one, 4), (other, 3)))
    except OSError as error:
        pytest.fail(f"K39 is broken: {error}")
    assert deleted >= 60
    assert list((tmp_path / "logs").iterdir()) == [], "K39 is broken: empty folders stay"


def test_a_step_tells_a_backlog_from_logs_that_stay(store, tmp_path):
    """K39: steps follow each other at once only while they delete a tenth of what they check."""
    job = put(store)
    for number in range(100):
        write(tmp_path / "logs", f"{job}-{number}.log")
    logs = LogFiles(store, tmp_path / "logs")
    assert [logs.prune(limit=50) for _ in range(3)] == [(0, False)] * 3
    for number in range(12):
        write(tmp_path / "logs", f"{number + 1000}-1.log")
    assert LogFiles(store, tmp_path / "logs").prune(limit=112) == (12, True)


def test_a_log_is_created_while_its_folder_is_removed(tmp_path, monkeypatch):
    """Another worker removes the folder, which is empty, just before the first output."""
    mkdir, removed = Path.mkdir, []

    def removed_once(self, **options):
        mkdir(self, **options)
        if not removed:
            removed.append(self.rmdir())

    monkeypatch.setattr(Path, "mkdir", removed_once)
    log = AttemptLog(tmp_path / "rate=1" / "7-1.log")
    log.write(b"output")
    log.close()
    assert removed
    assert log.path.read_bytes() == b"output"


def test_logs_can_go_before_their_jobs(store, tmp_path):
    """E2: by the age of the last output; zero keeps them with their jobs."""
    job = put(store)
    old, young = (write(tmp_path / "logs", f"{job}-{n}.log", age=age) for n, age in ((1, 7300), (2, 7000)))
    assert LogFiles(store, tmp_path / "logs").prune(limit=10) == (0, False)
    assert LogFiles(store, tmp_path / "logs", max_age=timedelta(hours=2)).prune(limit=10) == (1, False)
    assert (old.exists(), young.exists()) == (False, True)
