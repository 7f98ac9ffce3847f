"""``log``."""

from __future__ import annotations

import subprocess
import sys

import pytest

from holdfast import Selector, State
from tests.cli.conftest import run_process
from tests.support.processes import wait_until
from tests.worker.commands.test_executor import drain

pytestmark = pytest.mark.usefixtures("here")


def test_only_a_started_command_has_a_log(run, app):
    app.enqueue("mail", {"to": 1})
    assert run("log", "1", "-o", "json").code == 2
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
