"""Access: every route needs a caller, and every change a role."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import pytest

from holdfast.domain.access.roles import Role
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import ConfigurationError, StoreUnavailable
from holdfast.web.api.openapi import BASE
from holdfast.web.api.router import ENDPOINTS
from holdfast.web.security.authentication import PUBLIC_PATHS
from tests.web.conftest import Client, all_routes

#: Access does not depend on the backend.
pytestmark = pytest.mark.one_backend
CHANGES = [each for each in ENDPOINTS if each.method == "POST"]


def test_nothing_but_the_way_in_is_open(site, tokens):
    """Every route but health and login requires authentication."""
    anonymous = Client(site)
    for path, methods in all_routes(site):
        if path in PUBLIC_PATHS:
            continue
        for method in methods - {"HEAD"}:
            answer = anonymous.request(method, path, headers={"content-type": "application/json"})
            assert answer.status_code in (401, 303), (method, path, answer.status_code)
            if answer.status_code == 303:
                assert answer.headers["location"].startswith("/login?next=")


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
    sent = {name: value for name, value in body.items() if name in fields}
    sent |= {"request": "stop"} if "request" in fields else {}
    answer = viewer.post(f"{BASE}{endpoint.path.replace('{id:int}', '1')}", json=sent)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "E_FORBIDDEN")
    assert app.store.audit_log.page() == []


def test_a_site_that_is_mounted_is_never_open(site):
    """Even without any token: the server of an application may be reachable from anywhere."""
    assert Client(site).get("/api/v1/me").status_code == 401


def test_nobody_is_let_in_on_this_machine_either(app, make_server):
    """E6.1: neither another user of the machine nor a stranger behind a proxy that sends no header of its own."""
    site = make_server("127.0.0.1:0").site
    local = Client(site, client=("127.0.0.1", 50000))
    nginx = {"host": "127.0.0.1:8320", "connection": "close"}  # what `proxy_pass http://127.0.0.1:8320` sends
    for headers in ({}, nginx, {"x-forwarded-for": "10.0.0.1"}):
        assert local.get("/api/v1/me", headers=headers).status_code == 401
        assert local.get("/", headers=headers).headers["location"].startswith("/login")
        body = {"kind": "command", "payload": {"argv": ["id"], "cwd": "/"}}
        assert local.post("/api/v1/jobs", json=body, headers=headers).status_code == 401
    assert app.views.count(Selector()).count == 0
    assert app.store.audit_log.page() == []


def test_a_command_needs_a_person_who_is_signed_in(admin, operator, viewer, app):
    """E6.1: its audit entry names them."""
    body = {"kind": "command", "payload": {"argv": ["id"], "cwd": "/"}}
    assert viewer.post("/api/v1/jobs", json=body).status_code == 403
    assert operator.post("/api/v1/jobs", json=body).status_code == 403
    assert admin.post("/api/v1/jobs", json=body).status_code == 201
    assert [entry.actor for entry in app.store.audit_log.page()] == ["admin"]


def test_another_address_is_refused_without_tokens(app, make_server):
    with pytest.raises(ConfigurationError, match="no one could sign in") as caught:
        make_server("0.0.0.0:0")
    assert "holdfast token add" in caught.value.hint
    app.store.credentials.add("ci", Role.VIEWER, actor="ada")
    assert Client(make_server("0.0.0.0:0").site).get("/api/v1/me").status_code == 401


def test_strangers_learn_nothing_about_a_store_that_is_down(site, tokens, monkeypatch):
    """E6.5: an error of the store names its host and user; it goes to the log."""

    def down():
        raise StoreUnavailable("connection to server at db.internal, user shop, failed")

    monkeypatch.setattr(site.authenticator, "_uses", None)
    monkeypatch.setattr(type(site), "store", property(lambda _: down()))
    for client, status in ((Client(site), 401), (Client(site, tokens[Role.ADMIN]), 503)):
        answer = client.get("/api/v1/me")
        assert (answer.status_code, "db.internal" in answer.text) == (status, False)
    for path, form in (("/login", {"token": tokens[Role.ADMIN]}), ("/metrics", None)):
        headers = {"authorization": f"Bearer {tokens[Role.ADMIN]}"}
        answer = Client(site).post(path, data=form) if form else Client(site).get(path, headers=headers)
        assert (answer.status_code, "db.internal" in answer.text) == (503, False), path


def test_a_proxy_is_trusted_from_named_addresses_alone(make_site):
    """The header of any other address is ignored."""
    options = {"proxy_header": "X-User", "proxy_from": ["10.0.0.0/8"], "proxy_role": "operator"}
    site = make_site(**options)
    trusted = Client(site, client=("10.1.2.3", 50000))
    assert trusted.get("/api/v1/me", headers={"x-user": "ada"}).json()["data"] == {"name": "ada", "role": "operator"}
    assert trusted.get("/api/v1/me").status_code == 401
    assert trusted.get("/api/v1/me", headers={"x-user": "holdfast:worker"}).status_code == 401
    other = Client(site, client=("192.168.0.1", 50000))
    assert other.get("/api/v1/me", headers={"x-user": "ada"}).status_code == 401


PROXY = {"proxy_header": "X-User", "proxy_from": ["10.0.0.0/8"]}


def test_two_headers_of_a_proxy_are_refused(make_site, tokens):
    """E6.4: one of them is the client's own, and nobody knows which. A token does not help such a request."""
    groups = {"proxy_groups_header": "X-Groups", "proxy_roles": {"ops": "admin"}}
    client = Client(make_site(**PROXY, **groups), client=("10.1.2.3", 50000))
    token = ("authorization", f"Bearer {tokens[Role.ADMIN]}")
    for names in (("x-user", "x-user"), ("x-user", "X-USER"), ("x-groups", "x-groups")):
        headers = [("x-user", "ada")] * (names[0] == "x-groups") + [(name, "ada") for name in names]
        answer = client.get("/api/v1/me", headers=[*headers, token])
        assert answer.status_code == 401, "E6 is broken: a client may name itself beside its proxy"
        assert "more than once" in answer.text


def test_a_header_of_a_proxy_holds_one_name(make_site, tokens):
    """W15: Envoy and others join two headers by a comma. A token does not help such a request."""
    client = Client(make_site(**PROXY, proxy_role="admin"), client=("10.1.2.3", 50000))
    token = ("authorization", f"Bearer {tokens[Role.ADMIN]}")
    for name in ("root,ada", "root, ada", ",ada", "ada,"):
        answer = client.get("/api/v1/me", headers=[("x-user", name), token])
        assert answer.status_code == 401, "E6 is broken: a client may name itself beside its proxy"
        assert "more than one name" in answer.text


@pytest.mark.parametrize(
    ("default", "groups", "role"),
    [
        ("none", "staff", "viewer"),
        ("none", "staff, ops", "operator"),
        ("operator", "staff", "operator"),
        ("viewer", "", "viewer"),
        ("none", "guests", None),
        ("none", "", None),
    ],
)
def test_groups_of_a_proxy_have_roles(make_site, default, groups, role):
    """E6.4: the highest of them; who is in none has the default, or is refused."""
    options = {"proxy_groups_header": "X-Groups", "proxy_roles": {"staff": "viewer", "ops": "operator"}}
    client = Client(make_site(**PROXY, **options, proxy_role=default), client=("10.1.2.3", 50000))
    answer = client.get("/api/v1/me", headers={"x-user": "ada", "x-groups": groups})
    assert answer.status_code == (200 if role else 403)
    if role:
        assert answer.json()["data"] == {"name": "ada", "role": role}


@pytest.mark.parametrize(
    "options",
    [
        {"proxy_header": "X-User"},
        {"proxy_from": ["10.0.0.1"]},
        {"proxy_header": "X-User", "proxy_from": ["nowhere"]},
        {**PROXY, "proxy_groups_header": "X-Groups"},
        {**PROXY, "proxy_roles": {"ops": "admin"}},
        {"proxy_groups_header": "X-Groups", "proxy_roles": {"ops": "admin"}},
        {"hosts": "one.example"},
        {"colour": "red"},
    ],
)
def test_options_that_make_no_sense_are_refused(make_site, options):
    with pytest.raises(ConfigurationError):
        make_site(**options)


def test_a_stream_ends_when_its_token_is_revoked(site, tokens, app):
    """Access is checked before each event."""
    confirm = partial(site.authenticator.confirm, site.store)
    site.live = type(site.live)(site.read_changes, confirm, interval_s=0.05, keep_alive_s=0.05)
    caller = site.authenticator.by_token(site.store, tokens[Role.VIEWER])

    async def listen():
        lines = []
        async for line in site.live.lines(caller):
            lines.append(line)
            if len(lines) == 2:
                await asyncio.to_thread(app.store.credentials.revoke, "viewer")
        return lines

    began = time.monotonic()
    assert len(asyncio.run(asyncio.wait_for(listen(), 60))) >= 2
    assert time.monotonic() - began < 60


def test_filters_that_pages_save_are_written_down(admin, site, app, tokens):
    """The audit log has the same entries as for the API."""
    caller = site.authenticator.by_token(site.store, tokens[Role.ADMIN])
    form = {"form_token": site.authenticator.form_token(site.store, caller)}
    assert admin.post("/filters", data={**form, "name": "mine", "filter": "state=dead"}).status_code == 303
    assert admin.post("/filters/drop?name=mine", data=form).status_code == 303
    records = [(record.action, record.target, record.actor, record.via) for record in app.store.audit_log.page()]
    assert records == [("filter rm", "filter=mine", "admin", "web"), ("filter save", "filter=mine", "admin", "web")]
