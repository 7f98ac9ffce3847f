"""``holdfast set`` for programs, presets and their origins, NDJSON, and what the verbs say about what they left alone."""

from __future__ import annotations

import json
import re

import pytest

from holdfast import Selector, State
from tests.cli.conftest import payload_of
from tests.support.jobs import take_one
from tests.support.processes import wait_until
from tests.worker.commands.test_executor import drain

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def add(call):
    return lambda *words: call("add", *words).data["id"]


# -- set ---------------------------------------------------------------------------------------


def test_a_program_is_changed_until_it_runs(app, call, run, add):
    """It runs with the new values; show tells who has set them; once it has ended that is refused."""
    job = add("--env", "A=1", "--env", "GONE=x", "--hold", "--", "sh", "-c", "echo $A-$B-${GONE-none}")
    done = call("set", str(job), "--env", "A=2", "--env", "B=", "--unset", "GONE", "--timeout", "1h", "--memory", "1G")
    assert done.data["changed"] == 1
    command = payload_of(app, job)
    assert (command["timeout"], command["memory"]) == ("PT3600S", 2**30)
    actor = command["origins"]["memory"].removeprefix("set by ")
    shown = run("show", str(job)).out
    assert f"A=2  (set by {actor})" in shown
    assert f"1 GB  (set by {actor})" in shown
    assert "GONE=" not in shown.partition("history")[0]
    assert run("unhold", str(job)).code == 0
    drain(app)
    assert call("log", str(job)).data["text"] == "2--none\n"
    assert run("set", str(job), "--env", "A=3").code == 9


def test_what_is_set_already_is_told(call, run, add):
    job = add("--env", "A=1", "--memory", "1G", "--", "true")
    same = call("set", str(job), "--env", "A=1", "--memory", "1G").data
    assert (same["changed"], "already" in same["why"]) == (0, True)
    assert "set: 0 of 1 job (left: 1 ready; " in run("set", str(job), "--env", "A=1").out


def test_caps_are_taken_away(app, call, add):
    job = add("--memory", "1G", "--timeout", "5m", "--cpus", "1", "--", "true")
    call("set", str(job), "--memory", "none", "--timeout", "none", "--cpus", "none")
    assert not {"memory", "timeout", "cpus"} & payload_of(app, job).keys()


def test_what_runs_keeps_what_it_was_given(app, run, add):
    """Named, or found by its label: exit 9, and nothing is changed."""
    job = add("--label", "busy", "--", "true")
    take_one(app.store, kinds=("command",))
    for words in ([str(job)], ["--label", "busy"]):
        answer = run("set", *words, "--env", "A=1", "-o", "json")
        assert (answer.code, answer.document["error"]["code"]) == (9, "E_CONFLICT")
    assert "A" not in payload_of(app, job)["env"]


@pytest.mark.parametrize(
    "words", [[], ["--env", "=x"], ["--env", "NO_SUCH"], ["--cpus", "many"], ["--cpus", "0"], ["--memory", "much"]]
)
def test_a_change_that_makes_no_sense_is_refused(app, run, add, words):
    job = add("--", "true")
    assert run("set", str(job), *words, "-o", "json").code == 2
    assert app.views.get(job).state is State.READY


def test_only_programs_have_variables(app, run):
    app.enqueue("mail", {"to": 1})
    assert run("set", "1", "--env", "A=1").code == 2
    assert run("set", "1", "--priority", "5").code == 0


# -- presets -----------------------------------------------------------------------------------

FILE = """
[command]
memory = "2G"
retry = 1
cwd = "work"
log_cap = "1M"
env = {OMP_NUM_THREADS = "1"}
[profiles."train*"]
memory = "16G"
queue = "large"
"""


def test_values_come_from_the_file_and_say_so(app, call, run, add, here):
    """A flag before the profile of the label, that before the defaults of commands; each says where it came from."""
    (here / "holdfast.toml").write_text(FILE)
    file = here / "holdfast.toml"
    job = add("--retry", "3", "--", "train.sh")
    command = payload_of(app, job)
    assert (command["memory"], command["cwd"], command["log_cap"]) == (16 * 2**30, str(here / "work"), 2**20)
    assert (app.views.get(job).queue, app.views.get(job).max_attempts) == ("large", 4)
    assert command["env"]["OMP_NUM_THREADS"] == "1"
    assert command["origins"] == {
        "cwd": f"{file}: command.cwd",
        "env.OMP_NUM_THREADS": f"{file}: command.env.OMP_NUM_THREADS",
        "log_cap": f"{file}: command.log_cap",
        "memory": f"{file}: profiles.train*.memory",
        "queue": f"{file}: profiles.train*.queue",
        "retry": "--retry",
    }
    shown = run("show", str(job)).out
    assert f"16 GB  ({file}: profiles.train*.memory)" in shown
    assert "none  (default)" in shown
    assert "profiles.train*.memory" in run("config", "show", "--origin").out
    assert payload_of(app, add("--", "other"))["memory"] == 2**31


def test_ls_shows_directories(run, add, here, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    add("--", "true")
    assert str(here) in run("ls", "--cwd").out
    assert str(here) not in run("ls").out


def test_a_cap_that_nothing_here_enforces_is_refused(app, run, monkeypatch):
    monkeypatch.setenv("HOLDFAST_CAPS", "watch")
    answer = run("add", "-o", "json", "--memory", "1G", "--require-cap", "--", "true")
    assert (answer.code, app.views.count(Selector()).count) == (4, 0)
    assert run("add", "--require-cap", "--", "true").code == 2


@pytest.mark.parametrize("word", ["caf\udce9", "x" * 131_072, "é" * 65_536])
def test_a_word_that_no_program_can_be_given_is_refused(app, run, word):
    answer = run("add", "-o", "json", "--", "echo", word)
    assert (answer.code, bool(answer.document["error"]["hint"])) == (2, True)
    assert run("add", "-o", "json", "--env", f"A={word}", "--", "echo").code == 2
    assert app.views.count(Selector()).count == 0
    assert run("add", "--", "echo", "x" * 131_071).code == 0


# -- files -------------------------------------------------------------------------------------


def test_lines_are_objects_too(app, call, here):
    """What a line says outweighs the options; the others hold for all."""
    first = {"argv": ["echo", "a\u2028b"], "cwd": "/", "env": {"A": "1"}, "label": "l", "key": "k", "memory": "1G"}
    second = {"argv": ["true"], "after": "key=old", "retry": 0, "priority": 7, "hold": True, "delay": "1h"}
    old = call("add", "--key", "old", "--", "true").data["id"]
    (here / "list").write_text("\n".join(json.dumps(line, ensure_ascii=False) for line in (first, second)))
    assert call("add", "--from", "list", "--retry", "2", "--env", "B=2", "--env", "A=0").data["added"] == 2
    held, keyed = [app.views.get(job.id) for job in app.views.all(Selector()) if job.id != old]
    command = json.loads(keyed.payload)
    assert (keyed.label, keyed.key, keyed.max_attempts, command["cwd"]) == ("l", "k", 3, "/")
    assert (command["argv"], command["env"]["A"], command["env"]["B"]) == (["echo", "a\u2028b"], "1", "2")
    assert (command["origins"]["memory"], command["origins"]["env.B"]) == ("--from list", "--env")
    assert (str(held.state), held.max_attempts, held.priority) == ("held", 1, 7)


def test_all_bad_lines_are_named_and_nothing_is_added(app, run, here):
    lines = ["echo fine", '{"argv": []}', "echo 'open", '{"argv": ["x"], "memory": "much"}', '{"arg": []}', "[1]"]
    (here / "list").write_text("\n".join([*lines, '{"argv": ["x"], "cpus": "many"}', ""]))
    answer = run("add", "--from", "list", "-o", "json")
    error = answer.document["error"]
    assert answer.code == 2
    assert re.findall(r"line (\d)", error["message"]) == ["2", "3", "4", "5", "6", "7"]
    assert "6 lines cannot be added" in error["message"]
    assert app.views.count(Selector()).count == 0


# -- verbs -------------------------------------------------------------------------------------


def test_verbs_say_why_they_left_jobs_alone(app, run, add):
    job = add("--hold", "--", "true")
    assert "1 held; only what runs is ended" in run("kill", str(job)).out
    assert "1 held; only what has ended begins anew" in run("restart", str(job)).out


def test_a_kill_is_heard_at_once(app, run, add):
    """It does not wait for a heartbeat."""
    job = add("--", "sleep", "600")
    with app.worker(poll=0.05, plans=False):
        wait_until(lambda: app.views.get(job).state is State.RUNNING)
        assert run("kill", str(job)).code == 0
        wait_until(lambda: app.views.get(job).state is State.CANCELLED)
