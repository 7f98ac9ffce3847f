"""Faults of a real server and their effect on the services of a worker."""

from __future__ import annotations

import threading

import psycopg
import pytest

import holdfast
from holdfast import State
from holdfast.worker import clock
from holdfast.worker.active_runs import Run
from tests.support.backends import open_database
from tests.support.jobs import claim_jobs
from tests.support.processes import wait_until
from tests.support.proxy import proxy_to


@pytest.fixture
def database(tmp_path):
    with open_database("postgres", tmp_path, real_time=True) as database:
        database.open()
        yield database


def make_app(url):
    app = holdfast.Holdfast(url)

    @app.job(retry=["1h"])
    def double(n: int) -> int:
        return n * 2

    return app


def test_a_claim_whose_answer_was_lost_is_released(database):
    """At once, before its leases expire, and without the cost of an attempt."""
    with proxy_to(database.url) as proxy, make_app(proxy.uri) as app:
        refs = [app.enqueue("double", {"n": n}) for n in range(3)]
        worker = app.worker()
        proxy.lose_answer("WITH best AS")
        worker.tick()
        assert proxy.cuts == 1
        assert [ref.state for ref in refs] == [State.RUNNING] * 3
        worker.tick()
        assert [ref.state for ref in refs] == [State.DONE] * 3
        assert {ref.job().attempts for ref in refs} == {1}


def test_an_outcome_that_cannot_be_kept_holds_up_no_other(database):
    """The job fails with the reason, its neighbours are settled."""
    with make_app(database.url) as app:
        bad, *good = [app.enqueue("double", {"n": n}) for n in range(5)]
        database.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'no room for this' USING ERRCODE = '22000'; END $$"
        )
        database.execute(
            f"CREATE TRIGGER refuse BEFORE INSERT ON holdfast.finished FOR EACH ROW WHEN (new.id = {bad.id}) "
            "EXECUTE FUNCTION refuse()"
        )
        try:
            app.worker().tick()
            assert [ref.state for ref in good] == [State.DONE] * 4
            assert "no room for this" in app.views.attempts(bad.id)[0].error
        finally:
            database.execute("DROP TRIGGER refuse ON holdfast.finished")
            database.execute("DROP FUNCTION refuse")


def test_a_row_that_a_user_has_locked_holds_up_no_other(database):
    """Its own job is settled after the lock is gone; no success is run again (SPEC 8.31)."""
    with make_app(database.url) as app, psycopg.connect(database.url) as user:
        worker = app.worker(poll=0.02)
        locked, *others = [app.enqueue("double", {"n": n}) for n in range(20)]
        (lease,) = [lease for lease in claim_all(app, worker) if lease.job_id == locked.id]
        user.execute("SELECT FROM holdfast.live WHERE id = %s FOR UPDATE", (locked.id,))
        worker.start()
        assert [ref.result(120) for ref in others] == [n * 2 for n in range(1, 20)]
        assert (locked.state, lease.token) == (State.RUNNING, 1)
        user.rollback()
        assert locked.wait(120).token == 1
        worker.stop()


def test_a_finished_run_whose_row_is_locked_is_not_released_at_shutdown(database):
    """K53: its settlement is tried for the whole grace period, and the job does not run again."""
    with make_app(database.url) as app, psycopg.connect(database.url) as user:
        worker = app.worker(poll=0.02, grace=60)
        job = app.enqueue("double", {"n": 1})
        claim_all(app, worker)
        user.execute("SELECT FROM holdfast.live WHERE id = %s FOR UPDATE", (job.id,))
        thread = threading.Thread(target=worker.run, kwargs={"exits": True})
        thread.start()
        wait_until(lambda: worker._lifecycle.settler._locked)
        worker.stop()
        wait_until(lambda: not worker.services.helpers[0]._thread.is_alive())
        user.rollback()
        thread.join(60)
        assert (job.state, job.job().token) == (State.DONE, 1)


def test_a_finished_run_that_cannot_be_settled_keeps_its_lease(database):
    """K53: a release would run the job again; the lease expires instead."""
    with make_app(database.url) as app, psycopg.connect(database.url) as user:
        worker = app.worker(poll=0.02, grace=60)
        job = app.enqueue("double", {"n": 1})
        claim_all(app, worker)
        wait_until(lambda: len(worker._lifecycle.settler))
        user.execute("SELECT FROM holdfast.live WHERE id = %s FOR UPDATE", (job.id,))
        worker.services.settler.tick()
        user.rollback()
        assert worker._lifecycle.unfinished == []
        worker.abandon()
        assert job.state is State.RUNNING


def test_a_hiccup_does_not_end_a_drain(database, monkeypatch):
    """The worker goes on until it knows that nothing is left."""
    monkeypatch.setattr("holdfast.store.postgres.backend.RETRY_DELAYS_S", (0.0,))
    with proxy_to(database.url) as proxy, make_app(proxy.uri) as app:
        ref = app.enqueue("double", {"n": 4})
        proxy.lose_answer("WITH served (queue) AS", times=2)
        app.worker(drain=True, poll=0.02).run()
        assert proxy.cuts == 2
        assert ref.result(60) == 8


def claim_all(app, worker):
    """Make all jobs active on the worker; they finish, but nothing settles them."""
    leases = claim_jobs(app.store, worker.id, queues=["default"], kinds=["double"], limit=100)
    kind = app.kinds["double"]
    worker._pool.begin(
        [Run(lease, kind, renewed_at=clock.now(), lease_duration=kind.options.lease) for lease in leases]
    )
    return leases


def test_outcomes_wait_while_the_database_is_read_only(database):
    """As after a failover to a standby: no finished job runs again."""
    with make_app(database.url) as app, psycopg.connect(database.url, autocommit=True) as admin:
        refs = [app.enqueue("double", {"n": n}) for n in range(3)]
        worker = app.worker(poll=0.02)
        claim_all(app, worker)
        wait_until(lambda: len(worker._lifecycle.settler) == 3)
        switch(admin, "on")
        try:
            worker.services.settler.tick()
            assert len(worker._lifecycle.settler) == 3
        finally:
            switch(admin, "off")
        worker.services.settler.tick()
        assert [(ref.state, ref.job().token) for ref in refs] == [(State.DONE, 1)] * 3


def switch(admin, state):
    admin.execute("SET default_transaction_read_only = off")
    admin.execute(f"ALTER DATABASE postgres SET default_transaction_read_only = {state}")
    admin.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'holdfast'")
