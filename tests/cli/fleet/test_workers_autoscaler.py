"""``autoscaler status``, ``queue set --autoscaler``, ``queue show`` and ``restart --memory``."""

from __future__ import annotations

import json

import pytest

from holdfast.domain.commands.command import COMMAND, Command
from holdfast.domain.fleet.admission import Refusal
from holdfast.domain.fleet.autoscaler import (
    AutoscalerAction,
    AutoscalerDecision,
    AutoscalerStatus,
    BlockedJob,
    QueueStatus,
)
from holdfast.domain.jobs.job import WorkerId
from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.verdict import Failed
from holdfast.store.jobs.leases import DEFAULT_LEASE

WORKER = WorkerId("w-1")


@pytest.fixture
def scaled(app):
    """A worker with a stored autoscaler status."""
    store = app.store
    store.workers.announce(WORKER, host="big-box", pid=1, queues=["default"], kinds=[COMMAND])
    lane = QueueStatus("default", 1, 8, 3, 2, [BlockedJob(17, Refusal.MEMORY, "there is no room")])
    gib = 1 << 30
    status = AutoscalerStatus(
        total=64 * gib,
        used=20 * gib,
        limit=48 * gib,
        room=40 * gib,
        resident=9 * gib,
        forecast=12 * gib,
        cores=16.0,
        load=3.5,
        cpu_pressure=1.0,
        memory_pressure=None,
        strain="easy",
        frozen=[],
        lanes=[lane],
    )
    store.autoscaler.report_status(WORKER, status.dumps())
    store.autoscaler.record_decisions(
        WORKER, "big-box", [AutoscalerDecision("default", AutoscalerAction.STEP_UP, "the host has room", slots=3)]
    )


def test_a_queue_is_scaled_and_is_not(run, fitting):
    """Bounds are shown, an invalid range is refused, other settings stay."""
    assert fitting(("queue", "set"), "default", "--autoscaler", "1-8", "--limit", "5").data["changed"] == 1
    assert fitting(("queue", "show"), "default").data["autoscaler"] == "1-8"
    assert run("queue", "set", "default", "--autoscaler", "8-1").code == 2
    assert run("queue", "set", "default").code == 2
    assert fitting(("queue", "set"), "default", "--autoscaler", "off").data["changed"] == 1
    answer = fitting(("queue", "show"), "default").data
    assert (answer["autoscaler"], answer["limit"]) == (None, 5)


def test_status(run, fitting, scaled, monkeypatch):
    """Each host with its numbers, and the jobs that may not start."""
    monkeypatch.setenv("COLUMNS", "200")
    (host,) = fitting(("autoscaler", "status")).data["hosts"]
    assert (host["host"], host["autoscaler"]["lanes"][0]["slots"]) == ("big-box", 3)
    out = run("autoscaler", "status").out
    assert all(text in out for text in ("big-box", "1-8", "9 GiB", "12 GiB", "40 GiB", "easy", "3.5/16"))
    assert "job 17 (big-box): there is no room" in out


def test_status_without_any(run):
    """The text names the command that scales a queue."""
    assert "holdfast queue set NAME --autoscaler 1-8" in run("autoscaler", "status").out


def test_a_queue_shows_its_hosts_and_decisions(run, fitting, scaled, monkeypatch):
    """The newest decision first."""
    monkeypatch.setenv("COLUMNS", "200")
    run("queue", "set", "default", "--autoscaler", "1-8")
    shown = fitting(("queue", "show"), "default").data
    assert [host["host"] for host in shown["hosts"]] == ["big-box"]
    assert [(each["action"], each["slots"]) for each in shown["decisions"]] == [("step_up", 3)]
    out = run("queue", "show", "default").out
    assert all(text in out for text in ("big-box: 2 of 3 slots", "job 17: there is no room", "the host has room"))


def test_a_command_killed_for_its_memory_can_get_more(run, app):
    """``restart --memory`` raises the cap and runs the job again; ``why`` suggests it."""
    payload = Command(argv=("true",), cwd="/", memory=100).dumps()
    job_id = app.store.jobs.enqueue(NewJob(kind=COMMAND, payload=payload)).id
    lease = app.store.autoscaler.claim(WORKER, job_id, queue="default", lease_duration=DEFAULT_LEASE)
    app.store.leases.settle(lease, Failed(error="too much", reason="oom", permanent=True))
    assert f"holdfast restart {job_id} --memory SIZE" in run("why", job_id).out
    assert run("restart", job_id, "--memory", "2G").code == 0
    job = app.views.get(job_id)
    assert (job.state, json.loads(job.payload)["memory"]) == ("ready", 2 << 30)
