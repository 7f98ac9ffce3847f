"""The contract of the command line, for every command: one document, fixed exit codes, harmless text."""

from __future__ import annotations

import json
import subprocess
import sys

import click
import pytest

from holdfast.cli import COMMANDS, cli
from holdfast.cli.about import all_errors
from holdfast.cli.exits import EXITS
from tests.support.program import ROOT


def leaves(group=cli, path=()):
    """All commands of the tree, by their words."""
    with click.Context(group) as ctx:
        for name in group.list_commands(ctx):
            found = group.get_command(ctx, name)
            if isinstance(found, click.Group):
                yield from leaves(found, (*path, name))
            else:
                yield (*path, name)


#: Words that make each command succeed on a store whose job 1 is ready. A new command needs its own here.
GOOD = {
    ("ls",): [],
    ("show",): ["1"],
    ("why",): ["1"],
    ("enqueue",): ["mail", "-p", '{"to": 2}'],
    ("wait",): ["3"],
    ("cancel",): ["1"],
    ("pause",): ["1"],
    ("resume",): ["1"],
    ("retry",): ["1"],
    ("hold",): ["1"],
    ("unhold",): ["1"],
    ("set",): ["1", "--priority", "5"],
    ("rm",): ["1"],
    ("queue", "ls"): [],
    ("queue", "show"): ["default"],
    ("queue", "set"): ["default", "--limit", "3"],
    ("queue", "pause"): ["default"],
    ("queue", "resume"): ["default"],
    ("workers",): [],
    ("config", "show"): ["--origin"],
    ("exit-codes",): [],
    ("completion",): ["fish"],
    ("explain",): ["E_LEASE_LOST"],
}
#: A worker runs until it is told to stop: it has tests of its own.
ELSEWHERE = {("worker",)}
#: Commands that need no store.
STORELESS = {("completion",), ("config", "show"), ("exit-codes",), ("explain",)}


@pytest.fixture
def filled(app):
    app.enqueue("mail", {"to": 1})
    app.enqueue("broken", hold=True)
    done = app.enqueue("mail", {"to": 3}, hold=True)
    app.control.cancel(__import__("holdfast").Selector(ids=(done.id,)), actor="ada")
    return app


def test_every_command_is_in_the_walk():
    """So that a new one cannot escape."""
    assert set(leaves()) == set(GOOD) | ELSEWHERE
    assert {path[0] for path in leaves()} == set(COMMANDS)


@pytest.mark.parametrize("path", GOOD, ids=" ".join)
def test_success_is_one_document(run, filled, path):
    """With the envelope; line by line in ndjson, the last line being the summary."""
    answer = run("-o", "json", *path, *GOOD[path])
    assert answer.code == (12 if path == ("wait",) else 0), answer.err
    assert answer.document.keys() == {"status", "schema_version", "data", "error", "meta"}
    assert answer.document["status"] == "success"
    lines = run(*path, *GOOD[path], "-o", "ndjson").lines
    assert lines[-1]["_meta"]["status"] in ("success", "error")
    assert lines[-1]["_meta"]["lines"] == len(lines) - 1


@pytest.mark.parametrize("path", GOOD, ids=" ".join)
def test_a_bad_flag_is_one_document_too(run, path):
    answer = run(*path, *GOOD[path], "--no-such-flag", "-o", "json")
    assert (answer.code, answer.document["error"]["code"]) == (2, "E_USAGE")
    assert answer.document["error"]["next"].endswith("--help")


@pytest.mark.parametrize("path", sorted(set(GOOD) - STORELESS), ids=" ".join)
def test_a_store_that_does_not_answer_is_exit_5(run, path):
    answer = run(*path, *GOOD[path], "-o", "json", "--url", "postgresql://nobody@/none?host=/nowhere")
    assert (answer.code, answer.document["status"]) == (5, "error")


@pytest.mark.parametrize("path", sorted(set(GOOD) - STORELESS), ids=" ".join)
def test_a_newer_schema_is_exit_4(run, real_database, path):
    real_database.execute("UPDATE holdfast.meta SET version = 999, oldest_code = 999")
    try:
        answer = run(*path, *GOOD[path], "-o", "json")
    finally:
        real_database.execute("UPDATE holdfast.meta SET version = 1, oldest_code = 1")
    assert (answer.code, answer.document["error"]["code"]) == (4, "E_SCHEMA_TOO_NEW")


@pytest.mark.parametrize("words", [["show", "999"], ["why", "999"], ["wait", "999"], ["cancel", "999"], ["rm", "999"]])
def test_what_matches_nothing_is_exit_3(run, words):
    answer = run(*words, "-o", "json")
    assert (answer.code, answer.document["error"]["code"]) == (3, "E_NO_SUCH_JOB")


@pytest.mark.parametrize("verb", ["cancel", "pause", "resume", "retry", "hold", "unhold", "rm", "wait"])
def test_no_verb_takes_silence_for_everything(run, filled, verb):
    assert run(verb).code == 2


def test_every_exit_code_of_an_error_is_in_the_table():
    assert {error.exit_code for error in all_errors()} <= set(EXITS)


def test_shared_options_stand_where_one_likes(run, filled):
    """Before and after the command; the last one counts."""
    assert run("-o", "json", "ls").data == run("ls", "-o", "json").data
    assert run("-o", "json", "queue", "ls").data == run("queue", "-o", "json", "ls").data
    assert run("-o", "json", "ls", "-o", "ndjson").lines[-1]["_meta"]["lines"] == 3


def test_text_is_harmless(run, filled):
    """What a terminal would obey is shown, not sent."""
    filled.control.unhold(__import__("holdfast").Selector(ids=(2,)), actor="ada")
    filled.worker(drain=True, poll=0.02).run()
    for words in (["ls"], ["show", "2"]):
        assert "\x1b" not in run(*words).out
        assert "\\x1b[3" in run(*words).out


def test_a_closed_pipe_ends_quietly(real_database, filled):
    """``| head -1`` (SPEC 8.21)."""
    filled.store.jobs.enqueue_many([filled.request("mail", {"to": n}, {}) for n in range(5000)])
    line = f"{sys.executable} -m holdfast ls --all -o ndjson --url '{real_database.url}' | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    first, code = done.stdout.splitlines()
    assert json.loads(first)["kind"] == "mail"
    assert (code, done.stderr) == ("0", "")


def test_help_loads_little():
    """No driver, no rich, no loop: help answers at once."""
    code = "import sys; sys.argv = ['holdfast', '--help']\ntry:\n import holdfast.cli as c; c.main()\nexcept SystemExit: pass\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not loaded & {"rich", "psycopg", "asyncio", "starlette", "prometheus_client", "sqlite3"}
