"""Inboxes over HTTP."""

from __future__ import annotations

from tests.store.batches.test_batches import leave
from tests.store.batches.test_inbox import BOX, hand_over


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
