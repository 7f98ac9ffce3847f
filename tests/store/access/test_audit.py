"""The audit log: one test per promise of store/access/audit.py."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.domain.access.audit import Via
from holdfast.domain.jobs.job import State
from holdfast.domain.retention import Retention
from holdfast.errors import InvalidInput, JobInUse, NotFound
from holdfast.store.access.audit import AuditedAction
from holdfast.store.jobs import control
from tests.support.jobs import only, prune, put, state, take_one


def act(store, *, count=None, **told):
    action = {"actor": "ada", "via": Via.CLI, "action": "cancel", "target": "id=1", **told}
    return store.audit_log.write(AuditedAction(**action), count=count)


def test_acts_come_newest_first_in_pages(store, clock):
    """With who, by which way, what, to what, how many and why."""
    for n in range(3):
        act(store, count=n, note=f"why {n}")
    first, second = store.audit_log.page(limit=2)
    assert (first.count, first.note, first.actor, first.via, first.at) == (2, "why 2", "ada", "cli", clock.now())
    (last,) = store.audit_log.page(before=second.id, limit=2)
    assert (last.action, last.target, last.count) == ("cancel", "id=1", 0)


def test_an_act_has_the_users_of_host_and_database(store, backend_name):
    """In fields of their own: the note is the person's. PostgreSQL adds the user of its session."""
    act(store, note="the moon", os_user="ada (1000)")
    act(store)
    without, entry = store.audit_log.page()
    assert (entry.os_user, entry.note) == ("ada (1000)", "the moon")
    assert (without.os_user, without.note) == (None, None)
    assert (entry.db_user is None, without.db_user is None) == (backend_name == "sqlite",) * 2


def test_acts_by_person_and_target(store):
    act(store)
    act(store, actor="bob", target="queue=Mail", via=Via.API)
    assert [found.actor for found in store.audit_log.page(actor="bob")] == ["bob"]
    assert [found.target for found in store.audit_log.page(text="mail")] == ["queue=Mail"]
    assert store.audit_log.page(text="mail", actor="ada") == []


def test_an_act_needs_a_person(store):
    with pytest.raises(InvalidInput, match="not a valid name of a person"):
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


def audited(store, action="cancel", target="id=1", **options):
    return store.audited(
        AuditedAction(**{"actor": "ada", "via": Via.CLI, "action": action, "target": target, **options})
    )


def test_a_change_without_its_entry_is_not_made(store):
    """K79: the change and its audit entry are one transaction."""
    job_id = put(store)
    with pytest.raises(InvalidInput, match="not a valid name of a person"):
        audited(store, actor="holdfast:worker").control.cancel(only(job_id), actor="ada")
    assert state(store, job_id) is State.READY, "K79 is broken"
    audited(store).control.cancel(only(job_id), actor="ada")
    assert [(entry.action, entry.target, entry.count) for entry in store.audit_log.page()] == [("cancel", "id=1", 1)]


def test_an_action_that_changes_nothing_writes_no_entry(store):
    """K79."""
    job_id = put(store)
    store.control.cancel(only(job_id), actor="ada")
    assert audited(store).control.cancel(only(job_id), actor="ada") == []
    with pytest.raises(NotFound):
        audited(store).saved_filters.delete("none")
    assert store.audit_log.page() == []


def test_an_action_of_several_transactions_has_one_entry(store, monkeypatch):
    """K79: the entry of an action that fails half-way says what it did."""
    monkeypatch.setattr(control, "CHUNK_SIZE", 2)
    jobs = [put(store) for _ in range(5)]
    audited(store).control.hold(only(*jobs), actor="ada")
    assert [entry.count for entry in store.audit_log.page()] == [5]
    running = put(store, queue="other")
    take_one(store, queues=("other",))
    with pytest.raises(JobInUse):
        audited(store, "rm").control.delete(only(*jobs[:4], running))
    assert [(entry.action, entry.count) for entry in store.audit_log.page()] == [("rm", 4), ("cancel", 5)]


def test_a_target_names_what_has_changed(store):
    """K79: also when a queue of several cannot be paused."""
    queues = audited(store, "drain", lambda rows: ",".join(name for (name,) in rows)).queues
    store.queues.pause("b")
    for name in ("a", "b", "c"):
        queues.pause(name)
    (entry,) = store.audit_log.page()
    assert (entry.target, entry.count) == ("a,c", 2)


def test_a_dry_run_writes_no_entry(store):
    job_id = put(store)
    action = AuditedAction(actor="ada", via=Via.CLI, action="cancel", target="id=1")
    with store.dry_run() as dry:
        assert dry.audited(action).control.cancel(only(job_id), actor="ada") == [job_id]
    assert store.audit_log.page() == []
    assert state(store, job_id) is State.READY


def test_the_number_of_stored_responses_has_a_limit(store, clock, monkeypatch):
    """G4: the oldest go first. The age is a setting."""
    monkeypatch.setattr("holdfast.store.jobs.retention.MAX_RESPONSES", 3)
    for n in range(5):
        assert store.idempotency_keys.claim("c", f"k{n}", "d") is None
        clock.advance(seconds=1)
    assert prune(store, "responses", retention=Retention(responses=timedelta(0))) == 0
    assert prune(store, "responses") == 2, "G4 is broken"
    assert store.idempotency_keys.claim("c", "k0", "d") is None
    assert store.idempotency_keys.claim("c", "k4", "d") is not None
    assert prune(store, "responses", retention=Retention(responses=timedelta(seconds=2))) == 1
