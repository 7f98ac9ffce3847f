"""``add``: options, dependencies, callbacks, files and presets."""

from __future__ import annotations

import json
import os
import re
import sys

import pytest

from holdfast import Selector
from holdfast.domain.fleet.queue import Bounds
from holdfast.domain.jobs.verdict import Failed
from tests.cli.conftest import payload_of
from tests.support.jobs import take_one
from tests.support.processes import wait_until
from tests.worker.commands.test_executor import drain

pytestmark = pytest.mark.usefixtures("here")


def test_a_command_is_added_and_runs(app, call, run, here):
    added = call("add", "--", "echo", "hello", "world").data
    assert (added["added"], app.views.get(added["id"]).label) == (1, "echo")
    assert payload_of(app, added["id"])["cwd"] == str(here)
    drain(app)
    assert call("log", str(added["id"])).data["text"] == "hello world\n"
    assert run("log", str(added["id"]), "-n", "1").out == "hello world\n"
    assert run("add", "--quiet", "--", "true").out.strip().isdecimal()


def test_all_options_reach_the_job(app, call):
    first = call("add", "--hold", "--", "true").data["id"]
    arguments = [
        "--label",
        "l",
        "--queue",
        "slow",
        "--priority",
        "3",
        "--retry",
        "2",
        "--timeout",
        "1h",
        "--memory",
        "1G",
    ]
    arguments += ["--tag", "a", "--tag", "b,c"]
    arguments += ["--cpus", "0.5", "--require-cap", "--env", "A=b=c", "--key", "k", "--after", f"finished:{first}"]
    job = app.views.get(call("add", *arguments, "--delay", "2h", "--", "make", "-j2").data["id"])
    assert (job.label, job.queue, job.priority, job.max_attempts, job.key) == ("l", "slow", 3, 3, "k")
    assert json.loads(job.tags) == ["a", "b,c"]
    assert (str(job.after_when), str(job.state)) == ("finished", "waiting")
    command = json.loads(job.payload)
    assert (command["argv"], command["memory"], command["cpus"]) == (["make", "-j2"], 2**30, 0.5)
    assert (command["timeout"], command["require_cap"], command["env"]["A"]) == ("PT3600S", True, "b=c")


def test_the_environment_goes_with_it_by_name(app, call, monkeypatch):
    """Only PATH and similar variables and those named by --env."""
    monkeypatch.setenv("SECRET_TOKEN", "x")
    monkeypatch.setenv("LANG", "C.UTF-8")
    plain = payload_of(app, call("add", "--", "true").data["id"])["env"]
    assert plain["PATH"] == os.environ["PATH"]
    assert "SECRET_TOKEN" not in plain
    named = call("add", "--env", "SECRET_TOKEN", "--", "true").data["id"]
    assert payload_of(app, named)["env"]["SECRET_TOKEN"] == "x"
    shown = call("show", str(named)).data["job"]["payload"]["env"]
    assert (shown["SECRET_TOKEN"], shown["LANG"]) == ("***", "C.UTF-8")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["add"], "E_INVALID"),
        (["add", "--env", "NO_SUCH_VARIABLE", "--", "true"], "E_INVALID"),
        (["add", "--env", "=x", "--", "true"], "E_INVALID"),
        (["add", "--memory", "much", "--", "true"], "E_INVALID"),
        (["add", "--cpus", "0", "--", "true"], "E_INVALID"),
        (["add", "--after", "nobody", "--", "true"], "E_INVALID"),
        (["add", "--delay", "soon", "--", "true"], "E_INVALID"),
        (["add", "--from", "nowhere.txt"], "E_INVALID"),
        (["add", "--shell", "--from", "nowhere.txt", "--", "true"], "E_INVALID"),
        (["add", "--shell"], "E_INVALID"),
        (["sweep", "--", "echo", "{a}"], "E_INVALID"),
        (["sweep", "--param", "a=1", "--", "echo"], "E_INVALID"),
        (["sweep", "--param", "a=1", "--", "echo", "{b}"], "E_INVALID"),
        (["sweep", "--param", "a=1", "--param", "a=2", "--", "echo", "{a}"], "E_INVALID"),
        (["sweep", "--param", "a b=1", "--", "echo", "{a}"], "E_INVALID"),
    ],
)
def test_invalid_arguments_are_refused(run, app, arguments, code):
    answer = run(arguments[0], "-o", "json", *arguments[1:])
    assert (answer.code, answer.document["error"]["code"]) == (2, code)
    assert app.views.count(Selector()).count == 0


def test_an_unknown_dependency_is_refused(run):
    answer = run("add", "--after", "99", "-o", "json", "--", "true")
    assert (answer.code, answer.document["error"]["code"]) == (3, "E_DEPENDENCY_NOT_FOUND")


def test_all_dependencies_share_one_condition(run, call):
    first, second = (call("add", "--", "true").data["id"] for _ in range(2))
    answer = run("add", "--after", f"ok:{first}", "--after", f"failed:{second}", "-o", "json", "--", "true")
    assert answer.code == 2


def test_labels_keys_and_queues_are_waited_for(app, call):
    call("add", "-l", "nightly", "-q", "slow", "--key", "k", "--", "true")
    for has_dependents in ("label=nightly", "key=k", "queue=slow"):
        assert str(app.views.get(call("add", "--after", has_dependents, "--", "true").data["id"]).state) == "waiting"


def test_a_file_of_commands_is_added_at_once(app, call, here):
    """A line is split as a shell splits it, without expansion, or is a JSON list."""
    (here / "list").write_text("echo 'a b' '$(id)'\n# a comment\n\n[\"echo\", \"x; y\"]\n")
    assert call("add", "--from", "list").data["added"] == 2
    argvs = [json.loads(job.payload)["argv"] for job in app.views.all(Selector())]
    assert argvs == [["echo", "x; y"], ["echo", "a b", "$(id)"]]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("echo a", ["add", "--from", "file"]),
        ('["echo", "a"]', ["add", "--from", "file"]),
        ('{"argv": ["echo", "a"]}', ["add", "--from", "file"]),
        ("word\na", ["sweep", "--csv", "file", "--", "echo", "{word}"]),
        ('{"to": 7}', ["enqueue", "mail", "-p", "@file"]),
    ],
)
def test_a_byte_order_mark_is_no_part_of_a_file(app, call, here, text, arguments, end):
    """D9: files that were saved on Windows."""
    (here / "file").write_bytes(b"\xef\xbb\xbf" + (text + end).replace("\n", end).encode())
    job = app.views.get(call(*arguments).data["id"])
    payload = json.loads(job.payload)
    assert payload.get("argv", ["echo", "a"]) == ["echo", "a"]
    assert payload.get("to", 7) == 7


def test_a_bad_line_is_reported_and_nothing_is_added(run, app, here):
    (here / "list").write_text("echo fine\necho 'open\n")
    answer = run("add", "-o", "json", "--from", "list")
    assert (answer.code, "line 2" in answer.document["error"]["message"]) == (2, True)
    assert app.views.count(Selector()).count == 0


def test_a_shell_runs_only_with_the_option(app, call):
    job = call("add", "--shell", "--", "echo $((1 + 1)) | cat").data["id"]
    drain(app)
    assert call("log", str(job)).data["text"] == "2\n"


def test_a_callback_receives_the_result(app, call, tmp_path):
    """Each value is one argument, whatever it contains; no shell reads it."""
    out = tmp_path / "arguments"
    code = "import json, sys; print(json.dumps(sys.argv[1:]), file=open(sys.argv[1], 'a'))"
    callback = f"{sys.executable} -c '{code.replace(chr(39), chr(34))}' {out} {{id}} {{label}} {{result}} {{exit_code}} {{output}}"
    nasty = "$(touch pwned); `touch pwned`"
    call("add", "--label", nasty, "--callback", callback, "--", "sh", "-c", "echo '; touch pwned'; exit 3")
    drain(app)
    assert json.loads(out.read_text())[1:] == ["1", nasty, "dead", "3", "; touch pwned\n"]
    assert not list(tmp_path.rglob("pwned"))


@pytest.mark.parametrize("autoscaled", [False, True])
def test_a_callback_runs_although_its_queue_is_paused(app, call, here, autoscaled):
    """E5.8: --pause-queue-on-failure kept the callback of the failed job from running."""
    if autoscaled:
        app.store.autoscaler.set_bounds("default", Bounds(1, 4))
    callback = f'{sys.executable} -c \'open("told", "w").write("{{id}}")\''
    job = call("add", "--pause-queue-on-failure", "--callback", callback, "--", "false").data["id"]
    lease = take_one(app.store, kinds=("command",))
    app.store.leases.settle(lease, Failed(error="exit 1", permanent=True))
    other = call("add", "--", "touch", "started").data["id"]
    with app.worker(commands=True, poll=0.05, plans=False):
        wait_until(lambda: (here / "told").exists() and (here / "told").read_text() == str(job))
    assert str(app.views.get(other).state) == "ready"
    assert not (here / "started").exists()


def test_an_unknown_placeholder_of_a_callback_is_refused(run, app):
    assert run("add", "-o", "json", "--callback", "notify {who}", "--", "true").code == 2
    assert app.views.count(Selector()).count == 0


@pytest.mark.parametrize("syntax", ["> told", "&& echo", "| cat", "$HOME"])
def test_a_callback_with_shell_syntax_is_refused(run, call, app, syntax):
    """E5.2: notify {id} > told ran as words, and no file was written."""
    refused = run("add", "--callback", f"notify {{id}} {syntax}", "--", "true")
    assert (refused.code, "sh -c" in refused.err) == (2, True)
    assert app.views.count(Selector()).count == 0
    call("add", "--callback", f"sh -c 'notify $1 {syntax}' - {{id}}", "--", "true")


def test_a_queue_is_paused_when_one_fails_for_good(app, call):
    """The other jobs of the queue wait until somebody resumes it."""
    app.queues.set_limits("slow", limit=1)
    for code in (0, 1, 0):
        call("add", "-q", "slow", "--pause-queue-on-failure", "--", "sh", "-c", f"exit {code}")
    with app.worker(commands=True, poll=0.05, queues=["slow"], slots=1):
        wait_until(lambda: app.queues.get("slow").paused)
    assert app.queues.get("slow").note == "job 2 failed (exit_1)"


def test_an_unserved_queue_is_reported(app, run):
    with app.worker(commands=True, queues=["default"], poll=0.05):
        wait_until(app.store.workers.list)
        assert "no worker that is alive serves the queue 'slow'" in run("add", "-q", "slow", "--", "true").err


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


def test_presets_of_the_file_and_their_origins(app, call, run, add, here):
    """A flag beats the profile of the label, which beats the defaults; each value records its origin."""
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


def test_a_cap_that_nothing_here_enforces_is_refused(app, run, monkeypatch):
    monkeypatch.setenv("HOLDFAST_CAPS", "watch")
    answer = run("add", "-o", "json", "--memory", "1G", "--require-cap", "--", "true")
    assert (answer.code, app.views.count(Selector()).count) == (4, 0)
    assert run("add", "--require-cap", "--", "true").code == 2


@pytest.mark.parametrize("argument", ["caf\udce9", "x" * 131_072, "é" * 65_536])
def test_an_argument_that_is_too_long_or_not_utf_8_is_refused(app, run, argument):
    answer = run("add", "-o", "json", "--", "echo", argument)
    assert (answer.code, bool(answer.document["error"]["hint"])) == (2, True)
    assert run("add", "-o", "json", "--env", f"A={argument}", "--", "echo").code == 2
    assert app.views.count(Selector()).count == 0
    assert run("add", "--", "echo", "x" * 131_071).code == 0


def test_lines_are_objects_too(app, call, here):
    """Fields of a line take precedence over the options."""
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


def test_a_program_that_calls_holdfast_uses_the_same_store(app, call, run, here, monkeypatch):
    """E5.3: it used the default store of its directory; now it also knows its job."""
    (here / "elsewhere").mkdir()
    (here / "elsewhere" / "holdfast.toml").write_text('url = "sqlite:///other.db"')
    monkeypatch.delenv("HOLDFAST_URL")
    script = f"{sys.executable} -m holdfast add -l $HOLDFAST_LABEL-$HOLDFAST_QUEUE-$HOLDFAST_JOB_ID-$HOLDFAST_ATTEMPT -q slow --hold true"
    script += f"; {sys.executable} -m holdfast log -n 1 $HOLDFAST_JOB_ID"
    line = [
        "--url",
        app.url,
        "-l",
        "outer",
        "-q",
        "slow",
        "--cwd",
        "elsewhere",
        "--env",
        "PYTHONPATH",
        "--shell",
        script,
    ]
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    outer = call("add", *line).data["id"]
    drain(app, queues=["slow"])
    (inner,) = app.views.all(Selector(labels=("outer-*",)))
    assert inner.label == f"outer-slow-{outer}-1"
    text = run("log", "--url", app.url, outer).out
    assert text.splitlines()[0] == text.splitlines()[1] == f"job {inner.id}"
    assert not (here / "elsewhere" / "other.db").exists()
