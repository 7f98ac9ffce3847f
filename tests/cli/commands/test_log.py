"""``log``."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import Selector, State
from tests.cli.conftest import run_process
from tests.support.jobs import claim_jobs
from tests.support.processes import wait_until
from tests.worker.commands.test_executor import drain

pytestmark = pytest.mark.usefixtures("here")


def test_only_a_started_command_has_a_log(run, app):
    app.enqueue("mail", {"to": 1})
    assert run("log", "1", "-o", "json").code == 2
    assert "only commands have a log" in run("log", "1").err
    assert "Errors: holdfast show 1." in run("log", "1").err
    claim_jobs(app.store, "w-7", queues=["default"], kinds=["mail"])
    assert "prints and logs to the output of worker w-7." in run("log", "1").err
    assert run("log", "99", "-o", "json").code == 3
    assert run("add", "--hold", "--", "true").code == 0
    assert run("log", "2", "-o", "json").document["error"]["code"] == "E_NOT_FOUND"


def test_follow_waits_for_the_start(app, call):
    job = call("add", "--hold", "--", "echo", "hello").data["id"]
    following = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "log", "-f", str(job)], stdout=subprocess.PIPE, text=True
    )
    app.control.unhold(Selector(ids=(job,)), actor="ada")
    drain(app)
    assert following.communicate(timeout=60)[0] == "hello\n"


def test_a_log_is_followed_to_its_end(app, call):
    job = call("add", "--", "sh", "-c", "for n in 1 2 3 4 5; do echo $n; sleep 0.1; done").data["id"]
    with app.worker(commands=True, poll=0.05):
        wait_until(lambda: app.views.get(job).state is not State.READY)
        followed = run_process("log", "-f", str(job))
    assert followed.stdout.split() == ["1", "2", "3", "4", "5"]


#: Output that is no text, with colours, a bar, and no newline at the end.
NASTY_BYTES = b"\x00\xff\xfe plain\r\n10%\r20%\r\n\x1b[31mred\x1b[0m\x1b[2J\xe2\x82 end"


def log_bytes(*arguments):
    line = [sys.executable, "-m", "holdfast", "log", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, timeout=60, check=True)


def test_a_pipe_gets_the_bytes_that_were_written(app, call, here):
    """E5.7: no byte is added, escaped or replaced, also when it is followed."""
    (here / "data").write_bytes(NASTY_BYTES)
    job = call("add", "--", "cat", "data").data["id"]
    drain(app)
    assert log_bytes(job).stdout == NASTY_BYTES
    assert log_bytes("-f", job).stdout == NASTY_BYTES
    assert log_bytes("-n", "2", job).stdout == NASTY_BYTES.split(b"\n", 1)[1]
    assert log_bytes("-n", "0", job).stdout == b""


def test_a_terminal_gets_colours_but_no_other_sequence(app, call, here, monkeypatch):
    """E5.7: SGR and carriage returns pass; what clears the screen is escaped; --no-color has no colours."""
    (here / "data").write_bytes(NASTY_BYTES)
    job = call("add", "--", "cat", "data").data["id"]
    drain(app)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown = read_terminal("log", job)
    assert (b"\x1b[31mred\x1b[0m" in shown, b"10%\r20%" in shown) == (True, True)
    assert (b"\x1b[2J" in shown, b"\\x1b[2J" in shown, b"\x00" in shown) == (False, True, False)
    assert b"\x1b" not in read_terminal("log", "--no-color", job)


def read_terminal(*arguments):
    """What ``holdfast`` writes to a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, "-m", "holdfast", *map(str, arguments)], stdout=theirs, stdin=theirs)
    os.close(theirs)
    data = b""
    try:
        while piece := os.read(ours, 65536):
            data += piece
    except OSError:  # Linux reports the end of a terminal in this way
        pass
    os.close(ours)
    assert process.wait(60) == 0
    return data


def test_follow_goes_on_over_attempts(app, call, here):
    """E5.7: it stopped after the first attempt."""
    script = "echo attempt $HOLDFAST_ATTEMPT; until [ -e go-$HOLDFAST_ATTEMPT ]; do sleep 0.05; done; exit 1"
    job = call("add", "--retry", "2", "--retry-delay", "10ms", "--", "sh", "-c", script).data["id"]
    line = [sys.executable, "-m", "holdfast", "log", "-f", str(job)]
    with (
        app.worker(commands=True, poll=0.05),
        subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as following,
    ):
        for number in (1, 2, 3):
            assert following.stdout.readline() == f"attempt {number}\n".encode()
            (here / f"go-{number}").touch()
        assert following.stdout.read() == b""
        assert b"attempt 3" in following.stderr.read()
    assert following.returncode == 0
    assert log_bytes("--since", "1h", job).stdout == b"attempt 1\nattempt 2\nattempt 3\n"
    assert log_bytes("--since", "2999-01-01T00:00:00Z", job).stdout == b""


def test_several_logs_are_shown(app, call, run):
    """E5.7: with a line before the output of each; NDJSON has a line for each."""
    first, second = (call("add", "-l", name, "--", "printf", name).data["id"] for name in ("one", "two"))
    drain(app)
    assert log_bytes(first, second).stdout == f"==> job {first}: one <==\none\n==> job {second}: two <==\ntwo".encode()
    lines = run("log", "-o", "ndjson", first, second).lines
    assert [line["text"] for line in lines[:-1]] == ["one", "two"]
    assert run("log", "-o", "json", first, second).code == 2


def test_secret_variables_are_masked_in_the_log(app, call):
    job = call("add", "--env", "API_TOKEN=hunter-2-hunter", "--", "sh", "-c", "echo it is $API_TOKEN").data["id"]
    drain(app)
    assert log_bytes(job).stdout == b"it is ***\n"
    assert call("log", str(job)).data["text"] == "it is ***\n"


def test_values_of_variables_are_masked_wherever_a_command_prints_them(app, call):
    """W4: in its log, in the last lines of its error, in its words; not those of known variables."""
    line = ("--env", "STRIPE_SK=sk_live_12345", "--env", "NODE_ENV=production", "--", "sh", "-c")
    script = 'echo "with $STRIPE_SK in $NODE_ENV"; : sk_live_12345; exit 3'
    job = call("add", *line, script).data["id"]
    drain(app)
    assert log_bytes(job).stdout == b"with *** in production\n"
    shown = call("show", job)
    assert "sk_live" not in shown.out
    assert "with *** in production" in shown.data["job"]["error"]


def test_a_command_without_output_has_an_empty_log_and_no_file(app, call, run):
    job = call("add", "--", "true").data["id"]
    drain(app)
    answer = run("log", str(job))
    assert (answer.code, answer.out) == (0, "")
    assert f"job {job} has written no output" in answer.err
    data = call("log", str(job)).data
    assert (data["attempt"], data["text"]) == (1, "")
    assert "log" not in app.views.get(job).result
    assert not Path(data["path"]).exists()


def test_the_log_of_another_host_is_missing(app, call, run, monkeypatch):
    job = call("add", "--", "true").data["id"]
    drain(app)
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    assert run("log", str(job)).code == 3
