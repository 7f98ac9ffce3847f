"""The planner beside users' transactions: a row that one of them has locked delays its own schedule alone."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

import holdfast
from holdfast import Plan
from holdfast.worker.schedules import planner as planner_module
from holdfast.worker.schedules.planner import Planner
from holdfast.worker.schedules.scopes import ScopeProviders
from holdfast.worker.stats import Stats
from tests.support.backends import START, open_database
from tests.support.jobs import claim_jobs
from tests.support.processes import connect

MINUTE = timedelta(minutes=1)
#: A planner that waits for a lock waits as long as a statement may take, 30 s. A slow machine needs a few.
SOON_S = 15.0


@pytest.fixture
def database(tmp_path):
    with open_database("postgres", tmp_path) as database:
        yield database


@pytest.fixture
def app(database):
    """An application with a schedule whose plans wait for each other, and a plain one."""
    with holdfast.Holdfast(database.url) as app:
        app.use(database.url, database.open())

        @app.schedule("*/5 * * * *", overlap="allow")
        @app.job()
        def plain(plan: Plan) -> None: ...

        @app.job(unique=["to"])
        def send(to: int = 1) -> None: ...

        app.declare_schedules()
        yield app


@pytest.fixture
def tick(app):
    """One tick of a planner; returns the seconds that it took."""
    planner = Planner(app.store, ScopeProviders(app.providers), counts=Stats(), provider_wait=10.0)

    def tick():
        began = time.monotonic()
        planner.tick()
        return time.monotonic() - began

    return tick


@pytest.fixture
def user(database):
    with connect(database.url) as connection:
        yield connection


def fired(app, name):
    return sorted((each.time - START) // MINUTE for each in app.store.plans.history(name))


@pytest.mark.parametrize("overlap", ["queue_all", "queue_one", "cancel_running"])
def test_a_locked_job_delays_its_own_schedule_alone(app, database, tick, user, overlap):
    """SPEC 8.15: its next plan would wait for that job, or cancel it."""
    app.schedules.create("line", "plain", "*/5 * * * *", overlap=overlap, queue="other")
    tick()
    (lease,) = claim_jobs(app.store, "w", queues=["other"], kinds=["plain"])
    user.execute("SELECT FROM holdfast.live WHERE id = %s FOR UPDATE", (lease.job_id,))
    database.clock.advance(minutes=5)
    assert tick() < SOON_S, "S2 is broken: a planner waits for a user's transaction"
    assert (fired(app, "plain"), fired(app, "line")) == ([0, 5], [0]), "S2 is broken: plans of others wait too"
    assert "lock" in app.schedules.get("line").error
    user.rollback()
    database.clock.advance(seconds=10)
    tick()
    assert fired(app, "line") == [0, 5]


@pytest.mark.parametrize("batch_size", [1, 2000])
def test_a_locked_key_delays_its_own_schedule_alone(app, tick, user, monkeypatch, batch_size):
    """A user's transaction has enqueued a job under the key and is still open. Another thread writes small batches."""
    monkeypatch.setattr(planner_module, "BATCH_SIZE", batch_size)
    app.schedules.create("keyed", "send", "*/5 * * * *", payload={"to": 1})
    app.enqueue("send", {"to": 1}, connection=user)
    assert tick() < SOON_S, "S2 is broken: a planner waits for a user's transaction"
    assert (fired(app, "plain"), fired(app, "keyed")) == ([0], [])
    assert "lock" in app.schedules.get("keyed").error


def test_a_locked_schedule_that_fails_delays_no_other(app, database, tick, user):
    """The failure is recorded when the row is free."""
    app.schedules.create("bad", "send", "*/5 * * * *", payload={"to": 1})
    database.execute("UPDATE holdfast.schedule SET definition = '{}' WHERE name = 'bad'")
    user.execute("SELECT FROM holdfast.schedule WHERE name = 'bad' FOR UPDATE")
    assert tick() < SOON_S, "S2 is broken: a planner waits for a user's transaction"
    assert (fired(app, "plain"), app.store.schedules.get("bad").failures) == ([0], 0)
    user.rollback()
    tick()
    assert app.store.schedules.get("bad").failures == 1


def test_a_locked_job_of_a_line_stops_no_tick(app, database, tick, user):
    """Plans that are released from a line wait for the jobs before it, one of which is locked."""
    app.schedules.create("line", "plain", "*/5 * * * *", overlap="queue_all", queue="other")
    tick()
    (lease,) = claim_jobs(app.store, "w", queues=["other"], kinds=["plain"])
    for _ in range(2):
        database.clock.advance(minutes=5)
        tick()
    second = next(each for each in app.store.plans.history("line") if each.time == START + 5 * MINUTE)
    database.execute("UPDATE holdfast.live SET state = 'held' WHERE id = %s", (second.job_id,))
    user.execute("SELECT FROM holdfast.live WHERE id = %s FOR UPDATE", (lease.job_id,))
    database.clock.advance(minutes=5)
    planner = Planner(app.store, ScopeProviders({}), counts=Stats())
    planner.tick()
    assert fired(app, "plain") == [0, 5, 10, 15], "S2 is broken: plans of others wait too"
