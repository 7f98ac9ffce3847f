"""``holdfast audit``, ``drain`` and ``emergency-stop``."""

from __future__ import annotations

import signal
import threading

import pytest

from holdfast import Selector, State
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


def test_a_drain_waits_for_running_jobs_and_starts_none(app, call):
    """K9: jobs of queues that nobody knew wait as well."""
    go, begun = threading.Event(), threading.Event()

    @app.job(queue="long")
    def long() -> None:
        begun.set()
        go.wait(60)

    long.enqueue()
    with app.worker(commands=True, poll=0.05, queues=["long", "later"]):
        begun.wait(60)
        threading.Timer(0.3, go.set).start()
        answer = call("drain", "--note", "deploy").data
        assert (answer["action"], answer["changed"]) == ("drain", 1)
        switch = app.store.stop_switch.get()
        assert (switch.mode, switch.note) == ("drain", "deploy")
        waits = [long.enqueue(), long.options(queue="later").enqueue()]
        assert call("audit").data["stopped"]["note"] == "deploy"
        assert {app.views.get(each.id).state for each in waits} == {State.READY}
        assert call("drain", "--end").data["changed"] == 1
        assert app.store.stop_switch.get() is None
        wait_until(lambda: all(app.views.get(each.id).state is State.DONE for each in waits))


def test_a_drain_gives_up_in_time(app, call):
    app.enqueue("mail", {"to": 1})
    claim_jobs(app.store, "w", queues=["default"], kinds=["mail"])
    answer = call("drain", "--timeout", "100ms")
    assert (answer.code, answer.document["error"]["code"]) == (10, "E_WAIT_TIMEOUT")


def test_a_drain_leaves_paused_queues_paused(app, call):
    app.queues.pause("default", note="mine")
    assert call("drain").code == 0
    assert call("drain", "--end").code == 0
    assert app.queues.get("default").paused


def test_an_emergency_stop_ends_commands_and_loses_no_job(app, call, run, tmp_path, monkeypatch):
    """Resume --all lets the stopped jobs go on; a job that a person holds stays held."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    run("add", "--cwd", str(tmp_path), "--", "sh", "-c", "touch begun; test -e go || exec sleep 60")
    held = app.enqueue("mail", {"to": 1}, queue="nobody")
    app.control.hold(Selector(ids=(held.id,)), actor="ada")
    with app.worker(commands=True, poll=0.05, heartbeat=0.2):
        wait_until((tmp_path / "begun").exists)
        assert run("emergency-stop", "-o", "json").code == 2
        answer = call("emergency-stop", "--yes", "--note", "fire").data
        assert (len(answer["jobs"]), app.store.stop_switch.get().mode) == (1, "stop")
        commands = Selector(kinds=("command",))
        wait_until(lambda: app.views.page(commands).jobs[0].state is State.HELD)
        (job,) = app.views.page(commands).jobs
        assert (job.attempts, job.note.startswith("emergency stop by "), ": fire" in job.note) == (0, True, True)
        (tmp_path / "go").touch()
        answer = run("resume", "--all", "-o", "json").data
        assert (answer["action"], answer["jobs"]) == ("resume", [job.id])
        wait_until(lambda: app.views.get(job.id).state is State.DONE)
    assert app.views.get(held.id).state is State.HELD
    actions = [entry.action for entry in app.store.audit_log.page()]
    assert actions[:2] == ["resume --all", "emergency-stop"]


def test_a_stopped_store_refuses_commands_here(call, run, tmp_path):
    """K9: what a person starts by hand is refused, with the reason."""
    call("drain", "--note", "deploy")
    answer = run("run", "-o", "json", "--", "true")
    assert (answer.code, answer.document["error"]["code"]) == (11, "E_STOPPED")
    assert "deploy" in answer.document["error"]["message"]
    assert "resume --all" in answer.document["error"]["hint"]


def test_every_screen_shows_the_stop(app, call, run):
    job = app.enqueue("mail", {"to": 1})
    call("drain", "--note", "disk full")
    for line in (["top"], ["queue", "ls"], ["why", str(job.id)], ["audit"], ["doctor"]):
        assert "disk full" in run(*line).out, line
    assert run("top", "-o", "json").data["overviews"][0]["stopped"]["note"] == "disk full"
    assert run("resume", "--all", "--dry-run").code == 0
    assert app.store.stop_switch.get() is not None
    assert run("resume", "--all", "--queue", "default").code == 2
    assert run("resume", "--all").code == 0
    assert app.store.stop_switch.get() is None


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
