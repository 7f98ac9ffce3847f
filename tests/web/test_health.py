"""Health checks of the site."""

from __future__ import annotations

from tests.web.conftest import Client


def test_health_needs_no_token(site):
    """A probe has none."""
    anonymous = Client(site)
    assert anonymous.get("/healthz").text == "ok\n"
    assert anonymous.get("/readyz").text == "ok\n"
