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
    assert run("queue", "set", "default", "--limit", "0", "--dry-run").out == "queue default would be changed\n"
    assert run("queue", "set", "default", "--worker-limit", "none", "-o", "json").data["changed"] == 1
    assert run("queue", "show", "default", "-o", "json").data["worker_limit"] is None
    assert run("queue", "set", "default", "--limit", "nine").code == 2
    assert run("queue", "set", "default", "--limit", "0", "-o", "json").data["changed"] == 1
    for changed in (1, 0):  # it sets something: a repetition is a success
        answer = run("queue", "resume", "default", "-o", "json")
        assert (answer.code, answer.data["changed"]) == (0, changed)
    (listed,) = [queue for queue in run("queue", "ls", "-o", "json").data["queues"] if queue["name"] == "default"]
    assert (listed["limit"], listed["paused"]) == (None, False)
    with app.worker():
        (worker,) = wait_until(lambda: run("workers", "-o", "json").data["workers"])
    assert worker["kinds"] == ["broken", "holdfast.ping", "mail"]
