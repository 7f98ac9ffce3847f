"""``set``."""

from __future__ import annotations

import pytest

from holdfast import State
from tests.cli.conftest import payload_of
from tests.support.jobs import take_one
from tests.worker.commands.test_executor import drain

pytestmark = pytest.mark.usefixtures("here")


def test_a_command_can_be_edited_until_it_runs(app, call, run, add):
    """The run uses the new values, ``show`` names who set them, and a finished command is refused."""
    job = add("--env", "A=1", "--env", "GONE=x", "--hold", "--", "sh", "-c", "echo $A-$B-${GONE-none}")
    done = call("set", str(job), "--env", "A=2", "--env", "B=", "--unset", "GONE", "--timeout", "1h", "--memory", "1G")
    assert done.data["changed"] == 1
    command = payload_of(app, job)
    assert (command["timeout"], command["memory"]) == ("PT3600S", 2**30)
    actor = command["origins"]["memory"].removeprefix("set by ")
    shown = run("show", str(job)).out
    assert f"A=***  (set by {actor})" in shown
    assert f"1 GB  (set by {actor})" in shown
    assert "GONE=" not in shown.partition("history")[0]
    assert run("unhold", str(job)).code == 0
    drain(app)
    assert call("log", str(job)).data["text"] == "2--none\n"
    assert run("set", str(job), "--env", "A=3").code == 9


def test_an_edit_without_effect_is_reported(call, run, add):
    job = add("--env", "A=1", "--memory", "1G", "--", "true")
    same = call("set", str(job), "--env", "A=1", "--memory", "1G")
    assert (same.code, same.data["changed"], "already" in same.data["unchanged"][0]["why"]) == (9, 0, True)
    assert f"nothing was changed; unchanged: job {job}, ready: it has these" in run("set", str(job), "--env", "A=1").err


def test_none_clears_a_cap(app, call, add):
    job = add("--memory", "1G", "--timeout", "5m", "--cpus", "1", "--", "true")
    call("set", str(job), "--memory", "none", "--timeout", "none", "--cpus", "none")
    assert not {"memory", "timeout", "cpus"} & payload_of(app, job).keys()


def test_a_running_command_cannot_be_edited(app, run, add):
    """Selected by id or by label: exit 9, and nothing changes."""
    job = add("--label", "busy", "--", "true")
    take_one(app.store, kinds=("command",))
    for arguments in ([str(job)], ["--label", "busy"]):
        answer = run("set", *arguments, "--env", "A=1", "-o", "json")
        assert (answer.code, answer.document["error"]["code"]) == (9, "E_CONFLICT")
    assert "A" not in payload_of(app, job)["env"]


@pytest.mark.parametrize(
    "arguments", [[], ["--env", "=x"], ["--env", "NO_SUCH"], ["--cpus", "many"], ["--cpus", "0"], ["--memory", "much"]]
)
def test_an_invalid_edit_is_refused(app, run, add, arguments):
    job = add("--", "true")
    assert run("set", str(job), *arguments, "-o", "json").code == 2
    assert app.views.get(job).state is State.READY


def test_only_commands_have_variables(app, run):
    app.enqueue("mail", {"to": 1})
    assert run("set", "1", "--env", "A=1").code == 2
    assert run("set", "1", "--priority", "5").code == 0
