"""Who is let in: a walk over all routes, and every way to get past the door."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import httpx2
import pytest
from starlette.routing import Mount, Route

from holdfast.domain.access.roles import Role
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import ConfigurationError
from holdfast.web.api.openapi import BASE
from holdfast.web.api.router import ENDPOINTS
from holdfast.web.errors import HttpError, SlowDown
from holdfast.web.security.authentication import COOKIE, GUESSES, Guesses
from holdfast.web.security.entry import OPEN
from holdfast.web.security.request_checks import HEADERS
from tests.support.processes import wait_until
from tests.web.conftest import HOST, Client

#: What is let in does not depend on the store.
pytestmark = pytest.mark.one_backend
CHANGES = [each for each in ENDPOINTS if each.method == "POST"]


def all_routes(site):
    """Every path of the site with its methods, numbers filled in."""
    for route in site._routes():
        if isinstance(route, Route):
            yield route.path.replace("{id:int}", "1"), route.methods
        else:
            assert isinstance(route, Mount)


def test_nothing_but_the_way_in_is_open(site, tokens):
    """Every route but health and login wants to know who asks; nothing answers without."""
    anonymous = Client(site)
    for path, methods in all_routes(site):
        if path in OPEN:
            continue
        for method in methods - {"HEAD"}:
            answer = anonymous.request(method, path, headers={"content-type": "application/json"})
            assert answer.status_code in (401, 303), (method, path, answer.status_code)
            if answer.status_code == 303:
                assert answer.headers["location"].startswith("/login?next=")


def test_every_change_refuses_what_is_wrong(site, tokens, app):
    """A wrong method, host, origin, site, token, role and type: nothing is done, and it is told in the envelope."""
    good = {"authorization": f"Bearer {tokens[Role.ADMIN]}", "content-type": "application/json"}
    for place, (path, methods) in enumerate(all_routes(site)):
        if "POST" not in methods or path == "/login":
            continue
        wrong = {
            "method": ("PUT", {}, 405),
            "delete": ("DELETE", {}, 405),
            "host": ("POST", {"host": "evil.example"}, 421),
            "hosts": ("POST", {"host": "localhost.evil.example"}, 421),
            "origin": ("POST", {"origin": "http://evil.example"}, 403),
            "null origin": ("POST", {"origin": "null"}, 403),
            "port": ("POST", {"origin": "http://localhost:81"}, 403),
            "site": ("POST", {"sec-fetch-site": "cross-site"}, 403),
            "sister": ("POST", {"sec-fetch-site": "same-site"}, 403),
            "token": ("POST", {"authorization": "Bearer hf_00000000_" + "a" * 43}, 401),
            "scheme": ("POST", {"authorization": "Basic cm9vdDpyb290"}, 401),
            "large": ("POST", {"content-length": str(2**30)}, 413),
        }
        for name, (method, headers, status) in wrong.items():
            client = Client(site, client=(f"10.0.0.{place}", 50000))  # who guesses is slowed down, by address
            answer = client.request(method, path, headers={**good, **headers})
            assert answer.status_code == status, (name, path, answer.text)
            if path.startswith("/api/"):
                assert answer.json()["error"]["code"], (name, path)
    assert app.store.audit_log.page() == []


@pytest.mark.parametrize("endpoint", CHANGES, ids=lambda each: each.path)
def test_a_viewer_changes_nothing(viewer, app, endpoint):
    body = {
        "action": "rm",
        "kind": "mail",
        "filter": "id=1",
        "cluster": "0" * 12,
        "name": "x",
        "queue": "q",
        "worker": "w",
    }
    fields = endpoint.body.__struct_fields__
    given = {name: value for name, value in body.items() if name in fields}
    given |= {"request": "stop"} if "request" in fields else {}
    answer = viewer.post(f"{BASE}{endpoint.path.replace('{id:int}', '1')}", json=given)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "E_FORBIDDEN")
    assert app.store.audit_log.page() == []


def test_a_form_of_another_site_is_refused(site, tokens):
    """Pages take forms only with the token that their own pages carry; never JSON."""
    client = Client(site, tokens[Role.ADMIN])
    assert client.post("/logout", data={"form_token": "guess"}).status_code == 403
    assert client.post("/logout", json={}).status_code == 403
    caller = site.authenticator.by_token(site.store, tokens[Role.ADMIN], None)
    right = site.authenticator.form_token(site.store, caller)
    assert client.post("/logout", data={"form_token": right}).status_code == 303
    other = site.authenticator.by_token(site.store, tokens[Role.VIEWER], None)
    assert site.authenticator.form_token(site.store, other) != right


def test_every_answer_carries_the_headers(site, viewer):
    """Refusals too; nothing is kept by browsers and proxies."""
    for answer in (viewer.get("/api/v1/me"), viewer.get("/nothing"), viewer.get("/", headers={"host": "evil.example"})):
        for name, value in HEADERS.items():
            assert answer.headers[name] == value
        assert answer.headers["cache-control"] == "no-store"
    assert "unsafe" not in HEADERS["Content-Security-Policy"]


# -- tokens and sessions -----------------------------------------------------------------------


def test_a_revoked_token_opens_nothing_at_once(viewer, app):
    """Though it was right a moment before; and the last one that goes opens the door to nobody."""
    assert viewer.get("/api/v1/me").status_code == 200
    for role in Role:
        app.store.credentials.revoke(str(role))
    assert viewer.get("/api/v1/me").status_code == 401


def test_a_session_ends_with_its_token(site, tokens, app, make_site):
    """One signs in with a token; the cookie alone is enough from then on, on every server of the store."""
    client = Client(site)
    entered = client.post("/login", data={"token": tokens[Role.OPERATOR], "next": "/jobs?a=1"})
    assert (entered.status_code, entered.headers["location"]) == (303, "/jobs?a=1")
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert client.get("/api/v1/me").json()["data"]["role"] == "operator"
    second = Client(make_site(), cookies={COOKIE: client.cookies[COOKIE]})
    assert second.get("/api/v1/me").status_code == 200
    app.store.credentials.revoke("operator")
    assert client.get("/api/v1/me").status_code == 401
    assert second.get("/api/v1/me").status_code == 401


def test_a_session_cannot_be_made_up(site, tokens):
    """Neither changed, nor longer, nor of another."""
    client = Client(site)
    client.post("/login", data={"token": tokens[Role.VIEWER]})
    real = client.cookies[COOKIE]
    prefix, until, nonce, signature = real.split(".")
    for forged in (
        "",
        "x",
        "a.b.c.d",
        f"{prefix}.{int(until) + 1}.{nonce}.{signature}",
        f"{tokens[Role.ADMIN][:11]}.{until}.{nonce}.{signature}",
        f"{prefix}.{until}.{nonce}.",
        f"{prefix}.{until}.{nonce}.{signature[:-1]}é",
        real * 50,
    ):
        answer = Client(site).get("/api/v1/me", headers={"cookie": f"{COOKIE}={forged}".encode()})
        assert answer.status_code == 401, forged


@pytest.mark.parametrize(
    "requested", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "/a\r\nb"]
)
def test_signing_in_leads_nowhere_else(site, tokens, requested):
    entered = Client(site).post("/login", data={"token": tokens[Role.VIEWER], "next": requested})
    assert entered.headers["location"] == "/"


def test_the_page_to_sign_in_shows_hostile_text_harmlessly(site, tokens):
    shown = Client(site).get("/login", params={"next": '/"><script>alert(1)</script>'})
    assert "<script>" not in shown.text
    wrong = Client(site).post("/login", data={"token": '"><script>', "next": "/"})
    assert (wrong.status_code, "<script>" in wrong.text) == (401, False)


def test_who_guesses_is_slowed_down_and_nobody_else(site, tokens):
    """By address; a token that was right before passes all the time."""
    client = Client(site, tokens[Role.VIEWER])
    assert client.get("/api/v1/me").status_code == 200
    wrong = {"authorization": "Bearer hf_00000000_" + "a" * 43}
    statuses = [Client(site).get("/api/v1/me", headers=wrong).status_code for _ in range(GUESSES + 1)]
    assert statuses == [401] * GUESSES + [429]
    assert client.get("/api/v1/me").status_code == 200


def test_other_addresses_do_not_wait():
    guesses = Guesses()
    for _ in range(GUESSES):
        guesses.wrong("10.0.0.1")
    with pytest.raises(SlowDown):
        guesses.check("10.0.0.1")
    guesses.check("10.0.0.2")
    guesses.right("10.0.0.1")
    guesses.check("10.0.0.1")


# -- without tokens ----------------------------------------------------------------------------


def test_a_site_that_is_mounted_is_never_open(site):
    """Also while there is no token at all: somebody else's server may be reached from anywhere."""
    assert Client(site).get("/api/v1/me").status_code == 401


def test_on_this_machine_anyone_is_let_in_until_the_first_token(app, make_server):
    """But not through a proxy, and not under another name."""
    client = Client(make_server("127.0.0.1:0").site)
    assert client.get("/api/v1/me").json()["data"]["role"] == "admin"
    assert client.get("/api/v1/me", headers={"x-forwarded-for": "10.0.0.1"}).status_code == 401
    assert client.get("/api/v1/me", headers={"host": "evil.example"}).status_code == 421
    app.store.credentials.add("ci", Role.VIEWER, actor="ada")
    assert client.get("/api/v1/me").status_code == 401
    app.store.credentials.revoke("ci")
    assert client.get("/api/v1/me").status_code == 401


def test_where_changes_need_a_key_anyone_may_only_look(make_server):
    """A key that the command line asks for is not got around over HTTP."""
    client = Client(make_server("127.0.0.1:0", keyed=True).site)
    assert client.get("/api/v1/me").json()["data"]["role"] == "viewer"
    client.act("/queues/act", 403, queue="q", paused=True)


def test_another_address_is_refused_without_tokens(app, make_server):
    with pytest.raises(ConfigurationError, match="would be open to everyone") as caught:
        make_server("0.0.0.0:0")
    assert "holdfast token add" in caught.value.hint
    app.store.credentials.add("ci", Role.VIEWER, actor="ada")
    assert Client(make_server("0.0.0.0:0").site).get("/api/v1/me").status_code == 401


def test_a_proxy_is_trusted_from_named_addresses_alone(make_site):
    """Its header counts from there, and from nowhere else."""
    options = {"proxy_header": "X-User", "proxy_from": ["10.0.0.0/8"], "proxy_role": "operator"}
    site = make_site(**options)
    trusted = Client(site, client=("10.1.2.3", 50000))
    assert trusted.get("/api/v1/me", headers={"x-user": "ada"}).json()["data"] == {"name": "ada", "role": "operator"}
    assert trusted.get("/api/v1/me").status_code == 401
    assert trusted.get("/api/v1/me", headers={"x-user": "holdfast:worker"}).status_code == 401
    other = Client(site, client=("192.168.0.1", 50000))
    assert other.get("/api/v1/me", headers={"x-user": "ada"}).status_code == 401


@pytest.mark.parametrize(
    "options",
    [
        {"proxy_header": "X-User"},
        {"proxy_from": ["10.0.0.1"]},
        {"proxy_header": "X-User", "proxy_from": ["nowhere"]},
        {"hosts": "one.example"},
        {"colour": "red"},
    ],
)
def test_options_that_make_no_sense_are_refused(make_site, options):
    with pytest.raises(ConfigurationError):
        make_site(**options)


# -- corpora -----------------------------------------------------------------------------------

HOSTILE = [
    "'; DROP TABLE holdfast_job; --",
    '" OR 1=1 --',
    "%' OR '%'='",
    "\\'; SELECT pg_sleep(9); --",
    "../../../../etc/passwd",
    "..%2f..%2fetc%2fpasswd",
    "<script>alert(1)</script>",
    "${7*7}{{7*7}}",
    "a\r\nSet-Cookie: x=1",
    "\u202eevil",
    "x" * 1900,
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_only_text(admin, app, text):
    """In filters, names, labels and notes: it is stored or refused, never obeyed."""
    for path, query in (
        ("/jobs", {"filter": f"label={text}"}),
        ("/jobs", {"filter": text}),
        ("/schedule", {"name": text}),
        ("/acts", {"actor": text[:200]}),
        ("/batches/1/units", {"text": text[:200]}),
    ):
        answer = admin.get(f"/api/v1{path}", params=query)
        assert answer.status_code in (200, 400, 404), (path, answer.text)
        assert "set-cookie" not in answer.headers
    placed = admin.post("/api/v1/jobs", json={"kind": "mail", "payload": {"to": 1}, "label": text, "key": text})
    assert placed.status_code in (201, 400)
    admin.act("/queues/act", queue="q", paused=True, note=text)
    assert admin.read("/queues")["queues"]
    assert app.views.count(Selector()).count == (placed.status_code == 201)


@pytest.mark.parametrize(
    "path",
    [
        "/..%2f..%2fetc/passwd",
        "/static/..%2f..%2fserver.py",
        "/api/v1/%00",
        "/api/v1/jobs/1%0d%0aX: y",
        "//evil.example/",
    ],
)
def test_paths_lead_nowhere(viewer, path):
    answer = viewer.get(f"{HOST}{path}")
    assert answer.status_code in (303, 400, 404), answer.text
    assert "root:" not in answer.text


def test_a_body_may_not_lie_about_its_length(site, tokens):
    """It is counted as it comes, too."""

    def parts():
        for _ in range(40):
            yield b"x" * 65536

    headers = {"authorization": f"Bearer {tokens[Role.ADMIN]}", "content-type": "application/json"}
    answer = Client(site).post("/api/v1/jobs", content=parts(), headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "E_TOO_LARGE")


def test_a_stream_ends_when_its_token_is_revoked(site, tokens, app):
    """It is asked for again before anything is told."""
    import asyncio

    site.live = type(site.live)(site.look, every=0.05, alive=0.05)
    caller = site.authenticator.by_token(site.store, tokens[Role.VIEWER], None)

    async def listen():
        heard = []
        async for line in site.live.lines(lambda: site.authenticator.still(site.store, caller)):
            heard.append(line)
            if len(heard) == 2:
                await asyncio.to_thread(app.store.credentials.revoke, "viewer")
        return heard

    began = time.monotonic()
    assert len(asyncio.run(asyncio.wait_for(listen(), 60))) >= 2
    assert time.monotonic() - began < 60


def test_what_cannot_be_read_is_no_defect(admin, site):
    """An origin that is none, a form of too many fields, and numbers that no store has."""
    assert admin.post("/api/v1/queues/act", json={}, headers={"origin": "http://["}).status_code == 403
    fields = {f"field{n}": "x" for n in range(30)}
    assert Client(site).post("/login", data=fields).status_code == 400
    for number in ("9" * 5000, str(2**63)):
        for path in (f"/jobs/{number}", f"/batches/{number}", f"/api/v1/jobs/{number}", f"/api/v1/batches/{number}"):
            assert admin.get(path).status_code == 404, path[:40]
        for path in (f"/batches/{number}/act", f"/batches/{number}/units", f"/jobs/{number}/act"):
            assert admin.post(path).status_code == 404, path[:40]
    assert admin.get(f"/jobs/{2**63 - 1}").status_code == 404


def test_filters_that_pages_save_are_written_down(admin, site, app, tokens):
    """As those that the API saves are."""
    caller = site.authenticator.by_token(site.store, tokens[Role.ADMIN], None)
    form = {"form_token": site.authenticator.form_token(site.store, caller)}
    assert admin.post("/filters", data={**form, "name": "mine", "filter": "state=dead"}).status_code == 303
    assert admin.post("/filters/drop?name=mine", data=form).status_code == 303
    told = [(act.action, act.target, act.actor, act.via) for act in app.store.audit_log.page()]
    assert told == [("filter rm", "filter=mine", "admin", "web"), ("filter save", "filter=mine", "admin", "web")]


def test_guesses_that_come_at_once_are_counted_too(site, tokens):
    """No more of them are looked at than if they came one after the other."""
    wrong = "hf_00000000_" + "a" * 43
    begin = threading.Barrier(4 * GUESSES)

    def guess(_):
        begin.wait(60)
        try:
            site.authenticator.by_token(site.store, wrong, "10.0.0.9")
        except HttpError as problem:
            return problem.status

    with ThreadPoolExecutor(4 * GUESSES) as pool:
        statuses = list(pool.map(guess, range(4 * GUESSES)))
    assert statuses.count(429) >= GUESSES
    assert set(statuses) == {401, 429}


def test_who_signs_out_ends_the_session(site, tokens):
    """A copy of the cookie opens nothing, and open pages are told nothing more; other sessions stay."""
    client, other = Client(site), Client(site)
    for each in (client, other):
        each.post("/login", data={"token": tokens[Role.VIEWER]})
    cookie = client.cookies[COOKIE]
    caller = site.authenticator.caller(site.store, {}, cookie, None)
    assert site.authenticator.still(site.store, caller)
    form = {"form_token": site.authenticator.form_token(site.store, caller)}
    assert client.post("/logout", data=form).status_code == 303
    assert Client(site, cookies={COOKIE: cookie}).get("/api/v1/me").status_code == 401
    assert not site.authenticator.still(site.store, caller)
    assert other.get("/api/v1/me").status_code == 200


@pytest.mark.parametrize("path", ["/metrics", "/live"])
def test_programs_are_not_led_to_a_form(site, tokens, path):
    answer = Client(site).get(path)
    assert (answer.status_code, "www-authenticate" in answer.headers) == (401, True)


def test_a_foreign_session_does_not_keep_anyone_out(app, make_server):
    """Where all may come in: the cookie of another server on this machine is none of ours. With tokens it opens nothing."""
    client = Client(make_server("127.0.0.1:0").site, cookies={COOKIE: "a.1.b.c"})
    assert client.get("/api/v1/me").json()["data"]["role"] == "admin"
    assert client.get("/").status_code == 200
    app.store.credentials.add("ci", Role.VIEWER, actor="ada")
    assert client.get("/api/v1/me").status_code == 401


def test_a_look_waits_for_no_writer(site, make_site, tokens, app, real_database):
    """That its token was used is written down beside it; what signs forms was kept when the first server came."""
    assert Client(make_site(), tokens[Role.ADMIN]).get("/").status_code == 200
    with closing(sqlite3.connect(real_database.path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        for path in ("/api/v1/jobs", "/", "/jobs"):
            assert Client(site, tokens[Role.VIEWER]).get(path).status_code == 200
        assert unused(app)
        writer.execute("ROLLBACK")
    wait_until(lambda: not unused(app))


def test_a_look_waits_for_nobody_who_acts(site, tokens, real_database):
    """However many wait for a writer: they have threads of their own."""

    async def crowd(release):
        who = {"authorization": f"Bearer {tokens[Role.OPERATOR]}"}
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(site), base_url=HOST, headers=who) as client:
            job = {"kind": "mail", "payload": {"to": 1}}
            acts = [asyncio.create_task(client.post("/api/v1/jobs", json=job, timeout=None)) for _ in range(60)]
            finished, _ = await asyncio.wait(acts, timeout=0.5)
            assert not finished
            looked = await client.get("/api/v1/jobs", timeout=None)
            assert (looked.status_code, looked.json()["data"]["jobs"]) == (200, [])
            release()
            return {answer.status_code for answer in await asyncio.gather(*acts)}

    with closing(sqlite3.connect(real_database.path, isolation_level=None, check_same_thread=False)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        assert asyncio.run(crowd(lambda: writer.execute("ROLLBACK"))) == {201}


def unused(app):
    """Whether the viewer's token was never used."""
    return [each.last_used_at for each in app.store.credentials.list() if each.role is Role.VIEWER] == [None]
