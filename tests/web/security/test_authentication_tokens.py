"""Tokens: verification, revocation, and the limit on wrong secrets."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from types import SimpleNamespace

import pytest

from holdfast.domain.access.roles import Role
from holdfast.web.security import failed_tries
from holdfast.web.security.failed_tries import MAX_FAILURES_PER_S
from holdfast.web.security.sessions import COOKIE
from holdfast.worker.metrics import TOKEN as METRICS_TOKEN
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


WRONG = "hf_00000000_" + "a" * 43


def test_wrong_secrets_are_limited_per_server(site, tokens, monkeypatch):
    """E6.5: a flat limit for tokens, cookies, links and the metrics token. Right ones are never delayed."""
    monkeypatch.setenv(METRICS_TOKEN, "short")
    stand_still(monkeypatch)
    stranger = Client(site, client=("127.0.0.1", 50000))
    tries = (
        lambda: stranger.get("/api/v1/me", headers={"authorization": f"Bearer {WRONG}"}),
        lambda: stranger.get("/api/v1/me", headers={"cookie": f"{COOKIE}=wrong"}),
        lambda: stranger.post("/login", data={"token": WRONG}),
        lambda: stranger.get("/metrics", headers={"authorization": "Bearer wrong"}),
        lambda: stranger.post("/sign-in", data={"link": "wrong", "name": "eve"}),
    )
    statuses = [tries[number % len(tries)]().status_code for number in range(MAX_FAILURES_PER_S)]
    assert set(statuses) == {401, 404}
    assert {attempt().status_code for attempt in tries} == {429}
    assert stranger.get("/metrics", headers={"authorization": "Bearer short"}).status_code == 429
    monkeypatch.setenv(METRICS_TOKEN, "m" * 16)
    scrape = stranger.get("/metrics", headers={"authorization": f"Bearer {'m' * 16}"})
    assert scrape.status_code == 200, "E6 is broken: strangers blind monitoring"
    assert tries[3]().status_code == 429
    assert Client(site, tokens[Role.VIEWER]).get("/api/v1/me").status_code == 200
    assert stranger.post("/login", data={"token": tokens[Role.VIEWER]}).status_code == 303


def test_the_limit_ends_after_a_second(site, tokens, monkeypatch):
    clock = stand_still(monkeypatch)
    for _ in range(MAX_FAILURES_PER_S):
        assert Client(site, WRONG).get("/api/v1/me").status_code == 401
    assert Client(site, WRONG).get("/api/v1/me").headers["retry-after"] == "1"
    clock[0] += 1.1
    assert Client(site, WRONG).get("/api/v1/me").status_code == 401


def stand_still(monkeypatch):
    """The clock of the limit, which the test moves."""
    clock = [1000.0]
    monkeypatch.setattr(failed_tries, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    return clock


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
