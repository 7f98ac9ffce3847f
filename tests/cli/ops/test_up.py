"""``up``, ``down``, ``status`` and ``service``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import State
from holdfast.cli.ops.pid_file import PidFile
from holdfast.cli.ops.service import quoted, unit_text
from holdfast.errors import InvalidInput
from tests.support.processes import gone, wait_until
from tests.support.program import ROOT, program
from tests.support.reference import checker

APP = ["--app", "tests.support.programs.cli_jobs:app"]


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def holdfast_(real_database):
    """Runs the program to its end, in a process of its own."""

    def call(*words, **environ):
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *words],
            cwd=ROOT,
            env={**os.environ, "HOLDFAST_URL": real_database.url, **environ},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    yield call
    call("down", "--all", "--now")


def test_up_serves_until_it_is_told_to_stop(app, real_database, holdfast_):
    app.enqueue("mail", {"to": 1})
    with program("up", *APP, url=real_database.url) as running:
        running.said("kinds: ")
        code, out, _ = holdfast_("status", "-o", "json")
        document = json.loads(out)
        checker(("status",)).validate(document)
        assert (code, [each["pid"] for each in document["data"]["up"]]) == (0, [running.pid])
        other = {"HOLDFAST_URL": "sqlite:///other.db"}
        assert (holdfast_("status", **other)[0], holdfast_("down", **other)[1]) == (3, "nothing was up\n")
        assert holdfast_("status", "--all", "--quiet", **other)[1] == f"{running.pid}\n"
        code, _, err = holdfast_("up", *APP)
        assert (code, f"with pid {running.pid}" in err) == (9, True)
        code, out, _ = holdfast_("down", "-o", "json")
        assert (code, json.loads(out)["data"]["stopped"][0]["pid"]) == (0, running.pid)
        assert running.end()[0] == 0
    assert holdfast_("status")[0] == 3


def test_a_detached_up_comes_up_and_goes_down(app, holdfast_):
    """The line comes back when it is up; jobs run; its log is private."""
    code, out, err = holdfast_("up", *APP, "--detach", "-o", "json")
    assert code == 0, err
    document = json.loads(out)
    checker(("up",)).validate(document)
    found = document["data"]
    assert not gone(found["pid"])
    assert Path(found["log"]).stat().st_mode & 0o777 == 0o600
    job = holdfast_("enqueue", "double", "-p", '{"n": 4}', "--quiet")[1].strip()
    assert holdfast_("wait", job, "--timeout", "30s")[0] == 0
    assert holdfast_("up", *APP, "--detach")[0] == 9
    assert holdfast_("down")[0] == 0
    assert wait_until(lambda: gone(found["pid"]))
    code, out, _ = holdfast_("down")
    assert (code, out.strip()) == (0, "nothing was up")


def test_down_now_waits_for_no_job(app, holdfast_, tmp_path):
    """It is given back, and has lost no attempt."""
    holdfast_("up", *APP, "--detach")
    path = tmp_path / "deaf"
    job = holdfast_("enqueue", "deaf", "-p", json.dumps({"path": str(path)}), "--quiet")[1].strip()
    assert wait_until(path.exists)
    code, _, err = holdfast_("down", "--timeout", "0s")
    assert (code, "--now" in err) == (10, True)
    assert holdfast_("down", "--now")[0] == 0
    found = app.get(int(job)).job()
    assert (found.state, found.attempts) == (State.READY, 0)


def test_one_that_does_not_come_up_says_why(holdfast_):
    """In the words of the process itself, with its own code."""
    code, out, _ = holdfast_("up", "--metrics", "no-port", "--detach", "-o", "json")
    error = json.loads(out)["error"]
    assert (code, error["code"]) == (2, "E_INVALID")
    assert "metrics" in error["message"].lower() or "port" in error["message"].lower()


def test_a_killed_up_is_not_up(real_database, holdfast_):
    """The lock goes with the process, whatever its file says."""
    with program("up", *APP, url=real_database.url) as running:
        running.said("kinds: ")
        running.send(signal.SIGKILL)
        running.end()
    assert holdfast_("status")[0] == 3
    assert holdfast_("up", *APP, "--detach")[0] == 0


def test_a_sqlite_store_is_the_same_wherever_one_stands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert PidFile.of("sqlite:///jobs.db").path == PidFile.of(f"sqlite:///{tmp_path}/jobs.db").path
    assert PidFile.of("sqlite:///jobs.db").path != PidFile.of("sqlite:///other.db").path


# -- service -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("plain-1.2/x", "plain-1.2/x"),
        ("two words", '"two words"'),
        ("50%", "50%%"),
        ("$HOME", "$$HOME"),
        ('say "x" \\', '"say \\"x\\" \\\\"'),
        ("", '""'),
        ("a;b", '"a;b"'),
    ],
)
def test_words_of_a_unit_are_quoted(word, text):
    assert quoted(word) == text


def test_control_characters_have_no_place_in_a_unit():
    with pytest.raises(InvalidInput):
        quoted("a\nExecStartPre=evil")


def test_a_unit_is_installed_and_removed(run, tmp_path):
    file = tmp_path / "config" / "systemd" / "user" / "mine.service"
    answer = run("service", "install", "--name", "mine", *APP, "-q", "a b", "--url", "sqlite:///x.db", "-o", "json")
    assert answer.data["file"] == str(file)
    (line,) = [line for line in file.read_text().splitlines() if line.startswith("ExecStart=")]
    assert line.endswith('up --app tests.support.programs.cli_jobs:app --queue "a b" --url sqlite:///x.db')
    assert run("service", "install", "--name", "mine").code == 9
    assert run("service", "install", "--name", "mine", "--force").code == 0
    answer = run("service", "uninstall", "--name", "mine", "-o", "json")
    checker(("service", "uninstall")).validate(answer.document)
    assert not file.exists()
    assert run("service", "uninstall", "--name", "mine").code == 3
    assert run("service", "install", "--name", "../evil").code == 2


def test_a_unit_has_its_three_sections(tmp_path):
    """One line for each thing, in the three sections it knows."""
    text = unit_text([sys.executable, "-m", "holdfast", "up"], tmp_path)
    assert [line for line in text.splitlines() if line.startswith("[")] == ["[Unit]", "[Service]", "[Install]"]
