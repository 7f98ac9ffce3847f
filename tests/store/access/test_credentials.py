"""Credentials: one test per promise of store/access/credentials.py."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest

from holdfast.domain.access.roles import Role
from holdfast.domain.access.tokens import is_secret_of, prefix_of
from holdfast.domain.retention import Retention
from holdfast.errors import Conflict, InvalidInput, NotFound
from tests.support.jobs import prune


def test_a_token_is_found_by_its_prefix(store):
    """The store keeps the hash, and nothing of the token itself."""
    assert not store.credentials.exist()
    text = store.credentials.add("ci", Role.OPERATOR, actor="ada")
    found = store.credentials.find(prefix_of(text))
    assert (found.name, found.role) == ("ci", Role.OPERATOR)
    assert is_secret_of(text, found.hash)
    assert store.credentials.exist()
    assert store.credentials.find("hf_nobody00") is None
    (kept,) = store.credentials.list()
    assert text.removeprefix(kept.prefix) not in repr(kept)


def test_a_token_may_be_limited_to_an_inbox(store):
    """It is kept with the token; an admin has no such limit."""
    text = store.credentials.add("browser", Role.OPERATOR, actor="ada", inbox="pickup/ada")
    assert store.credentials.find(prefix_of(text)).inbox == "pickup/ada"
    assert [each.inbox for each in store.credentials.list()] == ["pickup/ada"]
    with pytest.raises(InvalidInput):
        store.credentials.add("root", Role.ADMIN, actor="ada", inbox="pickup/ada")


def test_names_of_tokens_are_theirs_while_they_hold(store):
    store.credentials.add("ci", Role.VIEWER, actor="ada")
    with pytest.raises(Conflict, match="'ci' already"):
        store.credentials.add("ci", Role.VIEWER, actor="ada")
    store.credentials.revoke("ci")
    store.credentials.add("ci", Role.ADMIN, actor="ada")
    assert [each.role for each in store.credentials.list() if each.revoked_at is None] == [Role.ADMIN]


def test_a_revoked_token_stays_for_the_record(store, clock):
    """It opens nothing, and the audit log can still be read with it."""
    prefix = prefix_of(store.credentials.add("ci", Role.ADMIN, actor="ada"))
    store.credentials.revoke(prefix)
    assert store.credentials.find(prefix) is None
    assert not store.credentials.exist()
    assert [each.revoked_at for each in store.credentials.list()] == [clock.now()]
    clock.advance(days=364)
    store.pruner.prune()
    assert len(store.credentials.list()) == 1
    with pytest.raises(NotFound, match="no token 'ci'"):
        store.credentials.revoke("ci")


def test_use_is_told_to_the_minute(store, clock):
    prefix = prefix_of(store.credentials.add("ci", Role.VIEWER, actor="ada"))
    store.credentials.record_use(prefix)
    first = clock.now()
    clock.advance(seconds=30)
    store.credentials.record_use(prefix)
    assert store.credentials.list()[0].last_used_at == first
    clock.advance(seconds=31)
    store.credentials.record_use(prefix)
    assert store.credentials.list()[0].last_used_at == clock.now()


def test_all_servers_share_one_secret(store, make_store):
    assert store.credentials.server_secret() == make_store().credentials.server_secret()
    assert len(store.credentials.server_secret()) >= 32


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


def test_revoked_tokens_go_with_the_audit_log(store, clock):
    """G4: valid ones stay, however old."""
    for name in ("old", "new", "valid"):
        store.credentials.add(name, Role.VIEWER, actor="ada")
    store.credentials.revoke("old")
    clock.advance(days=300)
    store.credentials.revoke("new")
    clock.advance(days=66)
    assert prune(store, "revoked tokens", retention=Retention(audit=timedelta(0))) == 0
    assert prune(store, "revoked tokens") == 1, "G4 is broken"
    assert {each.name for each in store.credentials.list()} == {"new", "valid"}
