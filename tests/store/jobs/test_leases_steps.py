"""Steps that are done for good: one test per promise of store/jobs/leases.py."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.domain.jobs.verdict import Done, Failed, Released
from holdfast.errors import InvalidInput, LeaseLost
from tests.support.jobs import lapse, put, take_one

HOUR = timedelta(hours=1)


def test_a_step_is_known_to_the_next_attempt(store):
    put(store)
    first = take_one(store)
    store.steps.keep(first, "charge", '{"id": 7}')
    store.leases.settle(first, Released())
    again = take_one(store)
    assert store.steps.kept(again)["charge"].result == '{"id": 7}'


def test_the_first_result_stays(store):
    """Whoever keeps it again is told what it was."""
    put(store)
    lease = take_one(store)
    store.steps.keep(lease, "charge", "1")
    assert store.steps.keep(lease, "charge", "2").result == "1"


def test_a_lost_holder_keeps_nothing(store, clock):
    """It may still be at work when the job has a new holder."""
    put(store)
    old = take_one(store)
    lapse(clock)
    store.leases.take_over()
    with pytest.raises(LeaseLost):
        store.steps.keep(old, "charge", "1")
    assert store.steps.kept(take_one(store, started=True)) == {}


def test_a_settled_job_keeps_nothing(store):
    """Its lease has ended with it."""
    put(store)
    lease = take_one(store)
    store.leases.settle(lease, Done())
    with pytest.raises(LeaseLost):
        store.steps.keep(lease, "charge", "1")


def test_a_sleep_tells_how_long_it_goes_on(store, clock):
    """By the store's clock."""
    put(store)
    lease = take_one(store)
    assert store.steps.keep(lease, "night", delay=HOUR).remaining == HOUR
    clock.advance(minutes=40)
    assert store.steps.kept(lease)["night"].remaining == timedelta(minutes=20)
    assert store.steps.keep(lease, "night", delay=HOUR).remaining == timedelta(minutes=20)


def test_a_step_keeps_only_json_of_a_certain_size(store):
    put(store)
    lease = take_one(store)
    for result in ("not json", '"' + "x" * 300_000 + '"'):
        with pytest.raises(InvalidInput):
            store.steps.keep(lease, "charge", result)


def test_steps_go_with_their_job(store, clock, database):
    put(store)
    lease = take_one(store)
    store.steps.keep(lease, "charge", "1")
    store.leases.settle(lease, Failed(error="x", permanent=True))
    clock.advance(days=91)
    store.pruner.prune()
    assert database.execute("SELECT count(*) FROM holdfast.step")[0][0] == 0
