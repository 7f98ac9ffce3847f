"""Another program keeps the SQLite file locked for longer than a lease: no live run is lost."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing

import holdfast
from holdfast.store.sqlite import writer
from tests.support.processes import wait_until
from tests.support.workers import working

LEASE_S = 5.0


def test_a_long_write_transaction_of_a_user_stops_no_run(tmp_path, monkeypatch, caplog):
    """K37: take-overs need the same lock, so leases are safe meanwhile; other workers let the holders renew first."""
    monkeypatch.setattr(writer, "LOCK_WAIT_S", 0.05)
    url = f"sqlite:///{tmp_path}/jobs.db?durability=fast"
    begun, free, stopped = threading.Event(), threading.Event(), []
    with holdfast.Holdfast(url) as app, holdfast.Holdfast(url) as other_app:

        @app.job(lease=LEASE_S)
        def long(me: holdfast.Context) -> int:
            begun.set()
            free.wait(60)
            stopped.append(me.stopping.is_set())
            return me.token

        @other_app.job()
        def unrelated() -> None: ...

        ref = long.enqueue()
        with working(app, heartbeat=10) as worker, working(other_app, heartbeat=2) as other_worker:
            assert begun.wait(60)
            with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as user:
                user.execute("BEGIN IMMEDIATE")
                expires_at = ref.job().lease_expires_at
                wait_until(lambda: (holdfast_now(app) - expires_at).total_seconds() > 0.5)
                assert "locked" in wait_until(worker.health.not_ready)
                user.execute("COMMIT")
            wait_until(lambda: ref.job().lease_expires_at > expires_at)
            free.set()
            assert (ref.result(60), stopped) == (1, [False])
            wait_until(lambda: worker.ready and other_worker.ready)
    assert "a heartbeat failed" in caplog.text


def holdfast_now(app):
    return app.store.schedules.now()
