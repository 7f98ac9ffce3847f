"""``queue``."""

from __future__ import annotations

from tests.support.processes import wait_until


def test_queues_and_workers(run, app):
    app.enqueue("mail", {"to": 1})
    run("queue", "set", "default", "--limit", "2", "--worker-limit", "1")
    run("queue", "pause", "default", "--note", "deploy")
    (listed,) = [queue for queue in run("queue", "ls", "-o", "json").data["queues"] if queue["name"] == "default"]
    expected = {
        "name": "default",
        "ready": 1,
        "expired": 0,
        "running": 0,
        "limit": 2,
        "worker_limit": 1,
        "paused": True,
        "note": "deploy",
        "autoscaler": None,
        "hosts": [],
    }
    assert {name: listed[name] for name in expected} == expected
    assert run("queue", "set", "default", "--limit", "0", "-o", "json").data["limit"] is None
    assert run("queue", "resume", "default", "-o", "json").data["paused"] is False
    with app.worker():
        (worker,) = wait_until(lambda: run("workers", "-o", "json").data["workers"])
    assert worker["kinds"] == ["broken", "holdfast.ping", "mail"]
