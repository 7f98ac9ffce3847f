"""``holdfast audit``, ``drain`` and ``emergency-stop``."""

from __future__ import annotations

import threading

import pytest

from holdfast import Selector, State
from holdfast.domain.jobs.job import WorkerId
from tests.support.jobs import claim_jobs
from tests.support.processes import wait_until


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
    assert answer.document["error"]["context"]["running"] == "1"


def test_an_audit_knows_which_code_is_expected(app, call):
    announce(app, "a", "1")
    assert call("audit", "--expect", "1").code == 0
    announce(app, "b", "2")
    assert (call("audit", "--expect", "1").code, call("audit").code) == (14, 0)


def test_a_drain_waits_for_running_jobs_and_starts_none(app, call):
    go, begun = threading.Event(), threading.Event()

    @app.job()
    def long() -> None:
        begun.set()
        go.wait(60)

    long.enqueue()
    with app.worker(poll=0.05):
        begun.wait(60)
        threading.Timer(0.3, go.set).start()
        assert call("drain").data == {"queues": ["default"], "running": 0}
        waits = long.enqueue()
        assert call("audit").data["paused"]["default"].startswith("drained by ")
        assert app.views.get(waits.id).state is State.READY
        assert call("drain", "--end").data["queues"] == ["default"]
        wait_until(lambda: app.views.get(waits.id).state is State.DONE)


def test_a_drain_gives_up_in_time(app, call):
    app.enqueue("mail", {"to": 1})
    claim_jobs(app.store, "w", queues=["default"], kinds=["mail"])
    answer = call("drain", "--timeout", "100ms")
    assert (answer.code, answer.document["error"]["code"]) == (10, "E_WAIT_TIMEOUT")


def test_a_drain_leaves_paused_queues_paused(app, call):
    app.queues.pause("default", note="mine")
    assert call("drain").data["queues"] == []
    assert call("drain", "--end").data["queues"] == []
    assert app.queues.get("default").paused


def test_an_emergency_stop_ends_commands_and_loses_no_job(app, call, run, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    run("add", "--cwd", str(tmp_path), "--", "sh", "-c", "touch begun; exec sleep 60")
    with app.worker(poll=0.05, heartbeat=0.2):
        wait_until((tmp_path / "begun").exists)
        assert run("emergency-stop", "-o", "json").code == 2
        assert call("emergency-stop", "--yes").data == {"queues": ["default"], "stop_requested": 1}
        wait_until(lambda: app.views.page(Selector()).jobs[0].state is State.HELD)
    (job,) = app.views.page(Selector()).jobs
    assert (job.attempts, job.note.startswith("emergency stop by ")) == (0, True)


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
    file.write_text('audit_checks = [["there-is-no-such-program"]]')
    assert run("audit").code == 1
