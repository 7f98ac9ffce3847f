"""``run``."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import psutil
import pytest

from holdfast import Selector, State
from tests.cli.conftest import run_process
from tests.support.processes import wait_until

#: How a command runs does not depend on the store.
pytestmark = [pytest.mark.usefixtures("here"), pytest.mark.one_backend]


def test_a_command_runs_here(app, run):
    """The output goes to this terminal, and a job remains."""
    done = run_process("run", "--", "sh", "-c", "echo one; sleep 0.1; echo two")
    assert (done.returncode, done.stdout) == (0, "one\ntwo\n")
    failed = run_process("run", "-o", "json", "--", "sh", "-c", "exit 4")
    assert failed.returncode == 4
    document = json.loads(failed.stdout)
    assert (document["status"], document["error"]["code"]) == ("error", "E_COMMAND_FAILED")
    answer = document["data"]
    assert (answer["state"], answer["reason"], answer["exit_code"]) == ("dead", "exit_4", 4)
    assert app.views.count(Selector()).count == 2


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["sh", "-c", "exit 42"], 42),
        (["sh", "-c", "kill -9 $$"], 137),
        (["--timeout", "200ms", "sleep", "60"], 124),
        (["no-such-program"], 127),
    ],
)
def test_the_exit_code_of_the_command_is_that_of_run(app, run, arguments, code):
    """E5.9: 42 stays 42; signals, timeouts and failed starts are as a shell reports them."""
    assert run_process("run", *arguments).returncode == code


def test_a_store_that_refuses_workers_gets_no_job(app, run, real_database):
    """E10.4: `run` enqueued the job and then ended with exit 4; it stayed in a queue that no worker serves."""
    ((checksums,),) = real_database.execute("SELECT CAST(checksums AS text) FROM holdfast.meta")
    try:
        real_database.execute('UPDATE holdfast.meta SET checksums = \'{"1": "of other code"}\'')
        refused = run_process("run", "-o", "json", "--", "true")
    finally:
        real_database.execute(f"UPDATE holdfast.meta SET checksums = '{checksums}'")
    assert (refused.returncode, json.loads(refused.stdout)["error"]["code"]) == (4, "E_SCHEMA_MISMATCH")
    assert app.views.count(Selector()).count == 0


def test_the_command_reads_stdin(app, run, here):
    """E5.9: a pipe to its end, and a file from where others have read to."""
    data = bytes(range(256)) * 1000
    piped = subprocess.run(
        [sys.executable, "-m", "holdfast", "run", "cat"], input=data, capture_output=True, timeout=60, check=False
    )
    assert (piped.returncode, piped.stdout == data) == (0, True)
    (here / "lines").write_text("one\ntwo\n")
    with (here / "lines").open("rb", buffering=0) as file:
        file.read(4)
        assert run_process("run", "cat", stdin=file).stdout == "two\n"
    assert run_process("run", "cat", stdin=subprocess.DEVNULL).stdout == ""


def test_no_other_worker_continues_a_run(app, run):
    """Ctrl-C and a closed pipe cancel the job; a retry runs in the same process."""
    stopped = subprocess.Popen([sys.executable, "-m", "holdfast", "run", "--", "sleep", "60"])
    wait_until(lambda: app.views.count(Selector(states=(State.RUNNING,))).count)
    stopped.send_signal(signal.SIGINT)
    assert stopped.wait(60) == 12
    assert (
        run_process(
            "run", "--retry", "1", "--retry-delay", "100ms", "--", "sh", "-c", "[ $HOLDFAST_ATTEMPT = 2 ]"
        ).returncode
        == 0
    )
    piped = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m holdfast run -- yes | head -2"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert piped.stdout == "y\ny\n"
    wait_until(lambda: app.views.count(Selector(states=(State.RUNNING, State.READY))).count == 0)


def test_a_signal_kills_the_command(app, run, here):
    """Even a command that ignores SIGTERM is dead when ``run`` exits."""
    code = "import os, pathlib, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    code += "pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(600)"
    line = [sys.executable, "-m", "holdfast", "run", "--", sys.executable, "-c", code]
    running = subprocess.Popen(line, cwd=here)
    wait_until(lambda: (here / "pid").exists() and (here / "pid").read_text())
    running.send_signal(signal.SIGTERM)
    assert running.wait(60) == 12
    assert not psutil.pid_exists(int((here / "pid").read_text()))
    (job,) = app.views.all(Selector())
    assert str(job.state) == "cancelled"
