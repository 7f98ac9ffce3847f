"""``holdfast drain`` and ``emergency-stop``."""

from __future__ import annotations

import re
import threading

import pytest

from holdfast import Selector, State
from tests.support.jobs import claim_jobs
from tests.support.processes import wait_until


@pytest.fixture
def call(fitting):
    return lambda action, *arguments: fitting((action,), *arguments)


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


def test_a_refusal_shows_the_time_of_the_stop_by_the_clock_of_the_user(call, run, zone):
    """As text, also for a batch; JSON has UTC."""
    zone("America/Caracas")
    call("drain")
    for line in (["run", "--", "true"], ["batch", "run", "tests.support.programs.batch_units:plain", "--range", "1-2"]):
        refused = run(*line)
        assert refused.code == 11, refused.err
        assert re.search(r"since [-\d]{10} [:\d]{8} -04 \[E_STOPPED\]", refused.err), refused.err
    assert " UTC" in run("run", "-o", "json", "--", "true").document["error"]["message"]


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
