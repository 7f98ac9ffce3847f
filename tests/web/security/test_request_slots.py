"""Limits on requests at a time."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.domain.access.roles import Role
from holdfast.domain.commands.command import COMMAND
from holdfast.errors.http import Busy
from holdfast.web import live
from holdfast.web.security import request_checks
from holdfast.web.security.authentication import Caller
from holdfast.web.security.request_slots import RequestLimit
from holdfast.worker.commands.log_files import log_path
from tests.support.jobs import BOOM, put, take_one
from tests.web.conftest import Client

#: Access does not depend on the backend.
pytestmark = pytest.mark.one_backend


def test_each_caller_has_slots_of_its_own():
    """E6.3: a slot is free again after the request, also after one that failed."""
    limit = RequestLimit(1, "searches")
    with limit.slot("ada"), limit.slot("grace"), pytest.raises(Busy, match="too many searches"), limit.slot("ada"):
        pass
    with pytest.raises(ZeroDivisionError), limit.slot("ada"):
        raise ZeroDivisionError
    with limit.slot("ada"):
        pass


def test_one_caller_searches_one_log_at_a_time(site, viewer, operator, app):
    """E6.3: the next search is refused until the first has ended; others search meanwhile."""
    put(app.store, kind=COMMAND, payload='{"argv": ["id"], "cwd": "/"}', max_attempts=1)
    lease = take_one(app.store, kinds=(COMMAND,))
    app.store.leases.settle(lease, BOOM)
    log = log_path(site.logs, lease.job_id, lease.token, {})
    log.parent.mkdir(parents=True)
    log.write_text("found it\n")
    path = f"/jobs/{lease.job_id}/log"
    with site.searches.slot("viewer"):
        for found in (viewer.get(f"/api/v1{path}?search=it"), viewer.get(f"{path}?find=it")):
            assert found.status_code == 503
        assert operator.read(path, search="it")["matches"] == [{"number": 1, "text": "found it"}]
    assert "found" in viewer.get(f"{path}?find=it").text


def test_strangers_have_slots_of_their_own(site, viewer):
    """E6.2: who fills them keeps out neither those who are signed in nor health checks."""
    public = site._checked._inner._public
    with_slots = [public.slot() for _ in range(public._limit)]
    for slot in with_slots:
        slot.__enter__()
    assert Client(site).get("/login").status_code == 503
    assert viewer.get("/api/v1/me").status_code == 200
    assert Client(site).get("/healthz").status_code == 200
    for slot in with_slots:
        slot.__exit__(None, None, None)
    assert Client(site).get("/login").status_code == 200


def test_a_body_must_arrive_in_time(site, tokens, monkeypatch):
    """E6.2: a form that never ends gives its slot back."""
    monkeypatch.setattr(request_checks, "BODY_TIMEOUT_S", 0.05)
    sent = []

    async def receive():
        await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "path": "/login",
        "raw_path": b"/login", "query_string": b"", "root_path": "", "scheme": "http", "client": ("127.0.0.1", 1),
        "headers": [(b"host", b"localhost")], "server": ("localhost", 80),
    }  # fmt: skip
    asyncio.run(asyncio.wait_for(site(scope, receive, send), 60))
    assert sent[0]["status"] == 408


def test_streams_are_limited_per_caller(site, viewer, tokens, monkeypatch):
    """E6.5: one person cannot take the streams of all."""
    monkeypatch.setattr(live, "MAX_STREAMS_PER_CALLER", 2)

    async def status():
        caller = Caller("viewer", Role.VIEWER)
        with site.live.subscribe(caller), site.live.subscribe(caller):
            own = await asyncio.to_thread(viewer.get, "/live")
            site.live.close()
            return own.status_code

    assert asyncio.run(status()) == 503
