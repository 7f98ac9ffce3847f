"""``workers`` and ``ask``."""

from __future__ import annotations

import pytest

from holdfast.admin.actions.actions import Actions
from holdfast.domain.access.audit import Via
from holdfast.domain.jobs.job import WorkerId
from holdfast.errors import NotFound


def test_a_worker_gets_a_request(run, app, fitting):
    """The request names the worker by id; an unknown worker is exit 3."""
    worker = WorkerId("w-1")
    app.store.workers.announce(worker, host="h", pid=1, queues=["default"], kinds=["mail"], slots=4)
    assert fitting(("ask",), worker, "quiet").data["ids"] == ["w-1"]
    assert app.store.workers.heartbeat(worker).requested == "quiet"
    assert "quiet" in run("workers").out
    assert run("ask", worker, "go-on").code == 0
    assert app.store.workers.heartbeat(worker).requested is None
    assert run("ask", "nobody", "stop").code == NotFound.exit_code
    assert run("ask", worker, "stop").code == 2
    assert run("ask", worker, "stop", "--yes").out == "worker w-1 requested to stop\n"


def test_a_request_to_a_lost_worker_names_its_process(store, clock):
    store.workers.announce(WorkerId("w"), host="h", pid=12, queues=["default"], kinds=["mail"])
    clock.advance(seconds=90)
    with pytest.raises(NotFound, match="worker 'w' is lost: pid 12 on h, no heartbeat for 90 s") as refused:
        Actions(store, actor="ada", via=Via.API).workers.perform("stop", "w")
    assert "taken over when their leases expire" in (refused.value.hint or "")
