"""Two holders of one batch at the same time, on PostgreSQL.

On SQLite there is one writer: what is read in a write is as it is.
"""

from __future__ import annotations

import threading

import pytest

from holdfast.domain.batches.batch import Sharding
from holdfast.store.batches.unit_choice import NextUnits
from tests.store.batches.test_batches import begin, keys
from tests.store.batches.test_runs import KIND, shard
from tests.support.backends import available, open_database
from tests.support.processes import connect, wait_until


@pytest.fixture(params=[name for name in available() if name != "sqlite"])
def postgres(request, tmp_path):
    with open_database(request.param, tmp_path, real_time=True) as database:
        yield database


def is_waiting(database):
    """Whether a connection waits for the lock of a row."""
    return database.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )[0][0]


def test_one_that_had_to_wait_does_not_take_what_another_took_meanwhile(postgres):
    """It asks who else is there when it has the lock, not as of before it waited for its own row."""
    store, other = postgres.open(), postgres.open()
    run = begin(store)
    store.batches.plan(run, keys(1, 2))
    batch = store.batches.launch(run, Sharding(kind=KIND, shards=2))
    mine = shard(store, batch)
    taken = []
    with connect(postgres.url) as connection:
        connection.execute("SELECT FROM holdfast.live WHERE id = %s FOR UPDATE", (mine.lease.job_id,))
        waiting = threading.Thread(
            target=lambda: taken.extend(store.batches.flush(mine, next_units=NextUnits(limit=1)).taken)
        )
        waiting.start()
        wait_until(lambda: is_waiting(postgres))
        theirs = other.batches.flush(shard(other, batch), next_units=NextUnits(limit=1)).taken
    waiting.join()
    connection.close()
    assert [unit.key for unit in theirs] == ["1"]
    assert [unit.key for unit in taken] == ["2"]
