"""Copies of pages for open pages that fetch themselves again: shared, never stale, and without anything personal."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta

import pytest
from starlette.requests import Request
from starlette.responses import HTMLResponse

from holdfast.domain.access.roles import Role
from holdfast.domain.access.tokens import prefix_of
from holdfast.web import page_cache
from holdfast.web.page_cache import RENDER_INTERVAL_S, PageCache
from holdfast.web.request import LIVE_HEADER
from holdfast.web.security import authentication
from holdfast.web.security.sessions import COOKIE
from tests.support.open_site import counting
from tests.support.processes import wait_until
from tests.support.viewers import watching
from tests.web.conftest import Client

POLL = ("read_change_tokens", "list_current_access")
WATCHED = [("/", Role.VIEWER), ("/jobs", Role.VIEWER), ("/jobs", Role.OPERATOR)]


def test_fifty_viewers_cost_two_statements_a_second_for_each_page(app, make_server):
    """E6.8: plus the poll, while jobs change all the time."""
    server = make_server("127.0.0.1:0")
    server.start()
    try:
        with watching(app, server.port, WATCHED, 50) as viewers, counting(server.site.store) as statements:
            begun = time.monotonic()
            wait_until(lambda: app.enqueue("mail", {"to": 1}) and min(len(each.reloads) for each in viewers) >= 3)
            elapsed = time.monotonic() - begun
    finally:
        server.stop()
    for viewer in viewers:
        viewer.join()
        assert {status for status, _ in viewer.reloads} <= {200, 304}
    poll = [name for name in statements if name in POLL]
    pages = [name for name in statements if name not in POLL]
    assert len(poll) <= 2 * (elapsed + 2), f"E6.8 is broken: {len(poll)} statements of the poll in {elapsed:.1f} s"
    allowed = 2 * len(WATCHED) * (elapsed + RENDER_INTERVAL_S)
    assert len(pages) <= allowed, f"E6.8 is broken: {len(pages)} statements in {elapsed:.1f} s"


# -- one copy ----------------------------------------------------------------------------------------


def request_of(**headers: str) -> Request:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": raw})


@pytest.fixture
def cache():
    made = PageCache(lambda: changed[0])
    changed = made.changed = [float("-inf")]
    yield made
    made.close()


class Page:
    """A page whose renderings are counted."""

    def __init__(self) -> None:
        self.count = 0
        self.go_on = threading.Event()
        self.go_on.set()

    def render(self) -> HTMLResponse:
        assert self.go_on.wait(60)
        self.count += 1
        return HTMLResponse(f"<main>{self.count}</main>" + "x" * 2000)


def test_requests_at_the_same_time_share_one_rendering(cache):
    page = Page()
    page.go_on.clear()

    async def fetch_all():
        requests = [asyncio.ensure_future(cache.answer(request_of(), "jobs", page.render)) for _ in range(20)]
        await asyncio.sleep(0)
        requests[0].cancel()  # the first viewer leaves, and the others must not notice
        page.go_on.set()
        return await asyncio.gather(*requests[1:])

    answers = asyncio.run(fetch_all())
    assert page.count == 1
    assert {bytes(answer.body)[:14] for answer in answers} == {b"<main>1</main>"}


def test_a_change_makes_a_new_copy_when_it_is_due(cache, monkeypatch):
    """Nobody gets a copy from before the change, and the page is not rendered more often for it."""
    monkeypatch.setattr(page_cache, "RENDER_INTERVAL_S", 0.3)
    page = Page()

    async def fetch():
        return bytes((await cache.answer(request_of(), "jobs", page.render)).body)[:14]

    async def fetch_all():
        first, begun = await fetch(), time.monotonic()
        cache.changed[0] = time.monotonic()
        return [first, *await asyncio.gather(*(fetch() for _ in range(20)))], time.monotonic() - begun

    bodies, waited = asyncio.run(fetch_all())
    assert bodies == [b"<main>1</main>", *[b"<main>2</main>"] * 20]
    assert page.count == 2
    assert waited > 0.1


def test_the_same_copy_is_not_sent_twice(cache):
    page = Page()

    def fetch(**headers):
        return asyncio.run(cache.answer(request_of(**headers), "jobs", page.render))

    first = fetch()
    assert first.status_code == 200
    for etag in (first.headers["etag"], "W/" + first.headers["etag"]):
        again = fetch(if_none_match=etag)
        assert (again.status_code, again.body) == (304, b"")
    packed = fetch(accept_encoding="gzip")
    assert packed.headers["content-encoding"] == "gzip"
    assert len(packed.body) < 200
    assert page.count == 1


def test_only_the_latest_copies_are_kept(cache, monkeypatch):
    monkeypatch.setattr(page_cache, "MAX_COPIES", 3)
    page = Page()
    for number in range(10):
        asyncio.run(cache.answer(request_of(), number, page.render))
    assert list(cache._copies) == [7, 8, 9]


def test_a_failed_rendering_is_rendered_again(cache, monkeypatch):
    monkeypatch.setattr(page_cache, "RENDER_INTERVAL_S", 0.0)
    page = Page()

    def fail():
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        asyncio.run(cache.answer(request_of(), "jobs", fail))
    assert asyncio.run(cache.answer(request_of(), "jobs", page.render)).status_code == 200


# -- what a copy holds, and who gets it ----------------------------------------------------------------


def sign_in(site, app, name, role):
    """A browser of a person, whose page is open."""
    cookie = app.store.sessions.open(name, role, lifetime=timedelta(hours=1))
    client = Client(site)
    client.headers["cookie"] = f"{COOKIE}={cookie}"
    caller = site.authenticator.by_cookie(site.store, cookie)
    return client, caller


def reload(client, path="/jobs"):
    return client.get(path, headers={LIVE_HEADER: "1"})


@pytest.mark.one_backend
def test_a_copy_holds_nothing_of_a_person(site, app):
    """E6.8: the name and the form token of the viewer who came first stay with that viewer."""
    app.enqueue("mail", {"to": 1})
    ada, caller = sign_in(site, app, "ada-the-first", Role.OPERATOR)
    bob, _ = sign_in(site, app, "bob", Role.OPERATOR)
    mine = reload(ada, "/jobs/1").text
    assert mine == reload(bob, "/jobs/1").text
    assert 'name="form_token" value=""' in mine
    assert "<html" not in mine
    for secret in ("ada-the-first", site.form_token(caller)):
        assert secret in ada.get("/jobs/1").text
        assert secret not in mine


@pytest.mark.one_backend
def test_a_copy_is_for_one_role(site, app):
    """A viewer gets no buttons of an operator."""
    app.enqueue("mail", {"to": 1})
    operator, _ = sign_in(site, app, "ada", Role.OPERATOR)
    viewer, _ = sign_in(site, app, "bob", Role.VIEWER)
    assert "/jobs/1/action" in reload(operator, "/jobs/1").text
    assert "/jobs/1/action" not in reload(viewer, "/jobs/1").text


@pytest.mark.one_backend
def test_a_page_that_is_loaded_is_fresh(site, app, viewer):
    """Only reloads share: the page after an action shows its effect."""
    for number in range(1, 4):
        app.enqueue("mail", {"to": number}, label=f"letter-{number}")
        assert f"letter-{number}" in viewer.get("/jobs").text


@pytest.mark.one_backend
def test_confirmed_viewers_reload_without_a_statement(site, app, monkeypatch):
    """E6.8: the poll has read their sessions. It is enough for a reload, not for anything else, and not for long."""
    ada, caller = sign_in(site, app, "ada", Role.OPERATOR)
    site.authenticator.confirm(site.store, {caller})
    with counting(site.store) as statements:
        assert reload(ada).status_code == 200
        assert "get_session" not in statements
        assert ada.get("/jobs").status_code == 200
        assert statements.count("get_session") == 1
        assert ada.post("/queues/action?name=default", headers={LIVE_HEADER: "1"}).status_code == 403
        assert statements.count("get_session") == 2
        monkeypatch.setattr(authentication, "CONFIRMED_S", -1.0)
        assert reload(ada).status_code == 200
        assert statements.count("get_session") == 3


@pytest.mark.one_backend
def test_a_session_that_has_ended_reloads_nothing(site, app, tokens):
    """E6.5: after signing out at once; after the revocation of its token with the next poll."""
    ada, caller = sign_in(site, app, "ada", Role.VIEWER)
    assert site.authenticator.confirm(site.store, {caller}) == {caller}
    form = {"form_token": site.form_token(caller)}
    assert ada.post("/logout", data=form).status_code == 303
    assert reload(ada).status_code == 303  # to the login page
    cookie = app.store.sessions.open(
        "viewer", Role.VIEWER, lifetime=timedelta(hours=1), prefix=prefix_of(tokens[Role.VIEWER])
    )
    by_session = site.authenticator.by_cookie(site.store, cookie)
    by_token = site.authenticator.by_token(site.store, tokens[Role.VIEWER])
    by_proxy = authentication.Caller("eve", Role.VIEWER)
    callers = {by_session, by_token, by_proxy}
    assert site.authenticator.confirm(site.store, callers) == callers
    app.store.credentials.revoke("viewer")
    assert site.authenticator.confirm(site.store, callers) == {by_proxy}


@pytest.mark.one_backend
def test_pages_are_compressed(site, viewer, app):
    for number in range(50):
        app.enqueue("mail", {"to": number})
    assert viewer.get("/jobs").headers["content-encoding"] == "gzip"
    assert "content-encoding" not in viewer.get("/jobs", headers={"accept-encoding": "identity"}).headers
