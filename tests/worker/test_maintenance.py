"""Maintenance: each step by itself, whatever users' transactions hold."""

from __future__ import annotations

import os
import sqlite3
import time
from collections import Counter
from datetime import timedelta

import pytest

from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.job import State
from holdfast.domain.jobs.verdict import Done
from holdfast.domain.retention import Retention
from holdfast.errors import SchemaMissing, StoreUnavailable
from holdfast.store.engine.operation import query
from holdfast.store.jobs import settlement
from holdfast.store.jobs.settlement import Settlement
from holdfast.worker import clock
from holdfast.worker.backoff import QUICK_S
from holdfast.worker.maintenance import PRUNE_INTERVAL_S, SEARCH_MARGIN_S, Maintenance
from tests.support.backends import open_database
from tests.support.jobs import put, state, take, take_one
from tests.support.processes import connect


def maintenance_of(store, tmp_path, **options):
    return Maintenance(
        store,
        **{"heartbeat": 10.0, "retention": Retention(), "logs": tmp_path / "logs", "maintained": Counter(), **options},
    )


@pytest.fixture
def user(postgres_database):
    with connect(postgres_database.url) as connection:
        yield connection


def lock(user, job_id):
    user.execute("SELECT FROM holdfast.live WHERE id = %s FOR UPDATE", (job_id,))


def make_due(database, *ids):
    database.execute("UPDATE holdfast.live SET due_at = holdfast.now() WHERE id = ANY(%s)", (list(ids),))


def test_rows_without_a_job_are_deleted_with_a_warning(store, database, tmp_path, caplog):
    """W3: they hold up their queue for some seconds, whatever their number and priority."""
    first = [put(store, priority=9) for _ in range(30)]
    job = put(store)
    database.execute(f"DELETE FROM holdfast.job WHERE id <= {first[-1]}")
    maintenance = maintenance_of(store, tmp_path)
    maintenance.tick()
    maintenance.tick()
    assert [lease.job_id for lease in take(store)] == [job], "I18 is broken: rows without a job hold up a queue"
    assert [len(record.args) for record in caplog.records if "had no job" in record.message] == [2, 2]


def test_a_locked_due_job_is_not_tried_all_the_time(postgres_database, user, tmp_path):
    """K20: it hides neither the jobs that are due now, nor the one that is due next."""
    store = postgres_database.open()
    locked, due = (put(store, delay=timedelta(hours=1)) for _ in range(2))
    maintenance = maintenance_of(store, tmp_path)
    make_due(postgres_database, locked, due)
    lock(user, locked)
    assert maintenance.tick().next_in > 0.5
    assert (state(store, locked), state(store, due)) == (State.SCHEDULED, State.READY)
    put(store, delay=timedelta(seconds=0.1))
    maintenance.on_notify()
    maintenance._promotion.due_at = 0.0
    assert maintenance.tick().next_in < 0.2
    user.rollback()
    maintenance._promotion.due_at = 0.0
    maintenance.tick()
    assert state(store, locked) is State.READY


def test_a_locked_waiting_job_holds_up_no_step(postgres_database, user, tmp_path):
    """K7: promotion and take-over go on, and the waiting job is judged once it is free."""
    store = postgres_database.open()
    dependency = put(store)
    waiting = put(store, kind="later", after=After(ids=(dependency,)))
    store.leases.settle(take_one(store), Done())
    postgres_database.execute("UPDATE holdfast.live SET state = 'held'")
    postgres_database.execute("UPDATE holdfast.live SET state = 'waiting'")
    lost, due = put(store), put(store, delay=timedelta(hours=1))
    take_one(store)
    postgres_database.execute("UPDATE holdfast.live SET lease_expires_at = '2000-01-01' WHERE id = %s", (lost,))
    make_due(postgres_database, due)
    lock(user, waiting)
    maintenance = maintenance_of(store, tmp_path)
    maintenance._take_over.due_at = 0.0
    maintenance.tick()
    assert [state(store, job) for job in (lost, due, waiting)] == [State.READY, State.READY, State.WAITING]
    user.rollback()
    for step in maintenance._steps:
        step.due_at = 0.0
    maintenance.tick()
    assert state(store, waiting) is State.READY


def test_effects_that_were_left_wait_for_about_a_second(store, tmp_path, monkeypatch):
    """CORE D8: a worker that is gone has left them, and nothing but the time says so."""
    now = 1000.0
    monkeypatch.setattr(clock, "now", lambda: now)
    maintenance = maintenance_of(store, tmp_path)
    maintenance.tick()
    dependency = put(store)
    waiting = put(store, kind="later", after=After(ids=(dependency,)))
    settled = Settlement(take_one(store), Done())

    def settle_alone():
        yield settlement.settle_done([settled], ())
        yield query("insert_pending_effects", ids=[dependency])

    store.backend.write(settle_alone)
    now += 1.3
    assert maintenance.tick().next_in < 1.3, "I11 is broken"
    assert state(store, waiting) is State.READY, "I11 is broken"


@pytest.fixture
def broken(store, database):
    """A store in which the table of batches is missing, so that one step fails."""
    hidden = "holdfast_hidden" if database.name == "sqlite" else "hidden"
    table = "holdfast.batch" if database.name == "sqlite" else "batch"
    database.execute(f"ALTER TABLE holdfast.batch RENAME TO {hidden}")
    yield store
    where = hidden if database.name == "sqlite" else f"holdfast.{hidden}"
    database.execute(f"ALTER TABLE {where} RENAME TO {table}")


def test_a_step_that_fails_holds_up_no_other(broken, tmp_path):
    """K7: it waits for its next turn like all others, and the failure is reported."""
    maintenance = maintenance_of(broken, tmp_path)
    for step in maintenance._steps:
        step.due_at = 0.0
    with pytest.raises(SchemaMissing if broken.backend.name == "postgres" else sqlite3.OperationalError):
        maintenance.tick()
    assert all(step.due_at > 0.0 for step in maintenance._steps)
    assert maintenance.tick().next_in > 0.0


def test_take_over_is_put_off_when_the_connection_failed(store, tmp_path):
    """Live workers renew first after an outage."""
    maintenance = maintenance_of(store, tmp_path, heartbeat=1000.0)
    before = maintenance._take_over.due_at
    store.close()
    with pytest.raises(StoreUnavailable):
        maintenance.tick()
    assert maintenance._take_over.due_at > before


def test_live_workers_renew_first_after_a_long_lock(tmp_path):
    """K37: while another program kept the file locked, no worker could renew; none of them is taken over at once."""
    with open_database("sqlite", tmp_path) as database:
        store = database.open()
        job_id = put(store)
        take_one(store)
        database.clock.advance(hours=1)
        maintenance = maintenance_of(store, tmp_path)
        store.backend._writer.waited_at = time.monotonic()
        maintenance._take_over.due_at = 0.0
        maintenance.tick()
        assert state(store, job_id) is State.RUNNING, "K37 is broken: a live worker was taken over"
        store.backend._writer.waited_at -= 21
        maintenance._take_over.due_at = 0.0
        maintenance.tick()
        assert state(store, job_id) is State.READY


def test_a_sweep_of_inboxes_is_one_line_for_each(store, tmp_path, monkeypatch, caplog):
    """OPS 1.21: after its last step; the inboxes with the most by name, the others together."""
    steps = [{"pickup/ada": 99, "b": 1}, {"pickup/ada": 1101} | {f"other {n}": 1 for n in range(11)}, {}]
    monkeypatch.setattr(store.inbox, "expire", lambda *, limit: steps.pop(0))
    maintenance = maintenance_of(store, tmp_path)
    with caplog.at_level("INFO", "holdfast"):
        while steps:
            maintenance._expire_inbox()
    lines = [record.message for record in caplog.records]
    assert (lines[0], lines[1]) == ("inbox pickup/ada: 1,200 results expired", "inbox b: 1 result expired")
    assert (len(lines), lines[-1]) == (11, "3 other inboxes: 3 results expired")


def test_a_slow_search_for_expired_leases_is_made_seldom(store, tmp_path, monkeypatch):
    """In between, the search covers the time since the last one: index entries may be those of jobs that are gone."""
    windows, now = [], 1000.0

    def any_expired(*, window=None):
        nonlocal now
        windows.append(window)
        now += 0.0 if window else QUICK_S + 1.0
        return False

    monkeypatch.setattr(clock, "now", lambda: now)
    monkeypatch.setattr(store.leases, "any_expired", any_expired)
    maintenance = maintenance_of(store, tmp_path)
    for _ in range(3):
        maintenance._take_over.due_at = now
        maintenance.tick()
        now += 5.0
    assert windows == [None, None, timedelta(seconds=5.0 + QUICK_S + 1.0 + SEARCH_MARGIN_S)]


def test_a_backlog_of_logs_is_pruned_without_a_pause(store, tmp_path, monkeypatch):
    """K39: 500 commands a second write 30,000 logs until the next turn of this step."""
    monkeypatch.setattr("holdfast.worker.maintenance.LOGS_LIMIT", 10)
    for number in range(95):
        path = tmp_path / "logs" / f"n={number}" / f"{1000 + number}-1.log"
        path.parent.mkdir(parents=True)
        path.touch()
        os.utime(path, (0, 0))
    maintenance = maintenance_of(store, tmp_path)
    maintenance.tick()
    monkeypatch.setattr(clock, "now", lambda now=clock.now: now() + 2 * PRUNE_INTERVAL_S)
    pruned = [maintenance.tick() for _ in range(9)]
    assert [tick.next_in for tick in pruned] == [0.0] * 9, "K39 is broken: a backlog waits"
    maintenance.tick()
    assert list((tmp_path / "logs").iterdir()) == []
