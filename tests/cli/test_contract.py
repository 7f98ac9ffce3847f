"""The contract of the command line, for every command: one document, fixed exit codes, harmless text."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys

import pytest

import holdfast
from holdfast.cli.main import COMMANDS, cli
from holdfast.domain.access.roles import Role
from holdfast.errors.table import EXIT_CODES, error_classes
from holdfast.store.engine.backend import OLDEST_CODE, SCHEMA_VERSION
from tests.support.program import ROOT
from tests.support.reference import checker, generate

pytestmark = pytest.mark.usefixtures("own_store")

LEAVES = dict(generate.commands())


#: Arguments with which each command succeeds on a store whose job 1 is ready. A new command needs its own here.
GOOD = {
    ("ls",): [],
    ("show",): ["1"],
    ("why",): ["1"],
    ("enqueue",): ["mail", "-p", '{"to": 2}'],
    ("add",): ["true"],
    ("sweep",): ["--param", "a=1,2", "echo", "{a}"],
    ("kill",): ["1"],
    ("restart",): ["3"],
    ("wait",): ["3"],
    ("cancel",): ["1"],
    ("pause",): ["1"],
    ("resume",): ["2"],
    ("retry",): ["3"],
    ("hold",): ["1"],
    ("unhold",): ["2"],
    ("set",): ["1", "--priority", "5"],
    ("rm",): ["1"],
    ("batch", "run"): ["tests.support.programs.batch_units:greet", "--all"],
    ("batch", "ls"): [],
    ("batch", "show"): ["1"],
    ("batch", "units"): ["1"],
    ("batch", "history"): ["1"],
    ("batch", "attach"): ["1"],
    ("batch", "pause"): ["1"],
    ("batch", "resume"): ["1"],
    ("batch", "cancel"): ["1", "--yes"],
    ("batch", "retry-failed"): ["1"],
    ("batch", "rm"): ["1", "--yes"],
    ("schedule", "ls"): [],
    ("schedule", "show"): ["nightly"],
    ("schedule", "add"): ["other", "mail", "every 5m", "-p", '{"to": 2}'],
    ("schedule", "edit"): ["nightly", "--delay", "5m"],
    ("schedule", "pause"): ["nightly", "--note", "the moon"],
    ("schedule", "resume"): ["nightly"],
    ("schedule", "trigger"): ["nightly"],
    ("schedule", "preview"): ["30 2 * * *", "--tz", "Europe/Berlin"],
    ("schedule", "backfill"): ["nightly", "--from", "3d"],
    ("schedule", "history"): ["nightly"],
    ("schedule", "why"): ["nightly", "2030-01-01T00:00:00Z"],
    ("schedule", "rm"): ["nightly", "--yes"],
    ("queue", "ls"): [],
    ("queue", "show"): ["default"],
    ("queue", "set"): ["default", "--limit", "3"],
    ("queue", "pause"): ["default"],
    ("queue", "resume"): ["default"],
    ("queue", "rm"): ["spare"],
    ("inbox", "ls"): [],
    ("inbox", "show"): ["results"],
    ("workers",): [],
    ("audit-log",): [],
    ("errors",): [],
    ("token", "add"): ["ci"],
    ("token", "ls"): [],
    ("token", "rm"): ["old", "--yes"],
    ("token", "link"): [],
    ("token", "sign-out"): ["old"],
    ("down",): [],
    ("service", "install"): ["--dry-run"],
    ("top",): [],
    ("doctor",): [],
    ("audit",): [],
    ("autoscaler", "status"): [],
    ("size",): ["--memory", "1G"],
    ("drain",): [],
    ("emergency-stop",): ["--yes"],
    ("db", "migrate"): [],
    ("db", "check"): [],
    ("db", "vacuum"): [],
    ("db", "commands"): [],
    ("db", "secrets"): [],
    ("config", "show"): ["--origin"],
    ("exit-codes",): [],
    ("completion",): ["fish"],
    ("explain",): ["E_LEASE_LOST"],
}
#: Their exit codes, if not 0: a cancelled job, and actions that can change nothing.
CODES = {
    ("wait",): 12,
    **dict.fromkeys([("kill",), *(("batch", name) for name in ("pause", "resume", "cancel", "retry-failed"))], 9),
}
#: Commands that run until a signal, or need more than a store; they have their own tests.
ELSEWHERE = {
    ("web",),
    ("ask",),
    ("worker",),
    ("scheduler",),
    ("run",),
    ("log",),
    ("up",),
    ("status",),
    ("service", "uninstall"),
    ("batch", "export"),
    ("db", "backup"),
    ("db", "copy"),
    ("db", "roles"),
    ("inbox", "take"),
    ("inbox", "accept"),
    ("inbox", "refuse"),
    ("files", "append"),
    ("files", "write"),
}
#: Commands that need no store; ``doctor`` reports an unreachable store as a finding.
STORELESS = {
    ("doctor",),
    ("down",),
    ("service", "install"),
    ("completion",),
    ("config", "show"),
    ("exit-codes",),
    ("explain",),
    ("schedule", "preview"),
    ("size",),
}


@pytest.fixture
def populated(app):
    app.enqueue("mail", {"to": 1})
    app.enqueue("broken", hold=True)
    done = app.enqueue("mail", {"to": 3}, hold=True)
    app.control.cancel(holdfast.Selector(ids=(done.id,)), actor="ada")
    app.run(app.unit(name="count")(lambda n: None), [1, 2], output="none")
    app.schedules.create("nightly", "mail", "@daily", payload={"to": 1})
    app.store.queues.set_limits("spare", limit=1)
    app.store.credentials.add("old", Role.VIEWER, actor="ada")
    return app


def test_every_command_has_arguments_here():
    """A new command needs arguments in this test."""
    assert set(LEAVES) == set(GOOD) | ELSEWHERE
    assert {path[0] for path in LEAVES} == {name for commands in COMMANDS.values() for name in commands}


@pytest.mark.parametrize("path", GOOD, ids=" ".join)
def test_success_is_one_document(run, populated, path):
    """It matches the schema; in NDJSON each item is a line, and the last line is the summary."""
    answer = run("-o", "json", *path, *GOOD[path])
    assert answer.code == CODES.get(path, 0), answer.err
    assert answer.document["status"] == ("error" if answer.code == 9 else "success")
    checker(path).validate(answer.document)
    lines = run(*path, "-o", "ndjson", *GOOD[path]).lines
    for line in lines if path != ("batch", "run") else lines[-1:]:
        checker(path, "line").validate(line)
    assert lines[-1]["_meta"]["status"] in ("success", "error")
    assert lines[-1]["_meta"]["lines"] == len(lines) - 1


@pytest.mark.one_backend
@pytest.mark.parametrize("path", GOOD, ids=" ".join)
def test_a_bad_flag_is_one_document_too(run, path):
    answer = run(*path, "--no-such-flag", "-o", "json", *GOOD[path])
    checker(path).validate(answer.document)
    assert (answer.code, answer.document["error"]["code"]) == (2, "E_USAGE")
    assert answer.document["error"]["next"].endswith("--help")


@pytest.mark.one_backend
@pytest.mark.parametrize("path", sorted(set(GOOD) - STORELESS), ids=" ".join)
def test_a_store_that_does_not_answer_is_exit_5(run, path):
    answer = run(*path, "-o", "json", "--url", "postgresql://nobody@/none?host=/nowhere", *GOOD[path])
    checker(path).validate(answer.document)
    assert (answer.code, answer.document["status"]) == (5, "error")


@pytest.mark.parametrize("path", sorted(set(GOOD) - STORELESS), ids=" ".join)
def test_a_newer_schema_is_exit_4(run, real_database, path):
    real_database.execute("UPDATE holdfast.meta SET version = 999, oldest_code = 999")
    try:
        answer = run(*path, "-o", "json", *GOOD[path])
    finally:
        real_database.execute(f"UPDATE holdfast.meta SET version = {SCHEMA_VERSION}, oldest_code = {OLDEST_CODE}")
    checker(path).validate(answer.document)
    assert (answer.code, answer.document["error"]["code"]) == (4, "E_SCHEMA_TOO_NEW")


@pytest.mark.one_backend
@pytest.mark.parametrize("path", sorted(path for path in GOOD if LEAVES[path].changes), ids=" ".join)
def test_a_change_requires_the_configured_key(run, populated, monkeypatch, path):
    """Exit 4 without a key or with another one; nothing changes."""
    monkeypatch.setenv("HOLDFAST_API_KEY_SHA256", hashlib.sha256(b"sesame").hexdigest())
    before = run("show", "1", "-o", "json").data
    for key in ("", "open"):
        monkeypatch.setenv("HOLDFAST_API_KEY", key)
        answer = run(*path, "-o", "json", *GOOD[path])
        assert (answer.code, answer.document["error"]["code"]) == (4, "E_REFUSED")
    assert run("show", "1", "-o", "json").data == before
    monkeypatch.setenv("HOLDFAST_API_KEY", "sesame")
    assert run(*path, *GOOD[path]).code == CODES.get(path, 0)


@pytest.mark.one_backend
@pytest.mark.parametrize(
    "arguments", [["show", "999"], ["why", "999"], ["wait", "999"], ["cancel", "999"], ["rm", "999"]]
)
def test_no_match_is_exit_3(run, arguments):
    answer = run(*arguments, "-o", "json")
    assert (answer.code, answer.document["error"]["code"]) == (3, "E_NO_SUCH_JOB")


@pytest.mark.one_backend
@pytest.mark.parametrize("action", ["cancel", "pause", "resume", "retry", "hold", "unhold", "rm", "wait"])
def test_no_action_without_a_selector(run, populated, action):
    assert run(action).code == 2


def test_every_exit_code_of_an_error_is_in_the_table():
    assert {error.exit_code for error in error_classes()} <= set(EXIT_CODES)


@pytest.mark.one_backend
def test_shared_options_work_anywhere_on_the_line(run, populated):
    """They may come before or after the command; the last one counts."""
    assert run("-o", "json", "ls").data == run("ls", "-o", "json").data
    assert run("-o", "json", "token", "ls").data == run("token", "-o", "json", "ls").data
    assert run("-o", "json", "ls", "-o", "ndjson").lines[-1]["_meta"]["lines"] == 3


@pytest.mark.one_backend
def test_text_is_harmless(run, populated, monkeypatch):
    """Control characters are escaped."""
    monkeypatch.setenv("COLUMNS", "200")
    populated.control.unhold(holdfast.Selector(ids=(2,)), actor="ada")
    populated.worker(drain=True, poll=0.02).run()
    for arguments in (["ls"], ["show", "2"]):
        assert "\x1b" not in run(*arguments).out
        assert "\\x1b[3" in run(*arguments).out


def test_a_closed_pipe_ends_quietly(real_database, populated):
    """``| head -1`` (SPEC 8.21)."""
    populated.store.jobs.enqueue_many([populated.request("mail", {"to": n}, {}) for n in range(5000)])
    line = f"{sys.executable} -m holdfast ls --all -o ndjson --url '{real_database.url}' | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    first, code = done.stdout.splitlines()
    assert json.loads(first)["kind"] == "mail"
    assert (code, done.stderr) == ("0", "")


#: Modules of Holdfast that a short command imports, at most. Each costs up to 1 % of its start.
MAX_MODULES = {"--help": 13, "ls": 58}
#: Modules that take milliseconds to import. Neither the help nor a list needs them.
SLOW = {
    *["rich", "psycopg", "asyncio", "starlette", "prometheus_client", "socket", "hashlib", "json", "tomllib", "logging"]
}


def loaded_by(word, folder):
    """The modules that a command imports, on a store with a job."""
    url = f"sqlite:///{folder}/jobs.db"
    with holdfast.Holdfast(url) as app:
        app.job(name="mail")(lambda: None).enqueue()
    code = f"import sys; sys.argv = ['holdfast', '{word}']\ntry:\n import holdfast.cli.main as c; c.main()\nexcept SystemExit: pass\nprint(*sys.modules)"
    # In an empty folder: a pyproject.toml beside it would be read.
    env = {**os.environ, "HOLDFAST_URL": url}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, env=env, cwd=folder
    )
    assert done.stderr == ""
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("word", MAX_MODULES)
def test_a_short_command_loads_little(word, tmp_path):
    """It imports few modules of Holdfast, no other driver, no rich and no event loop."""
    loaded = loaded_by(word, tmp_path)
    assert not loaded & SLOW
    assert len([name for name in loaded if name.startswith("holdfast")]) <= MAX_MODULES[word]


def test_help_loads_no_settings(tmp_path):
    """The settings need msgspec and pathlib, a third of the time of the help."""
    assert not loaded_by("--help", tmp_path) & {"holdfast.settings", "msgspec", "pathlib", "sqlite3"}


def test_a_list_loads_no_rules_that_it_does_not_apply(tmp_path):
    """A list without commands and running jobs needs neither history nor reasons nor the rules of commands."""
    rooms = ("domain.jobs.history", "domain.jobs.why", "domain.commands.command", "domain.schedules.", "store.fleet.")
    prefixes = tuple(f"holdfast.{room}" for room in rooms)
    assert not [name for name in loaded_by("ls", tmp_path) if name.startswith(prefixes)]


def test_an_internal_error_is_one_document_too(run, monkeypatch):
    """The traceback goes to stderr."""
    monkeypatch.setitem(cli._lazy, "nothing", "look:nothing")  # there is no such function
    answer = run("nothing", "-o", "json")
    assert (answer.code, answer.document["error"]["code"]) == (1, "E_INTERNAL")
    assert "Traceback" in answer.err
