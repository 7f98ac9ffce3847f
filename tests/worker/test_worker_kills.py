"""Killed, paused and poisoned workers: no job is lost or finished twice, and no neighbour pays."""

from __future__ import annotations

import os
import sqlite3

import pytest

from holdfast import Selector, State
from tests.support.fleet import Audit, fleet, make_app
from tests.support.processes import wait_until

#: Over both backends; ``make chaos`` kills more, and checks more.
KILLS = int(os.environ.get("HOLDFAST_KILLS", "80")) // 2
#: Lease in seconds, long enough not to expire by chance.
LONG = 6.0
SEED = int(os.environ.get("HOLDFAST_SEED", "1"))


@pytest.fixture
def app(real_database):
    with make_app(real_database.url) as app:
        assert app.store
        yield app


@pytest.fixture
def patient_app(real_database):
    with make_app(real_database.url, lease=LONG) as app:
        yield app


@pytest.fixture
def audit(app, real_database):
    audit = Audit(real_database)
    yield audit
    audit.close()


def live(app) -> int:
    states = (State.READY, State.RUNNING, State.SCHEDULED, State.WAITING)
    return app.views.count(Selector(states=states), cap=1).count


def test_kill_9_at_random_times(app, audit, real_database):
    """Every job is done once, its token grows with every holder, and children are not doubled."""
    refs = []
    with fleet(real_database.url, 3, seed=SEED) as workers:
        for n in range(KILLS):
            for kind, count in (("quick", 20), ("slow", 4), ("parent", 1)):
                refs += [app.enqueue(kind, {"n": 1000 * n + i}) for i in range(count)]
            workers.kill_one(after=workers.random.uniform(0.0, 0.1))
        wait_until(lambda: not live(app))
    jobs = [ref.job() for ref in refs]
    assert {job.state for job in jobs} == {State.DONE}
    assert set(audit.ends().values()) == {1}
    assert len(audit.ends()) == len(refs) + KILLS, "each parent has one child, however often it ran"
    for job in jobs:
        tokens = [attempt.token for attempt in app.views.attempts(job.id)] if job.token > 1 else [1]
        assert tokens == sorted(set(tokens))


def test_a_poison_job_costs_no_neighbour_an_attempt(patient_app, real_database):
    """It was prefetched among a hundred; it ends dead, they end done at their first attempt (SPEC 8.30).

    The leases outlast a machine that stalls: one that lapses while its job runs costs an attempt, as it should.
    """
    app = patient_app
    before = [app.enqueue("quick", {"n": n}) for n in range(50)]
    bad = app.enqueue("poison", {"n": 0})
    after = [app.enqueue("quick", {"n": n}) for n in range(50)]
    with fleet(real_database.url, 2, lease=LONG) as workers:
        wait_until(lambda: workers.replace_dead() or not live(app))
    job = bad.job()
    assert (job.state, job.crashes, job.attempts) == (State.DEAD, 2, 2)
    assert {(ref.job().state, ref.job().attempts) for ref in before + after} == {(State.DONE, 1)}


def pause_outside_a_write(worker, database):
    """Stop a worker while it has no lock on the file: a frozen writer would block all others on SQLite."""
    while True:
        worker.pause()
        if database.name != "sqlite" or not _write_locked(database.path):
            return
        worker.resume()


def pause_in_a_job(worker, ref, database):
    """Stop a worker that holds a job, and return its id.

    On a slow machine a worker that cannot renew in time releases the job just before: then it is stopped at the next try.
    """
    while True:
        wait_until(lambda: ref.job().started_at)
        pause_outside_a_write(worker, database)
        if (job := ref.job()).started_at:
            return job.worker
        worker.resume()


def _write_locked(path):
    connection = sqlite3.connect(path, timeout=0.2, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return True
    finally:
        connection.close()
    return False


def test_a_paused_worker_wakes_up_as_a_zombie(app, audit, real_database, tmp_path):
    """SIGSTOP past the lease, SIGCONT: its handler is cancelled, its outcome refused (SPEC 8.2, 8.29)."""
    path = tmp_path / "go"
    ref = app.enqueue("patience", {"path": str(path)})
    with fleet(real_database.url, 1) as first:
        holder = pause_in_a_job(first.workers[0], ref, real_database)
        with fleet(real_database.url, 1) as second:
            wait_until(lambda: ref.job().worker not in (None, holder))
            assert ref.job().token > 1
            first.workers[0].resume()
            wait_until((tmp_path / "go-stopped").exists)
            path.touch()
            assert ref.wait(120).worker != holder
            assert second.workers[0].alive
        assert first.workers[0].alive, "the zombie lives on, as a worker"
    assert audit.ends()[ref.id] == 1
    reasons = [attempt.reason for attempt in app.views.attempts(ref.id)]
    assert [reason for reason in reasons if reason != "released"] == ["lease_lost", "done"]
