"""Limits on requests at a time."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from itertools import islice
from urllib.parse import urlencode

import pytest

from holdfast.domain.access.roles import Role
from holdfast.domain.access.tokens import prefix_of
from holdfast.domain.commands.command import COMMAND
from holdfast.errors.http import Busy
from holdfast.web import live
from holdfast.web.security import request_checks
from holdfast.web.security.authentication import Caller
from holdfast.web.security.request_slots import MAX_BODIES, MAX_CALLER_BODIES, MAX_CALLER_REQUESTS, RequestLimit
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


async def never():
    await asyncio.Event().wait()


async def answer_to(site, method, path, receive=never, *, token=None, address="127.0.0.1"):
    """The status of the answer; None without one."""
    sent = []

    async def send(message):
        sent.append(message)

    headers = [(b"host", b"localhost")] + ([(b"authorization", f"Bearer {token}".encode())] if token else [])
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": path,
        "raw_path": path.encode(), "query_string": b"", "root_path": "", "scheme": "http", "client": (address, 1),
        "headers": headers, "server": ("localhost", 80),
    }  # fmt: skip
    await asyncio.wait_for(site(scope, receive, send), 120)
    return sent[0]["status"] if sent else None


async def first_of(tasks, count):
    """The results of the first tasks that end."""
    return {await task for task in islice(asyncio.as_completed(tasks), count)}


def form(**fields):
    async def receive():
        return {"type": "http.request", "body": urlencode(fields).encode(), "more_body": False}

    return receive


def test_a_body_must_arrive_in_time(site, tokens, monkeypatch):
    """E6.2: a form that never ends gives its place back."""
    monkeypatch.setattr(request_checks, "BODY_TIMEOUT_S", 0.05)
    assert asyncio.run(answer_to(site, "POST", "/login")) == 408


@pytest.mark.parametrize("addresses", [1, 300])
def test_slow_bodies_of_strangers_keep_nobody_out(site, tokens, monkeypatch, addresses):
    """W6: from one address or many. Nobody but the oldest of them loses a place."""
    monkeypatch.setenv("HOLDFAST_METRICS_TOKEN", "m" * 32)
    viewer = tokens[Role.VIEWER]

    async def main():
        slow = [answer_to(site, "POST", "/login", address=f"10.0.0.{n % addresses}") for n in range(300)]
        slow = [asyncio.create_task(each) for each in slow]
        refused = await first_of(slow, 300 - (MAX_CALLER_BODIES if addresses == 1 else MAX_BODIES))
        assert refused == {503}, "E6 is broken: bodies that arrive have no limit"
        assert await answer_to(site, "GET", "/login", address="10.0.0.0") == 200, (
            "E6 is broken: strangers keep others out"
        )
        assert await answer_to(site, "GET", "/static/style.css", address="10.0.0.0") == 200
        assert await answer_to(site, "GET", "/metrics", token="m" * 32, address="10.0.0.0") == 200
        assert await answer_to(site, "GET", "/api/v1/me", token=viewer) == 200
        assert await answer_to(site, "POST", "/login", form(token=viewer), address="10.0.0.0") == 303
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)

    asyncio.run(main())


def test_slow_bodies_of_a_caller_keep_nobody_out(site, tokens):
    """W6: neither others, nor its own pages."""
    viewer, operator = tokens[Role.VIEWER], tokens[Role.OPERATOR]

    async def main():
        slow = [asyncio.create_task(answer_to(site, "POST", "/api/v1/jobs/action", token=viewer)) for _ in range(60)]
        assert await first_of(slow, 60 - MAX_CALLER_BODIES) == {503}
        for token in (viewer, operator):
            assert await answer_to(site, "GET", "/api/v1/me", token=token) == 200
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)

    asyncio.run(main())


def test_one_caller_does_not_take_all_slots(site, tokens):
    """W6: 40 requests of one token at a time, for example to a store that does not answer."""
    caller = Caller("viewer", Role.VIEWER, prefix_of(tokens[Role.VIEWER]))
    requests = site._checked._inner._caller_requests
    with ExitStack() as stack:
        for _ in range(MAX_CALLER_REQUESTS):
            stack.enter_context(requests.slot(caller))
        statuses = [Client(site, tokens[role]).get("/api/v1/me").status_code for role in (Role.VIEWER, Role.ADMIN)]
        assert statuses == [503, 200]


@pytest.mark.parametrize("path", ["/login", "/sign-in", "/jobs/action", "/api/v1/jobs/action"])
def test_a_client_that_leaves_is_no_error(site, tokens, caplog, path):
    """W6: each wrote a traceback of 2.4 kB into the log, as a defect."""

    async def leave():
        return {"type": "http.disconnect"}

    assert asyncio.run(answer_to(site, "POST", path, leave, token=tokens[Role.VIEWER])) is None
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


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
