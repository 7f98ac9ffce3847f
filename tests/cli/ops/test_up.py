"""``up``, ``down`` and ``status``."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast import State
from holdfast.cli.ops.pid_file import PidFile
from holdfast.domain.fleet.stop_switch import StopMode
from holdfast.domain.jobs.job import WorkerId
from holdfast.errors import Conflict
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
    """Runs ``holdfast`` to its end, in its own process."""

    def call(*arguments, **environ):
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *arguments],
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


def test_up_runs_until_down(app, real_database, holdfast_):
    app.enqueue("mail", {"to": 1})
    with program("up", *APP, url=real_database.url) as running:
        running.said("kinds: ")
        code, out, _ = holdfast_("status", "-o", "json")
        document = json.loads(out)
        checker(("status",)).validate(document)
        assert (code, [each["pid"] for each in document["data"]["up"]]) == (0, [running.pid])
        assert document["data"]["up"][0]["stop_switch"] is None
        app.store.stop_switch.set(StopMode.DRAIN, actor="ada", note="deploy")
        switch = json.loads(holdfast_("status", "-o", "json")[1])["data"]["up"][0]["stop_switch"]
        assert (switch["mode"], switch["actor"], switch["note"]) == ("drain", "ada", "deploy")
        assert "the store is stopped (drained by ada: deploy)" in holdfast_("status")[1]
        other = {"HOLDFAST_URL": "sqlite:///other.db"}
        code, _, err = holdfast_("status", **other)
        assert (code, f"up on: {document['data']['up'][0]['url']} (pid {running.pid})" in err) == (3, True)
        assert holdfast_("down", **other)[1].startswith("nothing was up on sqlite:///other.db; up on: ")
        assert holdfast_("status", "--all", "--quiet", **other)[1] == f"{running.pid}\n"
        code, _, err = holdfast_("up", *APP)
        assert (code, f"with pid {running.pid}" in err) == (9, True)
        assert "holdfast down --url" in err
        code, out, _ = holdfast_("down", "-o", "json")
        assert (code, json.loads(out)["data"]["stopped"][0]["pid"]) == (0, running.pid)
        assert running.end()[0] == 0
    code, _, err = holdfast_("status")
    assert (code, "the store is stopped (drained by ada: deploy)" in err) == (3, True)


@pytest.mark.one_backend
def test_status_counts_the_workers_of_a_fleet(app, holdfast_):
    """O13: with three workers, "error: nothing is up"."""
    for name in ("a", "b"):
        app.store.workers.announce(WorkerId(name), host=name, pid=1, queues=["default"], kinds=[], version=None)
    code, _, err = holdfast_("status")
    assert (code, "no holdfast up runs here; 2 workers of this store are alive" in err) == (3, True)


@pytest.mark.one_backend
def test_an_up_that_fails_does_not_say_that_it_is_up(app, holdfast_):
    code, _, err = holdfast_("up", *APP, "--queue", "")
    assert code != 0
    assert "up; stop it" not in err


@pytest.mark.one_backend
def test_a_detached_up_comes_up_and_goes_down(app, holdfast_):
    """The command returns when the process is up; jobs run; the log is private."""
    code, out, err = holdfast_("up", *APP, "--detach", "-o", "json")
    assert code == 0, err
    document = json.loads(out)
    checker(("up",)).validate(document)
    status = document["data"]
    assert not gone(status["pid"])
    assert Path(status["log"]).stat().st_mode & 0o777 == 0o600
    job = holdfast_("enqueue", "double", "-p", '{"n": 4}', "--quiet")[1].strip()
    assert holdfast_("wait", job, "--timeout", "30s")[0] == 0
    assert holdfast_("up", *APP, "--detach")[0] == 9
    assert holdfast_("down")[0] == 0
    assert wait_until(lambda: gone(status["pid"]))
    code, out, _ = holdfast_("down")
    assert (code, out.strip()) == (0, "nothing was up")


def test_a_detached_up_prints_its_store_and_its_dashboard(app, holdfast_, real_database):
    code, out, err = holdfast_("up", *APP, "--web", "--detach", HOLDFAST_WEB="127.0.0.1:0")
    assert code == 0, err
    assert re.match(r"up: pid \d+, store \w+://.*, dashboard http://127\.0\.0\.1:\d+\S*, log /", out), out
    assert holdfast_("down")[0] == 0


@pytest.mark.one_backend
def test_down_now_waits_for_no_job(app, holdfast_, tmp_path):
    """The job is released and keeps its attempt."""
    holdfast_("up", *APP, "--detach")
    path = tmp_path / "deaf"
    job = holdfast_("enqueue", "deaf", "-p", json.dumps({"path": str(path)}), "--quiet")[1].strip()
    assert wait_until(path.exists)
    code, _, err = holdfast_("down", "--timeout", "0s")
    assert (code, "--now" in err) == (10, True)
    assert holdfast_("down", "--now")[0] == 0
    stored = app.get(int(job)).job()
    assert (stored.state, stored.attempts) == (State.READY, 0)


@pytest.mark.one_backend
def test_a_failed_start_reports_its_error(holdfast_):
    """The error is that of the process, with its code."""
    code, out, _ = holdfast_("up", "--metrics", "no-port", "--detach", "-o", "json")
    error = json.loads(out)["error"]
    assert (code, error["code"]) == (2, "E_INVALID")
    assert "metrics" in error["message"].lower() or "port" in error["message"].lower()


@pytest.mark.one_backend
def test_a_killed_up_is_not_up(real_database, holdfast_):
    """The kernel releases the lock with the process; the file stays."""
    with program("up", *APP, url=real_database.url) as running:
        running.said("kinds: ")
        running.send(signal.SIGKILL)
        running.end()
    assert holdfast_("status")[0] == 3
    assert holdfast_("up", *APP, "--detach")[0] == 0


def test_a_process_that_only_looks_does_not_keep_up_from_starting(tmp_path):
    """K58: whoever reads the pid file has it locked for a moment."""
    path = tmp_path / "up.json"
    path.touch()
    reader = os.open(path, os.O_RDONLY)
    fcntl.flock(reader, fcntl.LOCK_SH)
    leaving = threading.Timer(0.1, os.close, [reader])
    leaving.start()
    pid_file = PidFile(path)
    pid_file.lock()
    leaving.join()
    with pytest.raises(Conflict):
        PidFile(path).lock()


def test_relative_paths_of_a_sqlite_store_share_a_pid_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert PidFile.of("sqlite:///jobs.db").path == PidFile.of(f"sqlite:///{tmp_path}/jobs.db").path
    assert PidFile.of("sqlite:///jobs.db").path != PidFile.of("sqlite:///other.db").path
