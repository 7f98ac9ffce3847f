"""``audit-log`` and ``token``: every action on the command line is recorded."""

from __future__ import annotations

import os
import pwd

import pytest

UNITS = "tests.support.programs.batch_units:plain"


@pytest.fixture
def entries(run):
    """Answers (action, target, count, note) of each entry, the oldest first."""

    def call():
        logged = run("audit-log", "-o", "json").data["entries"]
        return [(each["action"], each["target"], each["count"], each["note"]) for each in reversed(logged)]

    return call


def test_every_action_on_jobs_is_written_down(run, app, entries):
    """An entry has the filter, the number of changed jobs and the note; a dry run leaves no entry."""
    app.enqueue("mail", {"to": 1}, label="a")
    run("cancel", "-l", "a", "--dry-run")
    assert entries() == []
    run("hold", "-l", "a", "--note", "the moon")
    run("set", "1", "--priority", "5")
    run("cancel", "--filter", "state=held")
    run("rm", "1")
    assert entries() == [
        ("hold", "label=a", 1, "the moon"),
        ("set", "id=1", 1, "priority=5"),
        ("cancel", "state=held", 1, None),
        ("rm", "id=1", 1, None),
    ]
    (first, *_) = run("audit-log", "-o", "json").data["entries"]
    assert first["via"] == "cli"


def test_queues_schedules_and_batches_too(run, app, entries):
    app.run(app.unit(name="count")(lambda n: None), [1], output="none")
    app.schedules.create("nightly", "mail", "@daily", payload={"to": 1})
    for arguments in (
        ["queue", "set", "q", "--limit", "3"],
        ["queue", "pause", "q", "--note", "why"],
        ["queue", "resume", "q"],
        ["schedule", "add", "other", "mail", "every 5m", "-p", '{"to": 1}'],
        ["schedule", "edit", "nightly", "--delay", "5m"],
        ["schedule", "pause", "nightly"],
        ["schedule", "resume", "nightly"],
        ["schedule", "trigger", "nightly"],
        ["schedule", "backfill", "nightly", "--from", "2d", "--dry-run"],
        ["schedule", "backfill", "nightly", "--from", "2d"],
        ["schedule", "rm", "other", "--yes"],
        ["batch", "rm", "1", "--yes"],
        ["drain"],
        ["drain", "--end"],
        ["emergency-stop", "--yes"],
    ):
        assert run(*arguments).code == 0, arguments
    assert [action for action, *_ in entries()] == [
        *("queue set", "queue pause", "queue resume", "schedule add", "schedule edit", "schedule pause"),
        *("schedule resume", "schedule trigger", "schedule backfill", "schedule rm", "batch rm"),
        *("drain", "resume --all", "emergency-stop"),
    ]


def test_new_work_and_whole_store_actions_are_recorded(run, app, entries, own_store, here, tmp_path):
    """K79: every change that a person makes has an entry; a job that exists already is none."""
    file = tmp_path / "copy.db"
    for arguments in (
        ["add", "--hold", "--label", "one", "--", "true"],
        ["add", "--hold", "--key", "k", "--callback", "true", "--", "true"],
        ["add", "--hold", "--key", "k", "--", "true"],
        ["sweep", "--hold", "--param", "a=1,2", "--", "echo", "{a}"],
        ["enqueue", "mail", "-p", '{"to": 1}'],
        ["run", "--", "true"],
        ["batch", "run", UNITS, "--range", "1-2"],
        ["token", "add", "ci"],
        ["db", "backup", file],
        ["db", "vacuum"],
        ["db", "migrate"],
    ):
        assert run(*arguments).code == 0, arguments
    recorded = entries()
    assert [(action, count, note) for action, _, count, note in recorded] == [
        ("add", 1, "one"),
        ("add", 1, "true"),
        ("add", 1, "callback"),
        ("add", 2, None),
        ("enqueue", 1, "mail"),
        ("run", 1, "true"),
        ("batch run", 1, UNITS),
        ("token add", None, "viewer"),
        ("db backup", None, None),
        ("db vacuum", None, None),
    ]
    targets = [target for _, target, *_ in recorded]
    assert targets[:2] == ["id=1", "id=2"]
    assert targets[6:9] == ["batch=1", "token=ci", f"file={file}"]


def test_entries_can_be_narrowed(run, app):
    run("queue", "pause", "mail", "--create")
    run("queue", "pause", "post", "--create")
    assert "queue=post" in run("audit-log").out
    assert [each["target"] for each in run("audit-log", "--about", "MAIL", "-o", "json").data["entries"]] == [
        "queue=mail"
    ]
    assert run("audit-log", "--actor", "nobody", "-o", "json").data["entries"] == []


def test_a_token_is_printed_once(run, app):
    """Later lists show only prefix, role and last use; a revoked token stays in the list."""
    secret = run("token", "add", "ci", "--role", "operator", "--quiet").out.strip()
    assert secret.startswith("hf_")
    (listed,) = run("token", "ls", "-o", "json").data["tokens"]
    assert (listed["name"], listed["role"], listed["prefix"]) == ("ci", "operator", secret[:11])
    assert secret[12:] not in run("token", "ls").out + run("audit-log").out
    assert run("token", "add", "ci").code == 9
    assert run("token", "rm", "ci", "--yes").code == 0
    assert "revoked" in run("token", "ls").out
    assert run("token", "rm", "ci").code == 3


def test_a_token_is_revoked_after_a_confirmation(run, entries):
    """Issue 22: without a terminal only with ``--yes``; an unknown name is refused either way."""
    run("token", "add", "ci")
    answer = run("token", "rm", "ci")
    assert (answer.code, answer.out) == (2, "")
    assert "this would revoke the token ci (hf_" in answer.err
    assert "--yes" in answer.err
    assert run("token", "rm", "nobody").code == 3
    assert [entry[0] for entry in entries()] == ["token add"]
    assert run("token", "rm", "ci", "--yes").code == 0
    assert run("token", "rm", "ci").code == 3


def test_an_entry_has_the_user_of_the_operating_system(run, app, monkeypatch):
    """By its uid: the name of a person comes from the environment, which everybody can change. The note stays theirs."""
    app.enqueue("mail", {"to": 1})
    monkeypatch.setenv("LOGNAME", "somebody-else")
    run("hold", "1", "--note", "the moon")
    (entry,) = run("audit-log", "-o", "json").data["entries"]
    user = f"{pwd.getpwuid(os.getuid()).pw_name} ({os.getuid()})"
    assert (entry["actor"], entry["os_user"], entry["note"]) == ("somebody-else", user, "the moon")
    heading, row = run("audit-log").out.splitlines()
    assert "OS USER" in heading
    assert user in row
    assert "DB USER" in run("audit-log", "-o", "wide").out
