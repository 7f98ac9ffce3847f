"""Access: every route needs a caller, and every change a role."""

from __future__ import annotations

import asyncio
import time

import pytest

from holdfast.domain.access.roles import Role
from holdfast.errors import ConfigurationError
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


def test_where_changes_need_a_key_anyone_may_only_read(make_server):
    """HTTP is no way around the key of the command line."""
    client = Client(make_server("127.0.0.1:0", keyed=True).site)
    assert client.get("/api/v1/me").json()["data"]["role"] == "viewer"
    client.change("/queues/action", 403, queue="q", paused=True)


def test_another_address_is_refused_without_tokens(app, make_server):
    with pytest.raises(ConfigurationError, match="would be open to everyone") as caught:
        make_server("0.0.0.0:0")
    assert "holdfast token add" in caught.value.hint
    app.store.credentials.add("ci", Role.VIEWER, actor="ada")
    assert Client(make_server("0.0.0.0:0").site).get("/api/v1/me").status_code == 401


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


def test_a_stream_ends_when_its_token_is_revoked(site, tokens, app):
    """Access is checked before each event."""

    site.live = type(site.live)(site.read_changes, interval_s=0.05, keep_alive_s=0.05)
    caller = site.authenticator.by_token(site.store, tokens[Role.VIEWER], None)

    async def listen():
        lines = []
        async for line in site.live.lines(lambda: site.authenticator.is_current(site.store, caller)):
            lines.append(line)
            if len(lines) == 2:
                await asyncio.to_thread(app.store.credentials.revoke, "viewer")
        return lines

    began = time.monotonic()
    assert len(asyncio.run(asyncio.wait_for(listen(), 60))) >= 2
    assert time.monotonic() - began < 60


def test_filters_that_pages_save_are_written_down(admin, site, app, tokens):
    """The audit log has the same entries as for the API."""
    caller = site.authenticator.by_token(site.store, tokens[Role.ADMIN], None)
    form = {"form_token": site.authenticator.form_token(site.store, caller)}
    assert admin.post("/filters", data={**form, "name": "mine", "filter": "state=dead"}).status_code == 303
    assert admin.post("/filters/drop?name=mine", data=form).status_code == 303
    records = [(record.action, record.target, record.actor, record.via) for record in app.store.audit_log.page()]
    assert records == [("filter rm", "filter=mine", "admin", "web"), ("filter save", "filter=mine", "admin", "web")]
