"""``acts``, ``token`` and ``ask``; and that every verb of the line is written down."""

from __future__ import annotations

import pytest

from holdfast.domain.jobs.job import WorkerId
from holdfast.errors import NotFound


@pytest.fixture
def acts(run):
    """Answers (verb, target, count, note) of each act, the oldest first."""

    def call():
        found = run("acts", "-o", "json").data["acts"]
        return [(act["action"], act["target"], act["count"], act["note"]) for act in reversed(found)]

    return call


def test_every_verb_on_jobs_is_written_down(run, app, acts):
    """With the filter that chose them, how many were changed, and why; a dry run is not."""
    app.enqueue("mail", {"to": 1}, label="a")
    run("cancel", "-l", "a", "--dry-run")
    assert acts() == []
    run("hold", "-l", "a", "--note", "the moon")
    run("set", "1", "--priority", "5")
    run("cancel", "--filter", "state=held")
    run("rm", "1")
    assert acts() == [
        ("hold", "label=a", 1, "the moon"),
        ("set", "id=1", 1, "priority=5"),
        ("cancel", "state=held", 1, None),
        ("rm", "id=1", 1, None),
    ]
    (first, *_) = run("acts", "-o", "json").data["acts"]
    assert first["via"] == "cli"


def test_queues_schedules_and_batches_too(run, app, acts):
    app.run(app.unit(name="count")(lambda n: None), [1], output="none")
    app.schedules.create("nightly", "mail", "@daily", payload={"to": 1})
    for words in (
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
        ["batch", "rm", "1"],
        ["drain"],
        ["drain", "--end"],
        ["emergency-stop", "--yes"],
    ):
        assert run(*words).code == 0, words
    assert [action for action, *_ in acts()] == [
        *("queue set", "queue pause", "queue resume", "schedule add", "schedule edit", "schedule pause"),
        *("schedule resume", "schedule trigger", "schedule backfill", "schedule rm", "batch rm"),
        *("drain", "drain --end", "emergency-stop"),
    ]


def test_acts_can_be_narrowed(run, app):
    run("queue", "pause", "mail")
    run("queue", "pause", "post")
    assert "queue=post" in run("acts").out
    assert [act["target"] for act in run("acts", "--about", "MAIL", "-o", "json").data["acts"]] == ["queue=mail"]
    assert run("acts", "--actor", "nobody", "-o", "json").data["acts"] == []


def test_a_token_is_printed_once(run, app):
    """Then only its prefix, role and use are seen; a revoked one stays in the list."""
    text = run("token", "add", "ci", "--role", "operator", "--quiet").out.strip()
    assert text.startswith("hf_")
    (found,) = run("token", "ls", "-o", "json").data["tokens"]
    assert (found["name"], found["role"], found["prefix"]) == ("ci", "operator", text[:11])
    assert text[12:] not in run("token", "ls").out + run("acts").out
    assert run("token", "add", "ci").code == 9
    assert run("token", "rm", "ci").code == 0
    assert "revoked" in run("token", "ls").out
    assert run("token", "rm", "ci").code == 3


def test_a_worker_is_asked(run, app, fitting):
    """By its id; one that is not alive is exit 3."""
    worker = WorkerId("w-1")
    app.store.workers.announce(worker, host="h", pid=1, queues=["default"], kinds=["mail"], slots=4)
    assert fitting(("ask",), worker, "quiet").data == {"worker": "w-1", "request": "quiet"}
    assert app.store.workers.heartbeat(worker).requested == "quiet"
    assert "quiet" in run("workers").out
    assert run("ask", worker, "go-on").code == 0
    assert app.store.workers.heartbeat(worker).requested is None
    assert run("ask", "nobody", "stop").code == NotFound.exit_code


def test_secrets_are_not_shown(run, app):
    """By name or by declaration, in ``show`` and ``ls``, in the error too."""

    @app.job(secrets=["iban"], max_attempts=1)
    def pay(iban: str, password: str) -> None:
        raise ValueError(f"cannot pay {iban} with {password}")

    app.enqueue("pay", {"iban": "DE02-1234", "password": "hunter22"})
    app.worker(drain=True, poll=0.02).run()
    for words in (["show", "1"], ["show", "1", "-o", "json"], ["ls"], ["ls", "-o", "json"]):
        out = run(*words).out
        assert "hunter22" not in out
        assert "DE02-1234" not in out
        assert "***" in out
