"""A payload that is changed while its job is claimed, on PostgreSQL.

On SQLite there is one writer: what is read in a write is as it is.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from holdfast.domain.jobs.new_job import NewJob, OnConflict, Unique
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.verdict import Done
from tests.store.batches.test_ledger_races import postgres
from tests.support.jobs import take

__all__ = ["postgres"]

#: Without the promise, one in a hundred is claimed with what it was before.
ROUNDS = 300
NEW = '{"n":2}'


def replace(store, key, job_id):
    store.jobs.enqueue(NewJob(kind="mail", payload=NEW, unique=key, on_conflict=OnConflict.REPLACE))


def rewrite(store, key, job_id):
    store.control.rewrite(Selector(ids=(job_id,)), lambda _: NEW, actor="ada")


@pytest.mark.parametrize("change", [replace, rewrite])
def test_whoever_claims_a_job_gets_the_payload_that_it_has(postgres, change):
    """The change came first, or the claim; never both."""
    store, other = postgres.open(), postgres.open()
    together = Barrier(2)

    def changing(key, job_id):
        together.wait()
        change(other, key, job_id)

    with ThreadPoolExecutor(1) as pool:
        for n in range(ROUNDS):
            key = Unique(str(n))
            job_id = store.jobs.enqueue(NewJob(kind="mail", payload='{"n":1}', unique=key)).id
            changed = pool.submit(changing, key, job_id)
            together.wait()
            taken = take(store, 1)  # nothing, while the other has the lock
            changed.result()
            (lease,) = taken or take(store, 1)
            assert lease.payload == store.views.get(job_id).payload
            store.leases.settle(lease, Done())
