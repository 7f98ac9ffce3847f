"""Logs on a disk that is nearly full: the store beside them goes on."""

from __future__ import annotations

import json
import os
import shutil

import pytest

import holdfast
from holdfast import State
from holdfast.domain.commands.command import COMMAND, Command
from holdfast.domain.jobs.new_job import NewJob
from holdfast.settings import log_folder
from holdfast.worker.commands.executor import READ_BYTES
from holdfast.worker.commands.log_files import LOST, AttemptLog, free_floor, log_path
from tests.chaos.sites import small_disk

MEGABYTE = 2**20


@pytest.mark.parametrize(
    ("keep_free", "total", "floor"),
    [
        ("64M", 100_000 * MEGABYTE, 64 * MEGABYTE),
        ("64M", 640 * MEGABYTE, 64 * MEGABYTE),
        ("64M", 40 * MEGABYTE, 4 * MEGABYTE),
        ("1%", 100_000 * MEGABYTE, 1000 * MEGABYTE),
        ("50%", 1000, 100),
        ("64M", 0, 0),
    ],
)
def test_logs_leave_a_size_or_a_tenth_of_a_small_disk(keep_free, total, floor):
    """Y18."""
    assert free_floor(keep_free, total) == floor


@pytest.fixture
def disk():
    if os.geteuid():
        pytest.skip("only root can make a small disk")
    with small_disk(20) as folder:
        yield folder


def test_a_log_stops_before_its_disk_is_full_and_goes_on_later(disk, caplog):
    """Y18: the store is on the same disk."""
    log = AttemptLog(disk / "log")
    for _ in range(640):
        log.write(b"x" * READ_BYTES)
    assert shutil.disk_usage(disk).free >= MEGABYTE, "Y18 is broken: logs fill the disk"
    assert (log.path.read_bytes().count(LOST), "loses lines" in caplog.text) == (1, True)
    assert "bytes of its output are not in its log" in (log.lost or "")
    (disk / "room").mkdir()
    os.truncate(log.path, 0)  # somebody makes room
    log.write(b"again\n")
    log.close()
    assert log.path.read_bytes().endswith(b"again\n")


def test_a_disk_that_fills_with_logs_stops_no_store(disk):
    """Y18: commands print more than the disk holds; all of them end, and the store takes jobs."""
    url = f"sqlite:///{disk}/jobs.db"
    words = ("sh", "-c", 'head -c 15000000 /dev/zero | tr "\\0" x; exit "$1"', "-")
    with holdfast.Holdfast(url) as app:
        ids = []
        for code in ("0", "3", "0"):
            command = Command(argv=(*words, code), cwd="/", env={"PATH": os.environ["PATH"]})
            ids.append(app.store.jobs.enqueue(NewJob(kind=COMMAND, payload=command.dumps(), max_attempts=1)).id)
        app.worker(commands=True, drain=True, slots=3, poll=0.05).run()
        jobs = [app.views.get(job_id) for job_id in ids]
        assert [job.state for job in jobs] == [State.DONE, State.DEAD, State.DONE], "Y18 is broken"
        told = [json.loads(job.result).get("log_lost") if job.result else job.error for job in jobs]
        assert any("bytes of its output are not in its log" in (text or "") for text in told)
        logs = [log_path(log_folder(url), job_id, 1, {}).read_bytes() for job_id in ids]
        assert any(LOST in text for text in logs)
        assert app.store.jobs.enqueue(NewJob(kind="mail")).created
