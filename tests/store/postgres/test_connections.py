"""Connections to PostgreSQL."""

from __future__ import annotations

import gc

from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.selector import Selector
from holdfast.store.engine.backend import Timeouts
from tests.support.backends import open_database
from tests.support.forks import Fork


def test_a_forked_child_shares_neither_sessions_nor_ids(tmp_path):
    """K1: an inherited store begins anew in the child, and the parent keeps its sessions."""
    with open_database("postgres", tmp_path, real_time=True) as database:
        store = database.open()
        store.jobs.enqueue(NewJob(kind="mail"))
        session = store.backend._once(lambda connection: connection.info.backend_pid, Timeouts.call)

        def work(_):
            for _ in range(5):
                store.jobs.enqueue(NewJob(kind="mail"))
            store.close()
            gc.collect()

        before = gc.get_threshold()
        gc.set_threshold(1)  # also while the child prepares itself
        try:
            assert Fork(work).code() == 0
        finally:
            gc.set_threshold(*before)
        assert database.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (session,)) == [(1,)], "K1 is broken"
        assert len({store.jobs.enqueue(NewJob(kind="mail")).id for _ in range(5)}) == 5
        assert store.views.count(Selector()).count == 11
