"""A worker that runs out of file descriptors: its jobs pay nothing."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading

import pytest

import holdfast
from holdfast import Selector, State
from holdfast.domain.commands.command import COMMAND
from holdfast.errors import ConfigurationError
from holdfast.worker.shortage import Shortage, WorkerShortage, is_shortage
from tests.support.programs.context_jobs import register
from tests.support.workers import drain

pytestmark = pytest.mark.one_backend


def test_what_the_process_lacks_is_a_shortage():
    lacks = [OSError(number, "") for number in (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)]
    assert all(map(is_shortage, [*lacks, RuntimeError("can't start new thread"), MemoryError()]))
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


#: The program, in which no more than a number of threads can start.
FEW_THREADS = """
import sys, threading
left, start = int(sys.argv.pop(1)), threading.Thread.start
def limited(thread):
    global left
    left -= 1
    if left < 0:
        raise RuntimeError("can't start new thread")
    start(thread)
threading.Thread.start = limited
from holdfast.cli.main import main
main()
"""


@pytest.mark.parametrize(
    "command",
    [
        "worker --drain --app tests.support.programs.context_jobs:APP",
        "batch run tests.support.programs.child_units:quick --range 1-3 --jobs 3",
    ],
)
def test_a_process_that_may_start_few_threads_reports_that(real_database, command):
    """E9: it was once "a defect of Holdfast". Whichever thread cannot start, the end says what to do."""
    real_database.open()
    codes: list[int] = []
    while 0 not in codes:
        process = subprocess.run(
            [sys.executable, "-c", FEW_THREADS, str(len(codes)), "--url", real_database.url, *command.split()],
            env={**os.environ, "HOLDFAST_URL": real_database.url},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        codes.append(process.returncode)
        if process.returncode:
            assert "can't start new thread" in process.stderr
            assert "ulimit" in process.stderr
            assert "Traceback" not in process.stderr
    assert set(codes) == {0, 4}


def test_a_worker_that_cannot_start_all_its_threads_leaves_none(real_database, monkeypatch):
    """E9: an embedded worker once went on to send heartbeats, and claimed nothing."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "holdfast-maintenance":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    before = set(threading.enumerate())
    with holdfast.Holdfast(real_database.url) as app:
        worker = app.worker()
        with pytest.raises(RuntimeError, match="can't start"):
            worker.run()
        left = {thread.name for thread in set(threading.enumerate()) - before}
        assert not left & {"holdfast-heartbeat", "holdfast-watchdog", "holdfast-settler"}
        assert app.store.workers.list() == []


def test_a_drain_that_can_start_nothing_ends_with_an_error(real_database, monkeypatch):
    """E9: it once waited in rounds of 30 seconds, for ever. Its jobs lose no attempt."""

    def refuse() -> None:
        raise WorkerShortage(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("holdfast.worker.executors.children._start_supervisor", refuse)
    monkeypatch.setattr("holdfast.worker.shortage.BACKOFF_S", (0.01,) * 5)
    with holdfast.Holdfast(real_database.url) as app:
        handlers = register(app)
        child, thread = handlers["in_process"].enqueue("a"), handlers["in_thread"].enqueue("a")
        with pytest.raises(ConfigurationError, match="5 starts in a row have failed") as raised:
            drain(app)
        assert "ulimit -n" in raised.value.hint
        assert (child.state, child.job().attempts, thread.state) == (State.READY, 0, State.DONE)


def test_a_start_that_succeeds_ends_a_row_of_failures(monkeypatch):
    now = 0.0
    monkeypatch.setattr("holdfast.worker.clock.now", lambda: now)
    shortage = Shortage()
    lasting = []
    for fails in (True, True, True, True, False, True, True, True, True, True):
        if fails:
            shortage.release(OSError(errno.EMFILE, "Too many open files"))
            now += 60
        else:
            shortage.recovered()
        lasting.append(shortage.lasts)
    assert lasting == [False] * 9 + [True]
