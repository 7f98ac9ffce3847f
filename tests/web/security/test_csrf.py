"""CSRF protection: the tokens of forms."""

from __future__ import annotations

import pytest

from holdfast.domain.access.roles import Role
from tests.web.conftest import Client

#: Access does not depend on the backend.
pytestmark = pytest.mark.one_backend


def test_a_form_of_another_site_is_refused(site, tokens):
    """The CSRF check: forms need the token of their own pages, and JSON is refused."""
    client = Client(site, tokens[Role.ADMIN])
    assert client.post("/logout", data={"form_token": "guess"}).status_code == 403
    assert client.post("/logout", json={}).status_code == 403
    caller = site.authenticator.by_token(site.store, tokens[Role.ADMIN])
    right = site.authenticator.form_token(site.store, caller)
    assert client.post("/logout", data={"form_token": right}).status_code == 303
    other = site.authenticator.by_token(site.store, tokens[Role.VIEWER])
    assert site.authenticator.form_token(site.store, other) != right
