"""Sessions: the login page, and cookies that are signed, expire and end."""

from __future__ import annotations

import pytest

from holdfast.domain.access.roles import Role
from holdfast.web.security.sessions import COOKIE
from tests.web.conftest import Client

#: Access does not depend on the backend.
pytestmark = pytest.mark.one_backend


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
    """Changed, extended and foreign cookies are refused."""
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


def test_who_signs_out_ends_the_session(site, tokens):
    """Copies of the cookie and open streams lose access; other sessions stay."""
    client, other = Client(site), Client(site)
    for each in (client, other):
        each.post("/login", data={"token": tokens[Role.VIEWER]})
    cookie = client.cookies[COOKIE]
    caller = site.authenticator.by_cookie(site.store, cookie)
    assert site.authenticator.is_current(site.store, caller)
    form = {"form_token": site.authenticator.form_token(site.store, caller)}
    assert client.post("/logout", data=form).status_code == 303
    assert Client(site, cookies={COOKIE: cookie}).get("/api/v1/me").status_code == 401
    assert not site.authenticator.is_current(site.store, caller)
    assert other.get("/api/v1/me").status_code == 200


def test_a_foreign_session_does_not_keep_anyone_out(app, make_server):
    """The cookie of another server on this machine is ignored while the site is open."""
    client = Client(make_server("127.0.0.1:0").site, cookies={COOKIE: "a.1.b.c"})
    assert client.get("/api/v1/me").json()["data"]["role"] == "admin"
    assert client.get("/").status_code == 200
    app.store.credentials.add("ci", Role.VIEWER, actor="ada")
    assert client.get("/api/v1/me").status_code == 401


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
