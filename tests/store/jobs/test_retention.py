"""Retention while users' transactions are open. Other tests of retention are in test_queries.py."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest

from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.job import State
from holdfast.domain.jobs.new_job import NewJob, Unique
from holdfast.domain.jobs.verdict import Done
from holdfast.domain.retention import Retention
from holdfast.store.jobs.retention import Pruner
from tests.support.jobs import put, state, take_one
from tests.support.processes import connect

AT_ONCE = Retention(done=timedelta(microseconds=1))


@pytest.fixture
def store(postgres_database):
    return postgres_database.open()


@pytest.fixture
def user(postgres_database):
    """A user's own connection."""
    with connect(postgres_database.url) as connection:
        yield connection


def done(store, **options):
    job_id = put(store, **options)
    store.leases.settle(take_one(store), Done())
    return job_id


def test_a_dependency_of_an_uncommitted_job_stays(store, user):
    """K26: the transaction has seen it, so its job must be able to start."""
    old, _, live = done(store), done(store), put(store, hold=True)
    after = After(ids=(old, live))
    (dependent,) = store.jobs.enqueue_on(user, [NewJob(kind="later", after=after)])
    assert store.pruner.prune(AT_ONCE)[State.DONE] == 1
    user.commit()
    assert store.pruner.prune(AT_ONCE)[State.DONE] == 0
    assert (state(store, old), state(store, dependent.id)) == (State.DONE, State.WAITING)


def test_a_dependency_of_a_job_that_was_committed_in_between_stays(store):
    """K26: the first statement saw the rows as of before the commit, so they are checked again under their locks."""
    old, live = done(store), put(store, hold=True)
    put(store, kind="later", after=After(ids=(old, live)))
    operation = Pruner._prune_jobs.operation(store.pruner, State.DONE, timedelta(0), 10)
    assert next(operation).name == "lock_expired_jobs"
    statements = [operation.send([(old,)])]
    with suppress(StopIteration):
        while True:
            statements.append(operation.send(store.backend.fetch(statements[-1])))
    assert [statement.name for statement in statements] == ["list_live_dependents", "list_locked_keys"]


def test_a_key_that_a_user_has_locked_holds_up_no_retention(store, user):
    """K7: its job stays until the user's transaction ends, the others go."""
    keyed = done(store, unique=Unique("k"))
    done(store)
    user.execute("UPDATE holdfast.key SET expires_at = expires_at WHERE job_id = %s", (keyed,))
    assert store.pruner.prune(AT_ONCE)[State.DONE] == 1
    assert state(store, keyed) is State.DONE
    user.rollback()
    assert store.pruner.prune(AT_ONCE)[State.DONE] == 1
