"""Credentials: one test per promise of store/access/credentials.py."""

from __future__ import annotations

from contextlib import suppress

import pytest

from holdfast.domain.access.roles import Role
from holdfast.domain.access.tokens import is_secret_of, split_token
from holdfast.errors import Conflict, NotFound


def test_a_token_opens_by_its_prefix(store):
    """The store keeps the hash; the door says all that a request needs."""
    assert not store.credentials.access_state(None).locked
    text = store.credentials.add("ci", Role.OPERATOR, actor="ada")
    prefix, secret = split_token(text)
    door = store.credentials.access_state(prefix)
    assert (door.locked, door.name, door.role, door.revoked_at) == (True, "ci", Role.OPERATOR, None)
    assert is_secret_of(secret, salt=door.salt, expected=door.hash)
    assert store.credentials.access_state("hf_nobody00").prefix is None
    (kept,) = store.credentials.list()
    assert secret not in repr(kept)


def test_names_of_tokens_are_theirs_while_they_hold(store):
    store.credentials.add("ci", Role.VIEWER, actor="ada")
    with pytest.raises(Conflict, match="'ci' already"):
        store.credentials.add("ci", Role.VIEWER, actor="ada")
    store.credentials.revoke("ci")
    store.credentials.add("ci", Role.ADMIN, actor="ada")
    assert [each.role for each in store.credentials.list() if each.revoked_at is None] == [Role.ADMIN]


def test_revoking_the_last_token_never_opens_the_door(store, clock):
    text = store.credentials.add("ci", Role.ADMIN, actor="ada")
    prefix, _ = split_token(text)
    store.credentials.revoke(prefix)
    assert store.credentials.access_state(prefix).revoked_at == clock.now()
    assert store.credentials.access_state(None).locked
    clock.advance(days=5000)
    store.pruner.prune()
    assert store.credentials.access_state(None).locked
    with pytest.raises(NotFound, match="no token 'ci'"):
        store.credentials.revoke("ci")


def test_use_is_told_to_the_minute(store, clock):
    prefix, _ = split_token(store.credentials.add("ci", Role.VIEWER, actor="ada"))
    store.credentials.record_use(prefix)
    first = clock.now()
    clock.advance(seconds=30)
    store.credentials.record_use(prefix)
    assert store.credentials.list()[0].last_used_at == first
    clock.advance(seconds=31)
    store.credentials.record_use(prefix)
    assert store.credentials.list()[0].last_used_at == clock.now()


def test_all_servers_share_one_session_secret(store, make_store):
    assert store.credentials.session_secret("one") == "one"
    assert make_store().credentials.session_secret("two") == "one"
    assert store.credentials.access_state(None).secret == "one"


def test_a_request_is_carried_out_once(store):
    """K73: a key is kept with its response, or not at all; every credential has its own keys."""
    with suppress(ZeroDivisionError), store.single_transaction() as inside:
        assert inside.idempotency_keys.claim("ci", "key", "digest") is None
        raise ZeroDivisionError
    with store.single_transaction() as inside:
        assert inside.idempotency_keys.claim("ci", "key", "digest") is None
        inside.idempotency_keys.keep("ci", "key", 201, '{"id": 1}')
    again = store.idempotency_keys.claim("ci", "key", "digest")
    assert (again.digest, again.status, again.body) == ("digest", 201, '{"id": 1}')
    assert store.idempotency_keys.claim("other", "key", "digest") is None
