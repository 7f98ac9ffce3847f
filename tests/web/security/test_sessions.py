"""Sessions: signing in with tokens and links, and cookies that end."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.domain.access.roles import Role
from holdfast.domain.access.tokens import hash_secret
from holdfast.web.security.sessions import COOKIE
from tests.web.conftest import Client

#: Access does not depend on the backend.
pytestmark = pytest.mark.one_backend
HOUR = timedelta(hours=1)


def test_a_session_ends_with_its_token(site, tokens, app, make_site):
    """A cookie replaces the token, on every server of the store, until the token is revoked."""
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
    """Changed and foreign cookies, tokens and links are not cookies of a session."""
    client = Client(site)
    client.post("/login", data={"token": tokens[Role.VIEWER]})
    real = client.cookies[COOKIE]
    link = site.app.store.sessions.add_link(Role.ADMIN, lifetime=HOUR)
    for forged in ("", "x", real[:-1], f"{real}é", real * 50, tokens[Role.ADMIN], link, hash_secret(real)):
        answer = Client(site).get("/api/v1/me", headers={"cookie": f"{COOKIE}={forged}".encode()})
        assert answer.status_code == 401, forged


def test_who_signs_out_ends_the_session(site, make_site, tokens):
    """E6.5: copies of the cookie lose access on every server, also on one that starts later; other sessions stay."""
    client, other = Client(site), Client(site)
    for each in (client, other):
        each.post("/login", data={"token": tokens[Role.VIEWER]})
    cookie = client.cookies[COOKIE]
    caller = site.authenticator.by_cookie(site.store, cookie)
    assert site.authenticator.confirm(site.store, {caller}) == {caller}
    form = {"form_token": site.authenticator.form_token(site.store, caller)}
    assert client.post("/logout", data=form).status_code == 303
    for server in (site, make_site()):
        assert Client(server, cookies={COOKIE: cookie}).get("/api/v1/me").status_code == 401
    assert not site.authenticator.confirm(site.store, {caller})
    assert other.get("/api/v1/me").status_code == 200


def test_a_link_signs_in_once(site, app):
    """E6.1: showing the page uses nothing up, since browsers and chats load links in advance; sending the form does."""
    link = app.store.sessions.add_link(Role.ADMIN, lifetime=HOUR)
    first, second = (Client(site, client=("127.0.0.1", 50000)) for _ in range(2))
    for _ in range(2):
        assert link in first.get("/sign-in", params={"link": link}).text
    signed_in = first.post("/sign-in", data={"link": link, "name": "ada"})
    assert (signed_in.status_code, signed_in.headers["location"]) == (303, "/")
    assert "HttpOnly" in signed_in.headers["set-cookie"]
    assert first.get("/").status_code == 200
    assert first.get("/api/v1/me").json()["data"] == {"name": "ada", "role": "admin"}
    assert second.post("/sign-in", data={"link": link, "name": "eve"}).status_code == 404
    first.change("/queues/action", queue="q", action="pause", create=True)
    assert [entry.actor for entry in app.store.audit_log.page()] == ["ada", "ada"]


def test_a_link_works_on_the_machine_of_the_server_alone(site, app):
    """Elsewhere it would cross a network in clear text. A refusal does not use it up."""
    link = app.store.sessions.add_link(Role.ADMIN, lifetime=HOUR)
    elsewhere = Client(site, client=("10.0.0.7", 50000))
    assert elsewhere.post("/sign-in", data={"link": link, "name": "ada"}).status_code == 403
    local, proxied = Client(site, client=("127.0.0.1", 50000)), {"x-forwarded-for": "10.0.0.7"}
    assert local.post("/sign-in", data={"link": link, "name": "ada"}, headers=proxied).status_code == 403
    assert Client(site, client=("::1", 50000)).post("/sign-in", data={"link": link, "name": "ada"}).status_code == 303


def test_a_link_from_another_site_signs_nobody_in(site, app):
    """Otherwise a page elsewhere could sign a person in as its author."""
    link = app.store.sessions.add_link(Role.ADMIN, lifetime=HOUR)
    client = Client(site, client=("127.0.0.1", 50000))
    form, foreign = {"link": link, "name": "eve"}, {"origin": "http://evil.example"}
    assert client.post("/sign-in", data=form, headers=foreign).status_code == 403


def test_where_tls_is_on_cookies_are_bound_to_the_host(make_site, tokens):
    """E6.5: browsers take a __Host- cookie by HTTPS, for the path / and without a domain only."""
    client = Client(make_site(secure=True))
    cookie = client.post("/login", data={"token": tokens[Role.VIEWER]}).headers["set-cookie"]
    assert cookie.startswith("__Host-holdfast_session=")
    assert "Path=/;" in cookie
    assert "Secure" in cookie
    assert "domain" not in cookie.lower()
    value = cookie.partition("=")[2].partition(";")[0]
    headers = {"cookie": f"__Host-holdfast_session={value}"}
    assert Client(make_site(secure=True)).get("/api/v1/me", headers=headers).status_code == 200
    assert Client(make_site(secure=True)).get("/api/v1/me", headers={"cookie": f"{COOKIE}={value}"}).status_code == 401


def test_dashboards_on_one_host_have_cookies_of_their_own(site, tokens):
    """Browsers share cookies between ports: signing in at one must not sign out of the other."""
    cookies = [
        Client(site).post("/login", data={"token": tokens[Role.VIEWER]}, headers={"host": f"localhost:{port}"})
        for port in (8320, 8321)
    ]
    names = [answer.headers["set-cookie"].partition("=")[0] for answer in cookies]
    assert names == [f"{COOKIE}-8320", f"{COOKIE}-8321"]


@pytest.mark.parametrize(
    "requested", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "/a\r\nb"]
)
def test_signing_in_leads_nowhere_else(site, tokens, requested):
    entered = Client(site).post("/login", data={"token": tokens[Role.VIEWER], "next": requested})
    assert entered.headers["location"] == "/"


def test_the_login_page_escapes_hostile_text(site, tokens):
    shown = Client(site).get("/login", params={"next": '/"><script>alert(1)</script>'})
    assert "<script>" not in shown.text
    wrong = Client(site).post("/login", data={"token": '"><script>', "next": "/"})
    assert (wrong.status_code, "<script>" in wrong.text) == (401, False)


@pytest.mark.parametrize("path", ["/metrics", "/live"])
def test_metrics_and_streams_do_not_redirect(site, tokens, path):
    answer = Client(site).get(path)
    assert (answer.status_code, "www-authenticate" in answer.headers) == (401, True)
