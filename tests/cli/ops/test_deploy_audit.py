"""``holdfast audit``."""

from __future__ import annotations

import signal

import pytest

from holdfast.domain.jobs.job import WorkerId
from tests.support.jobs import claim_jobs
from tests.support.processes import wait_until
from tests.support.program import program


@pytest.fixture
def call(fitting):
    return lambda action, *arguments: fitting((action,), *arguments)


def announce(app, name, version):
    app.store.workers.announce(WorkerId(name), host="h", pid=1, queues=["default"], kinds=["mail"], version=version)


def test_an_audit_reports_counts_and_versions(app, call, run):
    app.enqueue("mail", {"to": 1})
    announce(app, "a", "1")
    announce(app, "b", "2")
    answer = call("audit").data
    assert (answer["running"], answer["waiting"], answer["versions"]) == (0, 1, {"1": 1, "2": 1})
    assert "they differ" in run("audit").out


def test_an_audit_fails_while_jobs_run(app, call):
    app.enqueue("mail", {"to": 1})
    claim_jobs(app.store, "w", queues=["default"], kinds=["mail"])
    answer = call("audit")
    assert (answer.code, answer.document["error"]["code"]) == (9, "E_CONFLICT")


def test_an_audit_has_counts_and_ids_in_every_format(app, call, run):
    """E1.7: while jobs run, JSON had no data, counts were strings, and text had nothing else."""
    refs = [app.enqueue("mail", {"to": to}) for to in (1, 2)]
    (lease,) = claim_jobs(app.store, "w", queues=["default"], kinds=["mail"], limit=1)
    (waiting,) = {ref.id for ref in refs} - {lease.job_id}
    data = call("audit").data
    assert (data["running"], data["waiting"], data["dead"]) == (1, 1, 0)
    assert data["ids"] == {"running": [lease.job_id], "waiting": [waiting], "dead": []}
    first, end = run("audit", "-o", "ndjson").lines
    assert (first["ids"], end["_meta"]["error"]["code"]) == (data["ids"], "E_CONFLICT")
    text = run("audit")
    assert (text.code, f"running: 1  (jobs {lease.job_id})" in text.out) == (9, True)
    assert "1 jobs are running" in text.err


def test_an_audit_is_the_gate_after_a_deploy(app, call):
    """E10.4: jobs that run do not matter then; a worker with other code does, and so does the lack of workers."""
    app.enqueue("mail", {"to": 1})
    claim_jobs(app.store, "w", queues=["default"], kinds=["mail"])
    none = call("audit", "--expect", "1")
    assert (none.code, none.document["error"]["code"], none.data["running"]) == (14, "E_DRIFT", 1)
    announce(app, "a", "1")
    assert call("audit", "--expect", "1").code == 0
    announce(app, "b", "2")
    late = call("audit", "--expect", "1")
    assert (late.code, late.data["versions"]) == (14, {"1": 1, "2": 1})


def test_a_worker_without_an_application_has_a_version(app, real_database, call):
    """E1.7: --expect was of no use without --app."""
    for line in (["worker", "--version", "2.4"], ["scheduler", "--version", "2.4"]):
        with program(*line, url=real_database.url) as running:
            running.said("sqlite:" if real_database.name == "sqlite" else "postgresql:")
            wait_until(lambda: call("audit", "--expect", "2.4").code == 0)
            assert call("audit", "--expect", "2.5").code == 14
            running.send(signal.SIGTERM)
            assert running.end()[0] == 0


def test_checks_of_the_configuration_are_run(fitting, run, tmp_path, monkeypatch):
    """They run one after the other, without a shell; the error of a failed check has its last output."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "holdfast.toml"
    file.write_text('audit_checks = [["true"], ["echo", "; exit 1"]]')
    assert fitting(("audit",)).data["checks"] == {"true": 0, "echo '; exit 1'": 0}
    file.write_text('audit_checks = [["sh", "-c", "echo not pushed; exit 3"]]')
    answer = run("audit", "-o", "json")
    assert (answer.code, answer.document["error"]["code"]) == (1, "E_COMMAND_FAILED")
    assert "exit code 3: not pushed" in answer.document["error"]["message"]
    assert list(answer.data["checks"].values()) == [3]
    file.write_text('audit_checks = [["there-is-no-such-program"]]')
    assert run("audit").code == 1
