"""Sessions: one test per promise of store/access/sessions.py."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from holdfast.domain.access.roles import Role
from holdfast.domain.access.tokens import prefix_of
from holdfast.errors import Conflict, InvalidInput, NotFound
from holdfast.store.engine.operation import query

HOUR = timedelta(hours=1)


def test_a_session_ends_by_itself(store, make_store, clock):
    """Every process with the store finds it by its cookie, until it expires; retention deletes its row."""
    cookie = store.sessions.open("ada", Role.OPERATOR, lifetime=HOUR)
    found = make_store().sessions.find(cookie)
    assert (found.name, found.role, found.prefix) == ("ada", Role.OPERATOR, None)
    assert cookie not in repr(found)
    assert store.sessions.find(cookie + "x") is None
    clock.advance(seconds=3601)
    assert store.sessions.find(cookie) is None
    store.sessions.open("ada", Role.OPERATOR, lifetime=HOUR)
    assert store.sessions.close_all("ada") == 1, "the expired session is still there"


def test_signing_out_holds_on_every_server(store, make_store):
    """E6.5: a session that was signed out of stays so, also after a restart."""
    cookie, other = (store.sessions.open("ada", Role.VIEWER, lifetime=HOUR) for _ in range(2))
    store.sessions.close(store.sessions.find(cookie).hash)
    assert make_store().sessions.find(cookie) is None, "E6 is broken: a session lives on after signing out"
    assert store.sessions.find(other) is not None
    assert store.sessions.close_all("ada") == 1
    assert make_store().sessions.find(other) is None


def test_the_session_of_a_token_ends_with_it(store):
    token = store.credentials.add("ci", Role.VIEWER, actor="ada")
    cookie = store.sessions.open("ci", Role.VIEWER, lifetime=HOUR, prefix=prefix_of(token))
    assert store.sessions.find(cookie) is not None
    store.credentials.revoke("ci")
    assert store.sessions.find(cookie) is None


def test_a_link_opens_one_session(store):
    """E6.1: of many people who use a link at once, one gets in."""
    link = store.sessions.add_link(Role.ADMIN, lifetime=HOUR)
    assert store.sessions.find(link) is None

    def use(number):
        try:
            return store.sessions.use_link(link, f"person {number}", lifetime=HOUR)
        except NotFound:
            return None

    with ThreadPoolExecutor(4) as pool:
        opened = [each for each in pool.map(use, range(4)) if each is not None]
    assert len(opened) == 1, f"E6 is broken: a link has opened {len(opened)} sessions"
    cookie, role = opened[0]
    assert (store.sessions.find(cookie).role, role) == (Role.ADMIN, Role.ADMIN)


def test_a_link_has_a_short_life(store, clock):
    link = store.sessions.add_link(Role.ADMIN, lifetime=HOUR)
    clock.advance(seconds=3601)
    with pytest.raises(NotFound, match="expired or was used"):
        store.sessions.use_link(link, "ada", lifetime=HOUR)


@pytest.mark.parametrize(("name", "error"), [("", InvalidInput), ("holdfast:worker", InvalidInput), ("ci", Conflict)])
def test_a_link_is_not_lost_by_a_name_that_cannot_be(store, name, error):
    """Nobody takes the name of a token: audit entries would not tell them apart."""
    store.credentials.add("ci", Role.VIEWER, actor="ada")
    link = store.sessions.add_link(Role.ADMIN, lifetime=HOUR)
    with pytest.raises(error):
        store.sessions.use_link(link, name, lifetime=HOUR)
    store.sessions.use_link(link, "ada", lifetime=HOUR)


def test_the_store_keeps_hashes_alone(store):
    secrets = [
        store.sessions.open("ada", Role.VIEWER, lifetime=HOUR),
        store.sessions.add_link(Role.ADMIN, lifetime=HOUR),
    ]
    rows = store.backend.fetch(query("get_session", hash=store.sessions.find(secrets[0]).hash))
    assert all(secret not in repr(rows) for secret in secrets)
