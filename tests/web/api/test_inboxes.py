"""Inboxes over HTTP."""

from __future__ import annotations

import pytest

from holdfast.domain.access.roles import Role
from holdfast.web.security.authorization import INBOX_PATHS
from tests.store.batches.test_batches import leave
from tests.store.batches.test_inbox import BOX, hand_over
from tests.web.conftest import Client, all_routes

#: Paths that answer strangers too.
PUBLIC = {"/healthz", "/readyz", "/login", "/sign-in"}


@pytest.fixture
def limited(site, app):
    """A consumer whose token is limited to another inbox than the one that has results."""
    return Client(site, app.store.credentials.add("browser", Role.OPERATOR, actor="root", inbox="pickup/ada"))


def test_a_program_consumes_results(operator, viewer, app):
    """E4, B13: exactly one consumer has a result; it is acknowledged by its receipt."""
    leave(app.store, hand_over(app.store, 1, 2))
    (listed,) = viewer.read("/inboxes")["inboxes"]
    assert (listed["inbox"], listed["results"], listed["taken"]) == (BOX, 2, 0)
    assert [result["key"] for result in viewer.read("/inboxes/results", inbox=BOX)["results"]] == [1, 2]
    viewer.change("/inboxes/take", 403, inbox=BOX)
    (one,) = operator.change("/inboxes/take", inbox=BOX)["results"]
    (two,) = operator.change("/inboxes/take", inbox=BOX, limit=5, lease="5m")["results"]
    assert (one["value"], two["value"]) == ({"n": 1}, {"n": 2})
    assert operator.change("/inboxes/take", inbox=BOX)["results"] == []
    stale = f"{two['receipt'].partition('.')[0]}.0"
    settled = operator.change("/inboxes/action", action="accept", receipts=[one["receipt"], stale])
    assert (settled["ids"], settled["unchanged"][0]["ids"]) == ([one["receipt"]], [stale])
    operator.change("/inboxes/action", 409, action="accept", receipts=[one["receipt"]])
    operator.change("/inboxes/action", 400, action="accept", receipts=["one"])
    viewer.change("/inboxes/action", 403, action="refuse", receipts=[two["receipt"]])
    operator.change("/inboxes/action", action="refuse", receipts=[two["receipt"]], note="no", dry_run=True)
    operator.change("/inboxes/action", action="refuse", receipts=[two["receipt"]], note="no")
    assert app.store.batches.get(1).state == "partial"
    assert viewer.read("/inboxes")["inboxes"] == []


def test_a_repeated_take_returns_the_same_results(operator, app):
    """E4: a consumer whose answer was lost asks again under its Idempotency-Key, and loses no result."""
    hand_over(app.store, 1, 2)
    headers = {"Idempotency-Key": "take-1"}
    first = operator.change("/inboxes/take", headers=headers, inbox=BOX)
    assert operator.change("/inboxes/take", headers=headers, inbox=BOX) == first
    assert app.store.inbox.depths()[0].taken == 1


def test_a_token_of_an_inbox_reaches_nothing_else(limited, site):
    """OPS 1.55: every route of the site, by every method, refuses it, but for the three that serve one inbox."""
    known = [(path, method) for path, methods in all_routes(site) for method in sorted(methods)]
    assert {path for path, _ in known} >= INBOX_PATHS
    for path, method in known:
        if path in PUBLIC:
            continue
        answer = limited.request(method, path, params={"inbox": "pickup/ada"}, json={})
        expected = {200, 400} if path in INBOX_PATHS else {403}
        assert answer.status_code in expected, f"B13 is broken: {method} {path} answers {answer.status_code}"
    assert limited.post("/api/v1/inboxes/take/", json={"inbox": "pickup/ada"}).status_code == 403, "by its exact path"


def test_a_token_of_an_inbox_cannot_sign_in(limited, app):
    """A session would have its role, and no limit."""
    token = limited.headers["authorization"].removeprefix("Bearer ")
    answer = limited.post("/login", data={"token": token})
    assert (answer.status_code, "set-cookie" in answer.headers) == (403, False), "B13 is broken: it has a session"


def test_a_token_of_an_inbox_reaches_no_result_of_another(limited, operator, app):
    """Neither by the name of the inbox, nor by a receipt of somebody else, free or taken."""
    leave(app.store, hand_over(app.store, 1, 2))
    (mine,) = operator.change("/inboxes/take", inbox=BOX)["results"]
    free = operator.read("/inboxes/results", inbox=BOX)["results"][0]["receipt"]
    assert limited.get("/api/v1/inboxes/results", params={"inbox": BOX}).status_code == 403
    limited.change("/inboxes/take", 403, inbox=BOX)
    limited.change("/inboxes/take", 403, headers={"Idempotency-Key": "k"}, inbox=BOX)
    for receipts in ([mine["receipt"]], [free], [mine["receipt"], free]):
        for dry_run in (True, False):
            answer = limited.post(
                "/api/v1/inboxes/action", json={"action": "accept", "receipts": receipts, "dry_run": dry_run}
            )
            assert answer.status_code == 409, f"B13 is broken: a result of another inbox answers {answer.status_code}"
    operator.change("/inboxes/action", action="accept", receipts=[mine["receipt"]])


def test_a_token_of_an_inbox_consumes_its_results(site, app):
    """Take, accept and refuse, with its name in the audit log; a viewer only looks."""
    leave(app.store, hand_over(app.store, 1, 2))
    consumer = Client(site, app.store.credentials.add("own", Role.OPERATOR, actor="root", inbox=BOX))
    viewer = Client(site, app.store.credentials.add("look", Role.VIEWER, actor="root", inbox=BOX))
    one, two = consumer.change("/inboxes/take", inbox=BOX, limit=2)["results"]
    assert len(viewer.read("/inboxes/results", inbox=BOX)["results"]) == 2
    viewer.change("/inboxes/take", 403, inbox=BOX)
    consumer.change("/inboxes/action", action="accept", receipts=[one["receipt"]])
    consumer.change("/inboxes/action", action="refuse", receipts=[two["receipt"]], note="no")
    assert app.store.batches.get(1).state == "partial"
    assert [entry.actor for entry in app.store.audit_log.page()[:3]] == ["own"] * 3
