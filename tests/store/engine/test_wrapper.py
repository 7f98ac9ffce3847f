"""Several calls in one transaction."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest

from holdfast.domain.jobs.job import State
from holdfast.errors import JobInUse, NoSuchJob, StoreUnavailable
from holdfast.store.engine import wrapper
from tests.support.jobs import only, put, state, take_one


def test_all_calls_are_kept_together(store, make_store):
    """K73: each call sees those before it; others see nothing until the end."""
    other = make_store()
    with store.single_transaction() as inside:
        first = put(inside)
        inside.control.hold(only(first), actor="ada")
        assert state(inside, first) is State.HELD
        with pytest.raises(NoSuchJob):
            other.views.get(first)
    assert state(other, first) is State.HELD


def test_a_failure_leaves_nothing(store):
    """K73: neither the calls before it, nor those after."""
    kept = put(store)
    with suppress(ZeroDivisionError), store.single_transaction() as inside:
        inside.control.hold(only(kept), actor="ada")
        put(inside)
        raise ZeroDivisionError
    assert state(store, kept) is State.READY
    assert store.views.page(only(kept + 1)).jobs == []


def test_a_refused_call_leaves_the_transaction_usable(store):
    running = put(store)
    take_one(store)
    with store.single_transaction() as inside:
        with pytest.raises(JobInUse):
            inside.control.delete(only(running))
        added = put(inside)
    assert state(store, added) is State.READY


def test_workers_are_woken_after_the_commit(store, listen):
    listener = listen()
    with store.single_transaction() as inside:
        put(inside)
    assert listener.hears()


def test_a_long_transaction_is_refused(store, monkeypatch):
    """K73: other writers of a SQLite file must not wait for a large action."""
    monkeypatch.setattr(wrapper, "MAX_TRANSACTION", timedelta(0))
    with pytest.raises(StoreUnavailable, match="nothing was changed"), store.single_transaction() as inside:
        put(inside)
