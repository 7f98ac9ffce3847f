"""The pid file of ``up``: who has its lock, and who only seems to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from holdfast.cli.ops.pid_file import PidFile, UpStatus
from holdfast.errors import Conflict
from tests.support.processes import gone, wait_until

#: Locks the file, forks a process that waits, prints its pid, and waits.
UP = """
import ctypes, os, pathlib, signal, sys
from datetime import UTC, datetime
from holdfast.cli.ops.pid_file import PidFile, UpStatus
file = PidFile(pathlib.Path(sys.argv[1]))
file.lock()
status = UpStatus(pid=os.getpid(), url="x", worker="w", queues=[], kinds=[], started_at=datetime.now(UTC))
if sys.argv[2] == "late":
    file.write(status)
child = os.fork() if sys.argv[3] == "fork" else ctypes.PyDLL(None).fork()
if child:
    file.write(status) if sys.argv[2] == "soon" else None
    print(child, flush=True)
signal.pause()
"""


@contextmanager
def up(path, *, written="late", how="fork"):
    """A process that has the lock, and the pid of its fork."""
    process = subprocess.Popen([sys.executable, "-c", UP, path, written, how], stdout=subprocess.PIPE, text=True)
    fork = int(process.stdout.readline())
    try:
        yield process, fork
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        os.kill(fork, signal.SIGKILL)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "up.json"


@pytest.mark.parametrize("how", ["fork", "fork of a library"])
@pytest.mark.parametrize("written", ["soon", "late", "never"])
def test_a_fork_of_a_killed_up_is_not_up(path, written, how):
    """K78: it had the lock, so that the next ``up`` was refused and ``down`` signalled whoever had the old pid."""
    with up(path, written=written, how=how) as (process, fork):
        pid_file = PidFile(path)
        with pytest.raises(Conflict):
            pid_file.lock()
        assert (pid_file.read() is None) is (written == "never")
        process.kill()
        process.wait()
        assert not gone(fork)
        assert pid_file.read() is None, "K78 is broken: a fork counts as up"
        pid_file.terminate()
        try:
            pid_file.lock()
        except Conflict:
            raise AssertionError("K78 is broken: a fork keeps the next up from starting") from None
        own = UpStatus(pid=os.getpid(), url="y", worker="w", queues=[], kinds=[], started_at=datetime.now(UTC))
        pid_file.write(own)
        assert PidFile(path).read() == own
        with pytest.raises(Conflict):
            PidFile(path).lock()


def test_a_fork_that_ends_takes_no_lock_with_it(path):
    with up(path) as (process, fork):
        os.kill(fork, signal.SIGKILL)
        wait_until(lambda: gone(fork))
        assert PidFile(path).read().pid == process.pid
        PidFile(path).terminate()
        assert process.wait(60) == -signal.SIGTERM
