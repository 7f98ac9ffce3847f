"""Acts, credentials, filters, answers: one test per promise of store/access/records.py."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.domain.access.roles import Role, Via, is_secret_of, split_token
from holdfast.domain.jobs.job import WorkerId, WorkerRequest
from holdfast.errors import Conflict, InvalidInput, NotFound
from holdfast.store.jobs.retention import Retention
from tests.support.jobs import put


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
    assert store.pruner.prune_audit() == 0
    clock.advance(hours=2)
    assert store.pruner.prune_audit() == 1
    assert store.idempotency_keys.claim("c", "k", "d") is None
    clock.advance(days=400)
    assert store.pruner.prune_audit(Retention(acts=timedelta(0))) == 1
    assert len(store.audit_log.page()) == 1
    assert store.pruner.prune_audit() == 1
    assert store.audit_log.page() == []


def test_a_token_opens_by_its_prefix(store):
    """The store keeps the hash; the door says all that a request needs."""
    assert not store.credentials.door(None).locked
    text = store.credentials.add("ci", Role.OPERATOR, actor="ada")
    prefix, secret = split_token(text)
    door = store.credentials.door(prefix)
    assert (door.locked, door.name, door.role, door.revoked_at) == (True, "ci", Role.OPERATOR, None)
    assert is_secret_of(secret, salt=door.salt, expected=door.hash)
    assert store.credentials.door("hf_nobody00").prefix is None
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
    assert store.credentials.door(prefix).revoked_at == clock.now()
    assert store.credentials.door(None).locked
    clock.advance(days=5000)
    store.pruner.prune_audit()
    assert store.credentials.door(None).locked
    with pytest.raises(NotFound, match="no token 'ci'"):
        store.credentials.revoke("ci")


def test_use_is_told_to_the_minute(store, clock):
    prefix, _ = split_token(store.credentials.add("ci", Role.VIEWER, actor="ada"))
    store.credentials.used(prefix)
    first = clock.now()
    clock.advance(seconds=30)
    store.credentials.used(prefix)
    assert store.credentials.list()[0].last_used_at == first
    clock.advance(seconds=31)
    store.credentials.used(prefix)
    assert store.credentials.list()[0].last_used_at == clock.now()


def test_all_servers_share_one_session_secret(store, make_store):
    assert store.credentials.session_secret("one") == "one"
    assert make_store().credentials.session_secret("two") == "one"
    assert store.credentials.door(None).secret == "one"


def test_filters_are_kept_by_name(store):
    """One of the same name is replaced; one that cannot be read is refused."""
    store.saved_filters.save("trouble", "state=dead", actor="ada")
    store.saved_filters.save("trouble", "state=dead since=1h", actor="bob")
    (kept,) = store.saved_filters.list()
    assert (kept.name, kept.filter, kept.actor) == ("trouble", "state=dead since=1h", "bob")
    with pytest.raises(InvalidInput):
        store.saved_filters.save("odd", "colour=red", actor="ada")
    store.saved_filters.drop("trouble")
    with pytest.raises(NotFound):
        store.saved_filters.drop("trouble")


def test_a_request_is_carried_out_once(store, make_store):
    """Whoever comes second is told that it is under way, or what the answer was."""
    assert store.idempotency_keys.claim("ci", "key", "digest") is None
    assert make_store().idempotency_keys.claim("ci", "key", "digest").status is None
    store.idempotency_keys.keep("ci", "key", 201, '{"id": 1}')
    again = store.idempotency_keys.claim("ci", "key", "digest")
    assert (again.digest, again.status, again.body) == ("digest", 201, '{"id": 1}')
    assert store.idempotency_keys.claim("other", "key", "digest") is None
    store.idempotency_keys.drop("other", "key")
    assert store.idempotency_keys.claim("other", "key", "digest") is None
    store.idempotency_keys.drop("ci", "key")
    assert store.idempotency_keys.claim("ci", "key", "digest").status == 201


def test_a_trace_goes_with_its_job(store):
    """It is written with the enqueue, and forgotten with the job."""
    traced, plain = put(store, trace="00-abc-def-01"), put(store)
    assert store.traces.of(traced) == "00-abc-def-01"
    assert store.traces.of(plain) is None
    from holdfast.domain.jobs.selector import Selector

    store.control.remove(Selector(ids=(traced,)))
    assert store.traces.of(traced) is None


def test_a_worker_hears_what_people_want(store, clock):
    """With its heartbeat, until somebody wants it to go on; one that is gone cannot be asked."""
    worker = WorkerId("w-1")
    store.workers.announce(worker, host="h", pid=1, queues=["default"], kinds=["mail"], slots=4)
    assert store.workers.seen(worker).requested is None
    store.workers.ask(worker, WorkerRequest.QUIET)
    assert store.workers.seen(worker).requested is WorkerRequest.QUIET
    (told,) = store.workers.list()
    assert (told.slots, told.requested) == (4, "quiet")
    store.workers.ask(worker, None)
    assert store.workers.seen(worker).requested is None
    clock.advance(minutes=5)
    with pytest.raises(NotFound, match="is alive"):
        store.workers.ask(worker, WorkerRequest.STOP)
