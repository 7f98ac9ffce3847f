"""Tokens: verification, revocation, and the limit on failed logins."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from holdfast.domain.access.roles import Role
from holdfast.errors.http import HttpError, SlowDown
from holdfast.web.security.authentication import FREE_FAILURES, FailedLogins
from tests.support.processes import wait_until
from tests.web.conftest import Client

#: Access does not depend on the backend.
pytestmark = pytest.mark.one_backend


def test_a_revoked_token_opens_nothing_at_once(viewer, app):
    """Even if it was valid just before; revoking the last token does not open the site."""
    assert viewer.get("/api/v1/me").status_code == 200
    for role in Role:
        app.store.credentials.revoke(str(role))
    assert viewer.get("/api/v1/me").status_code == 401


def test_who_guesses_is_slowed_down_and_nobody_else(site, tokens):
    """By address; a token that was verified before is not delayed."""
    client = Client(site, tokens[Role.VIEWER])
    assert client.get("/api/v1/me").status_code == 200
    wrong = {"authorization": "Bearer hf_00000000_" + "a" * 43}
    statuses = [Client(site).get("/api/v1/me", headers=wrong).status_code for _ in range(FREE_FAILURES + 1)]
    assert statuses == [401] * FREE_FAILURES + [429]
    assert client.get("/api/v1/me").status_code == 200


def test_other_addresses_do_not_wait():
    failed = FailedLogins()
    for _ in range(FREE_FAILURES):
        failed.add("10.0.0.1")
    with pytest.raises(SlowDown):
        failed.check("10.0.0.1")
    failed.check("10.0.0.2")
    failed.clear("10.0.0.1")
    failed.check("10.0.0.1")


def test_guesses_that_come_at_once_are_counted_too(site, tokens):
    """Parallel attempts are limited like sequential ones."""
    wrong = "hf_00000000_" + "a" * 43
    begin = threading.Barrier(4 * FREE_FAILURES)

    def guess(_):
        begin.wait(60)
        try:
            site.authenticator.by_token(site.store, wrong, "10.0.0.9")
        except HttpError as problem:
            return problem.http_status

    with ThreadPoolExecutor(4 * FREE_FAILURES) as pool:
        statuses = list(pool.map(guess, range(4 * FREE_FAILURES)))
    assert statuses.count(429) >= FREE_FAILURES
    assert set(statuses) == {401, 429}


def test_a_read_waits_for_no_writer(site, make_site, tokens, app, real_database):
    """The use of a token is written in the background, and the signing secret exists already."""
    assert Client(make_site(), tokens[Role.ADMIN]).get("/").status_code == 200
    with closing(sqlite3.connect(real_database.path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        for path in ("/api/v1/jobs", "/", "/jobs"):
            assert Client(site, tokens[Role.VIEWER]).get(path).status_code == 200
        assert unused(app)
        writer.execute("ROLLBACK")
    wait_until(lambda: not unused(app))


def unused(app):
    """Whether the token of the viewer was never used."""
    return [each.last_used_at for each in app.store.credentials.list() if each.role is Role.VIEWER] == [None]
