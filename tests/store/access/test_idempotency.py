"""Idempotency keys: one test per promise of store/access/idempotency.py."""

from __future__ import annotations


def test_a_request_is_carried_out_once(store, make_store):
    """Whoever comes second is told that it is under way, or what the answer was."""
    assert store.idempotency_keys.claim("ci", "key", "digest") is None
    assert make_store().idempotency_keys.claim("ci", "key", "digest").status is None
    store.idempotency_keys.keep("ci", "key", 201, '{"id": 1}')
    again = store.idempotency_keys.claim("ci", "key", "digest")
    assert (again.digest, again.status, again.body) == ("digest", 201, '{"id": 1}')
    assert store.idempotency_keys.claim("other", "key", "digest") is None
    store.idempotency_keys.release("other", "key")
    assert store.idempotency_keys.claim("other", "key", "digest") is None
    store.idempotency_keys.release("ci", "key")
    assert store.idempotency_keys.claim("ci", "key", "digest").status == 201
