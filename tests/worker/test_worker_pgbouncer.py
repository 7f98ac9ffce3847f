"""Behind PgBouncer in transaction mode: no session, no LISTEN, and everything works."""

from __future__ import annotations

import os

import pytest

from holdfast import State
from tests.support.backends import open_database
from tests.support.fleet import fleet, make_app
from tests.support.pgbouncer import PROGRAM, pgbouncer
from tests.support.processes import wait_until

#: On a developer's machine it may be missing; in CI `make services` has installed it.
requires_pgbouncer = pytest.mark.skipif(
    PROGRAM is None and "CI" not in os.environ, reason="PgBouncer is not installed (make services)"
)


@pytest.fixture
def url(tmp_path):
    with open_database("postgres", tmp_path, real_time=True) as database:
        database.open()
        with pgbouncer(database.url) as bouncer:
            yield f"{bouncer}&prepare=off"


@requires_pgbouncer
def test_two_workers_share_three_connections(url):
    """All kinds of jobs are done; polling finds new ones."""
    with make_app(url) as app:
        refs = [app.enqueue(kind, {"n": n}) for n in range(50) for kind in ("quick", "slow", "parent")]
        with fleet(url, 2):
            wait_until(lambda: all(ref.state is State.DONE for ref in refs))
            late = app.enqueue("quick", {"n": 1})
            assert late.result(120) == 1


@requires_pgbouncer
def test_missing_notifications_are_detected(url, caplog):
    """The self-test reports it, and the worker polls more often."""
    with make_app(url) as app:
        listener = app.store.backend.listen(lambda _: None)
        wait_until(lambda: "NOTIFY does not reach" in caplog.text)
        assert not listener.works
        listener.close()
