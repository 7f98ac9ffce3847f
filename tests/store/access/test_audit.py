"""The audit log: one test per promise of store/access/audit.py."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.domain.access.roles import Via
from holdfast.errors import InvalidInput
from holdfast.store.jobs.retention import Retention
from tests.support.jobs import prune


def act(store, action="cancel", target="id=1", **told):
    return store.audit_log.write(action, target, **{"actor": "ada", "via": Via.CLI, **told})


def test_acts_come_newest_first_in_pages(store, clock):
    """With who, by which way, what, to what, how many and why."""
    for n in range(3):
        act(store, count=n, note=f"why {n}")
    first, second = store.audit_log.page(limit=2)
    assert (first.count, first.note, first.actor, first.via, first.at) == (2, "why 2", "ada", "cli", clock.now())
    (last,) = store.audit_log.page(before=second.id, limit=2)
    assert (last.action, last.target, last.count) == ("cancel", "id=1", 0)


def test_acts_by_person_and_target(store):
    act(store)
    act(store, actor="bob", target="queue=Mail", via=Via.API)
    assert [found.actor for found in store.audit_log.page(actor="bob")] == ["bob"]
    assert [found.target for found in store.audit_log.page(text="mail")] == ["queue=Mail"]
    assert store.audit_log.page(text="mail", actor="ada") == []


def test_an_act_needs_a_person(store):
    with pytest.raises(InvalidInput, match="no person"):
        act(store, actor="holdfast:worker")


def test_acts_and_answers_are_forgotten_in_their_time(store, clock):
    act(store)
    assert store.idempotency_keys.claim("c", "k", "d") is None
    clock.advance(hours=23)
    assert prune(store, "audit entries", "responses") == 0
    clock.advance(hours=2)
    assert prune(store, "audit entries", "responses") == 1
    assert store.idempotency_keys.claim("c", "k", "d") is None
    clock.advance(days=400)
    assert prune(store, "audit entries", "responses", retention=Retention(audit=timedelta(0))) == 1
    assert len(store.audit_log.page()) == 1
    assert prune(store, "audit entries", "responses") == 1
    assert store.audit_log.page() == []
