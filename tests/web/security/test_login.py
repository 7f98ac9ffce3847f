"""The login page, and redirects to it."""

from __future__ import annotations

import pytest

from holdfast.domain.access.roles import Role
from tests.web.conftest import Client

#: Access does not depend on the backend.
pytestmark = pytest.mark.one_backend


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
