"""A worker that runs out of file descriptors: its jobs pay nothing."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys

import pytest

import holdfast
from holdfast import Selector, State
from holdfast.domain.commands.command import COMMAND
from holdfast.worker.shortage import Shortage, is_shortage

pytestmark = pytest.mark.one_backend


def test_what_the_process_lacks_is_a_shortage():
    lacks = [OSError(number, "") for number in (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)]
    assert all(map(is_shortage, [*lacks, RuntimeError("can't start new thread")]))
    assert not any(map(is_shortage, [OSError(errno.ENOENT, ""), OSError(errno.EACCES, ""), RuntimeError("other")]))


def test_a_shortage_pauses_claims_for_longer_each_time(monkeypatch):
    """Runs that fail together count once, and a start in between begins anew."""
    now = 0.0
    monkeypatch.setattr("holdfast.worker.clock.now", lambda: now)
    shortage, pauses = Shortage(), []
    for _ in range(3):
        shortage.release(OSError(errno.EMFILE, "Too many open files"))
        shortage.release(OSError(errno.EMFILE, "Too many open files"))
        assert "Too many open files" in shortage.reason
        began = now
        while shortage.reason is not None:
            now += 0.5
        pauses.append(now - began)
    assert pauses == [1.0, 2.0, 5.0]
    shortage.recovered()
    shortage.release(OSError(errno.EMFILE, ""))
    now += 1.0
    assert shortage.reason is None


LIMITED = """
import resource, runpy
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
runpy.run_module("holdfast", run_name="__main__", alter_sys=True)
"""


def test_a_worker_without_descriptors_loses_no_job(real_database, tmp_path):
    """K72: commands that cannot start are released at no cost, and all run in the end."""
    with holdfast.Holdfast(real_database.url) as app:
        payload = {"argv": ["sh", "-c", "sleep 0.2"], "cwd": str(tmp_path)}
        command = holdfast.NewJob(kind=COMMAND, payload=json.dumps(payload), max_attempts=1)
        app.store.jobs.enqueue_many([command] * 30)
        process = subprocess.Popen(
            [sys.executable, "-c", LIMITED, "worker", "--slots", "30", "--drain"],
            env={**os.environ, "HOLDFAST_URL": real_database.url},
            stderr=subprocess.PIPE,
            text=True,
        )
        _, said = process.communicate(timeout=120)
        jobs = list(app.views.all(Selector()))
    assert {job.state for job in jobs} == {State.DONE}, said
    assert "run out of resources" in said
    assert "open files" in said
