"""A user's own long transaction on one job costs no other lease (SPEC 8.31).

On PostgreSQL only: SQLite has no row locks, a writer there holds up all others.
"""

from __future__ import annotations

import threading
from datetime import timedelta
from time import monotonic

import pytest

from holdfast.domain.jobs.job import Lease, State
from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.verdict import Done
from holdfast.store import Store
from holdfast.store.jobs.settlement import Settlement
from tests.support.backends import available, open_database
from tests.support.jobs import claim_jobs
from tests.support.processes import children, connect

POSTGRES = [name for name in available() if name != "sqlite"]
TERM = timedelta(seconds=4)
#: Sooner than a lease lapses, and long before somebody who waits for a lock gives up.
QUICK = TERM.total_seconds()


@pytest.fixture(params=POSTGRES)
def postgres(request, tmp_path):
    with open_database(request.param, tmp_path, real_time=True) as database:
        yield database


def test_a_locked_job_costs_no_other_lease(postgres):
    """While a user's transaction holds one job past its lease, the other leases are renewed in time."""
    holder, sweeper = postgres.open(), postgres.open()
    leases = claim(holder, 20)
    locked = leases[7].job_id
    with children(1, lock_row, postgres.url, locked) as (user,):
        assert user.hear() == "locked"
        taken, slowest = renew_for(holder, sweeper, leases, locked, terms=1.3)
        user.tell("let go")
        assert user.hear() == "released"

    assert taken == []
    assert slowest < QUICK
    assert holder.views.get(locked).token == leases[7].token


def test_a_lease_that_could_not_be_renewed_is_still_the_holders(postgres):
    """Once the user's transaction is over, the holder renews the lapsed lease and ends its run."""
    holder = postgres.open()
    leases = claim(holder, 3)
    locked = leases[1].job_id
    with children(1, lock_row, postgres.url, locked) as (user,):
        user.hear()
        renew_for(holder, holder, leases, locked, terms=1.5)
        user.tell("let go")
        user.hear()

    assert all(renewal.renewed for renewal in holder.leases.renew(leases, lease_duration=TERM))
    assert holder.leases.settle_many([Settlement(lease, Done()) for lease in leases]) == set()
    assert holder.views.state(locked) is State.DONE


def test_a_locked_job_holds_up_no_claim(postgres):
    """A ready job that a user's transaction holds is left for later; the next ones are claimed at once."""
    store = postgres.open()
    answers = store.jobs.enqueue_many([NewJob(kind="work") for _ in range(5)])
    with children(1, lock_row, postgres.url, answers[0].id) as (user,):
        user.hear()
        begun = monotonic()
        leases = claim_jobs(store, "w", queues=["default"], kinds=["work"], limit=5)
        took = monotonic() - begun

    assert [lease.job_id for lease in leases] == [answer.id for answer in answers[1:]]
    assert took < QUICK


def claim(store: Store, count: int) -> list[Lease]:
    store.jobs.enqueue_many([NewJob(kind="work") for _ in range(count)])
    leases = claim_jobs(store, "w", queues=["default"], kinds=["work"], limit=count, lease_duration=TERM)
    assert len(leases) == count
    return leases


def renew_for(
    holder: Store, sweeper: Store, leases: list[Lease], locked: int, *, terms: float
) -> tuple[list[int], float]:
    """Renew for some lease terms; answers what was taken over meanwhile, and the slowest renewal in seconds."""
    taken, slowest = [], 0.0
    pause, begun = threading.Event(), monotonic()
    while monotonic() - begun < terms * TERM.total_seconds():
        sent = monotonic()
        renewals = holder.leases.renew(leases, lease_duration=TERM)
        slowest = max(slowest, monotonic() - sent)
        assert {r.job_id for r in renewals if r.renewed} == {lease.job_id for lease in leases} - {locked}
        assert [r.job_id for r in renewals if not r.renewed] == [locked]
        taken += [over.job_id for over in sweeper.leases.take_over()]
        pause.wait(0.2)
    return taken, slowest


def lock_row(pipe, index, url, job_id):
    """In a child: hold a job's row in a transaction until told to let go, or until everybody has lost patience."""
    with connect(url) as connection:
        connection.execute("SELECT 1 FROM holdfast.live WHERE id = %s FOR UPDATE", (job_id,))
        pipe.send("locked")
        pipe.poll(10)
    pipe.send("released")
