"""``enqueue``."""

from __future__ import annotations

import io
import json
import os

import pytest

import holdfast
from holdfast import Selector
from tests.cli.conftest import run_process
from tests.support.jobs import claim_jobs

SHOP = """
import holdfast

app = holdfast.Holdfast()

@app.job()
def mail(to: int) -> None: ...
"""


def test_enqueue_uses_the_options_of_the_kind(run, app):
    """Queue, attempts and other options come from the registered kind."""
    answer = run("enqueue", "broken", "-o", "json")
    job = app.get(answer.data["id"]).job()
    assert (job.queue, job.max_attempts, answer.data["created"]) == ("slow", 1, True)


def test_enqueue_takes_options(run, app, tmp_path):
    (tmp_path / "p.json").write_text('{"to": 7}')
    arguments = ["--delay", "1h", "--label", "nightly", "--priority", "4", "--key", "seven", "-q", "other"]
    first = run("enqueue", "mail", "-p", f"@{tmp_path}/p.json", *arguments, "-o", "json").data
    again = run("enqueue", "mail", "-p", '{"to": 7}', "--key", "seven", "-o", "json").data
    job = app.get(first["id"]).job()
    assert (job.label, job.priority, job.key, job.queue, job.state) == ("nightly", 4, "seven", "other", "scheduled")
    assert again == {**first, "created": False, "outcome": "existing", "queue": "default"}


def test_the_application_of_the_configuration_knows_its_kinds(real_database, tmp_path):
    """Before its first worker; without a file for SQLite, and without the tables for PostgreSQL."""
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "holdfast.toml").write_text(f'app = "shop:app"\nurl = "{real_database.url}"\n')
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    for kind, payload, code in (("mail", '{"to": 1}', 0), ("mail", '{"no": 1}', 2), ("bill", "{}", 3)):
        done = run_process("enqueue", kind, "-p", payload, cwd=tmp_path, env=environ)
        assert done.returncode == code, done.stderr
    with holdfast.Holdfast(real_database.url) as app:
        assert [job.kind for job in app.views.all(Selector())] == ["mail"]


def test_the_answer_says_that_the_job_was_cancelled_at_once(run, app):
    """Only standard error said so."""
    failed = app.enqueue("broken")
    app.worker(drain=True, poll=0.02).run()
    answer = run("enqueue", "mail", "-p", '{"to": 1}', "--after", failed.id, "-o", "json")
    (cancelled,) = answer.data["cancelled"]
    assert (cancelled["id"], cancelled["state"]) == (answer.data["id"], "cancelled")
    assert f"dependency {failed.id}" in cancelled["reason"]
    assert run("enqueue", "mail", "-p", '{"to": 1}', "-o", "json").data["cancelled"] == []


@pytest.mark.one_backend
@pytest.mark.parametrize("words", [['{"to": "hunter22"}'], ["{to:", "hunter22}"]])
@pytest.mark.parametrize("start", [["enqueue", "mail"], ["schedule", "add", "nightly", "mail", "@daily"]])
def test_a_payload_without_its_option_is_not_repeated(run, start, words):
    """It may contain secrets, and standard error goes to logs."""
    answer = run(*start, *words)
    assert (answer.code, "-p '{" in answer.err, "hunter22" in answer.err) == (2, True, False), answer.err


def test_attempts_timeout_and_delays_are_set_per_job(run, app):
    """E9.4: flags, types and descriptions come from the one declaration of the options."""
    arguments = ["--max-attempts", "5", "--timeout", "2h", "--retry", "10s,1m", "--retry", "10m"]
    arguments += ["--tag", "a", "--tag", "b,c", "--run-at", "2999-01-01T00:00:00Z", "--key", "k", "--key-for", "ever"]
    job = app.get(run("enqueue", "broken", *arguments, "-o", "json").data["id"]).job()
    assert (job.max_attempts, job.timeout, json.loads(job.retry)["steps"]) == (5, 7200.0, [10.0, 60.0, 600.0])
    assert (json.loads(job.tags), job.due_at.year, job.state) == (["a", "b,c"], 2999, "scheduled")
    unlimited = run("enqueue", "broken", "--max-attempts", "0", "--timeout", "0", "-o", "json").data["id"]
    assert (app.get(unlimited).job().max_attempts, app.get(unlimited).job().timeout) == (None, 0.0)
    plain = app.get(run("enqueue", "broken", "-o", "json").data["id"]).job()
    assert (plain.max_attempts, plain.timeout, plain.retry) == (1, None, None)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--retry", "2"], "has no unit"),
        (["--retry", "10s,"], "not a duration"),
        (["--after", "1,x"], "names no job"),
        (["--max-attempts", "-1"], "max-attempts"),
        (["--timeout", "soon"], "not a duration"),
        (["--on-conflict", "shrug"], "on-conflict"),
        (["--run-at", "3h"], "not a valid time"),
    ],
)
def test_an_invalid_option_is_refused(run, app, arguments, says):
    answer = run("enqueue", "broken", *arguments)
    assert (answer.code, says in answer.err) == (2, True), answer.err
    assert app.views.count(Selector()).count == 0


@pytest.mark.parametrize(
    ("after", "state"),
    [
        ("1", "waiting"),
        ("label=first", "waiting"),
        ("finished:key=k,label=first", "waiting"),
        ("queue=slow", "waiting"),
    ],
)
def test_a_job_starts_after_those_of_a_label(run, app, after, state):
    """2.34: the same words as those of ``add``; a key is one of the same kind."""
    app.enqueue("broken", label="first", key="k")
    job = app.get(run("enqueue", "broken", "--key", "own", "--after", after, "-o", "json").data["id"]).job()
    assert (job.state, [each.dependency_id for each in app.store.views.dependencies(job.id)]) == (state, [1])


def test_each_line_is_a_job(run, app, monkeypatch, tmp_path):
    """2.34: all of them, or none; a payload of several lines is still one."""
    lines = tmp_path / "lines.ndjson"
    lines.write_text('{"to": 1}\n\n{"to": 2, "subject": "a\u2028b"}\n{"to": 3}\n')
    data = run("enqueue", "mail", "-p", f"@{lines}", "--label", "all", "-o", "json").data
    assert [line["outcome"] for line in data["jobs"]] == ["created"] * 3
    payloads = [json.loads(app.get(line["id"]).job().payload)["to"] for line in data["jobs"]]
    assert (payloads, data["id"]) == ([1, 2, 3], data["jobs"][-1]["id"])
    monkeypatch.setattr("sys.stdin", io.StringIO('{"to": 4}\n{"to": 5}\n'))
    assert run("enqueue", "mail", "-p", "-", "--quiet").out.split() == ["4", "5"]
    lines.write_text('{\n  "to": 6\n}\n')
    assert run("enqueue", "mail", "-p", f"@{lines}", "-o", "json").data["jobs"] == []
    for bad in ('{"to": 7}\n{"to": "x"}\n', '{"to": 7}\n{"to": \n', '{"to": 7}\n[1]\n'):
        lines.write_text(bad)
        answer = run("enqueue", "mail", "-p", f"@{lines}")
        assert answer.code == 2, answer.err
    assert "line 2: a payload is a JSON object" in answer.err
    assert app.views.count(Selector()).count == 6


def test_quiet_enqueue_prints_the_id_alone(run):
    assert run("enqueue", "mail", "-p", '{"to": 1}', "--quiet").out == "1\n"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["mial"], 3, "Did you mean 'mail'?"),
        (["mail"], 2, "needs the parameter 'to'"),
        (["mail", "-p", '{"to": 1, "of": 2}'], 2, "has no parameter 'of'"),
        (["mail", "-p", "nonsense"], 2, "not JSON"),
        (["mail", "-p", "[1]"], 2, "a JSON object"),
        (["mail", "-p", "@/nowhere.json"], 2, "there is no file"),
    ],
)
def test_an_invalid_enqueue_is_refused(run, arguments, code, says):
    answer = run("enqueue", *arguments)
    assert (answer.code, says in answer.err) == (code, True), answer.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["\udcff"],
        ["mail", "-p", '{"to": "\udcff"}'],
        ["mail", "-p", '{"to": 1}', "--label", "\udcff"],
        ["mail", "-p", '{"to": 1}', "--key", "\udcff"],
        ["mail", "-p", '{"to": 1}', "--queue", "\udcff"],
        ["mail", "-p", '{"to": 1}', "--delay", "\udcff"],
        ["mail", "-p", "@\udcff"],
    ],
)
def test_words_that_are_not_utf8_are_refused(run, arguments):
    """K82: a shell can pass any bytes; they were an internal error."""
    answer = run("enqueue", *arguments)
    assert answer.code == 2, answer.err
    assert "E_INTERNAL" not in answer.err


def test_the_answer_says_what_happened(run, app):
    """K14: created, existing, replaced or rerun."""

    def enqueue(on_conflict: str):
        return run("enqueue", "mail", "-p", '{"to": 1}', "--key", "k", "--on-conflict", on_conflict, "-o", "json").data

    assert [enqueue(rule)["outcome"] for rule in ("skip", "skip", "replace", "rerun")] == [
        "created",
        "existing",
        "replaced",
        "replaced",
    ]
    (lease,) = claim_jobs(app.store, "w", queues=["default"], kinds=["mail"])
    assert enqueue("replace")["outcome"] == "existing"
    rerun = run("enqueue", "mail", "-p", '{"to": 1}', "--key", "k", "--on-conflict", "rerun")
    assert rerun.out.endswith(f"starts after job {lease.job_id}, which is running\n")
    assert enqueue("raise") is None


def test_a_failed_enqueue_makes_no_store(run, tmp_path):
    """E2: a new store has no kinds, so that an enqueue could not succeed."""
    answer = run("enqueue", "mail", "--url", f"sqlite:///{tmp_path}/mistyped.db", "-o", "json")
    assert (answer.code, answer.document["error"]["code"]) == (4, "E_SCHEMA_MISSING")
    assert not list(tmp_path.glob("mistyped*"))
