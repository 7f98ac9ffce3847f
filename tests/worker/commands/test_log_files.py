"""Logs on this host follow their jobs."""

from __future__ import annotations

import os
from datetime import timedelta

from holdfast.domain.jobs.verdict import Done
from holdfast.worker.commands.log_files import MIN_AGE_S, LogFiles
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


def test_logs_can_go_before_their_jobs(store, tmp_path):
    """E2: by the age of the last output; zero keeps them with their jobs."""
    job = put(store)
    old, young = (write(tmp_path / "logs", f"{job}-{n}.log", age=age) for n, age in ((1, 7300), (2, 7000)))
    assert LogFiles(store, tmp_path / "logs").prune(limit=10) == (0, False)
    assert LogFiles(store, tmp_path / "logs", max_age=timedelta(hours=2)).prune(limit=10) == (1, False)
    assert (old.exists(), young.exists()) == (False, True)
