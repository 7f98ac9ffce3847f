"""Runs of the tests themselves: in the background of a shell, and ended in the middle."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import wait_until

ROOT = Path(__file__).parents[2]
#: A test that sends SIGINT to a process that it has started.
SENDS_SIGINT = "tests/cli/ops/test_worker.py::test_the_second_signal_leaves_at_once"
START_SERVER = """
from tests.support.postgres import QUICK, PostgresServer, bundled_programs
server = PostgresServer(bundled_programs(), settings=QUICK)
print(server.home, flush=True)
server.start()
print(server._process.pid, flush=True)
input()
"""


def test_tests_that_send_sigint_pass_in_the_background():
    """K60: a shell ignores SIGINT in its background jobs, and every process that they start inherits that."""
    ignoring = f"trap '' INT; exec {sys.executable} -m pytest -q -p no:cacheprovider -n 0 -k sqlite {SENDS_SIGINT}"
    done = subprocess.run(
        ["/bin/sh", "-c", ignoring], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("runs", [True, False])
def test_a_run_that_is_ended_leaves_no_server(number, runs):
    """K60: neither a server nor its files, also if the run ends before the server has started."""
    with subprocess.Popen(
        [sys.executable, "-c", START_SERVER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        home = Path(run.stdout.readline().strip())
        server = int(run.stdout.readline()) if runs else None
        run.send_signal(number)
    wait_until(lambda: not home.exists())
    assert server is None or not Path(f"/proc/{server}").exists()
