"""A user's own long transaction on one job costs no other lease (SPEC 8.31).

On PostgreSQL only: SQLite has no row locks, a writer there holds up all others.
"""

from __future__ import annotations

import threading
from datetime import timedelta
from time import monotonic

import pytest

from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.job import Lease, State
from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.verdict import Done, Failed
from holdfast.errors import JobLocked, StatementTimeout
from holdfast.store import Store
from holdfast.store.jobs.enqueue import EnqueueCall
from holdfast.store.jobs.settlement import Settlement
from tests.support.backends import available, open_database
from tests.support.jobs import BOOM, claim_jobs, put, record_start
from tests.support.processes import children, connect

POSTGRES = [name for name in available() if name != "sqlite"]
FATAL = Failed(error="boom", permanent=True)
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
    assert holder.leases.settle_many([Settlement(lease, Done()) for lease in leases]).lost == set()
    assert holder.views.state(locked) is State.DONE


@pytest.mark.parametrize("write", ["report", "step", "child"])
def test_a_handler_of_a_locked_job_keeps_no_connection_for_long(postgres, write):
    """S3: its writes give up soon and are sent again; else few such handlers take all connections of a worker."""
    store = postgres.open()
    (lease,) = claim(store, 1)
    writes = {
        "report": lambda: store.leases.report(lease, done=1),
        "step": lambda: store.steps.keep(lease, "fetch", "1"),
        "child": lambda: store.jobs.enqueue_child(NewJob(kind="work"), EnqueueCall(lease)),
    }
    with connect(postgres.url) as user:
        user.execute("SELECT FROM holdfast.live WHERE id = %s FOR UPDATE", (lease.job_id,))
        try:
            writes[write]()
        except StatementTimeout:
            pytest.fail("S3 is broken: it waited for as long as a statement may last")
        except JobLocked:
            user.rollback()
    writes[write]()


def test_a_locked_limited_queue_holds_up_no_other_queue(postgres):
    """S12: a worker that is stopped inside its claim holds the lock; the others claim from queues without a limit."""
    store = postgres.open()
    store.queues.set_limits("narrow", limit=1)
    narrow, wide = (store.jobs.enqueue(NewJob(kind="work", queue=queue)).id for queue in ("narrow", "wide"))
    queues = ["narrow", "wide"]
    with connect(postgres.url) as stopped:
        stopped.execute("SELECT FROM holdfast.queue WHERE name = 'narrow' FOR UPDATE")
        try:
            leases = claim_jobs(store, "w", queues=queues, kinds=["work"], limit=5)
        except JobLocked:
            pytest.fail("S12 is broken: no queue is claimed from")
        assert [lease.job_id for lease in leases] == [wide]
        stopped.rollback()
    assert [lease.job_id for lease in claim_jobs(store, "w", queues=queues, kinds=["work"], limit=5)] == [narrow]


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


@pytest.fixture
def user(postgres_database):
    """A user's own connection."""
    with connect(postgres_database.url) as connection:
        yield connection


def lock(user, *ids):
    """Lock the rows of jobs until the user's transaction ends."""
    user.execute("SELECT FROM holdfast.live WHERE id = ANY(%s) FOR UPDATE", (list(ids),))


def keys(*leases):
    return {(lease.job_id, lease.token) for lease in leases}


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("outcome", [Done(), BOOM])
def test_a_locked_job_is_left_out_of_a_group_of_settlements(postgres_database, user, outcome, wait):
    """K7: the others are settled, the locked one is reported, and it is settled once the lock is gone."""
    store = postgres_database.open()
    leases = claim(store, 3)
    lock(user, leases[1].job_id)
    settlements = [Settlement(lease, outcome) for lease in leases]
    result = store.leases.settle_many(settlements, wait=wait)
    assert (result.lost, result.locked) == (set(), keys(leases[1]))
    assert [store.views.state(lease.job_id) is State.RUNNING for lease in leases] == [False, True, False]
    user.rollback()
    result = store.leases.settle_many(settlements)
    assert (result.lost, result.locked) == (set(), set())


def test_a_locked_job_is_left_out_of_a_release(postgres_database, user):
    """K7: the other prefetched jobs are free at once."""
    store = postgres_database.open()
    leases = claim(store, 3)
    lock(user, leases[1].job_id)
    result = store.leases.release(leases)
    assert (result.released, result.locked) == (2, keys(leases[1]))
    user.rollback()
    assert store.leases.release([leases[1]]).released == 1


def test_one_settlement_of_a_locked_job_gives_up(postgres_database, user, monkeypatch):
    """K7: it says what is in its way, and writes nothing."""
    monkeypatch.setattr("holdfast.store.jobs.leases.LOCK_TRIES", 1)
    store = postgres_database.open()
    (lease,) = claim(store, 1)
    lock(user, lease.job_id)
    with pytest.raises(JobLocked):
        store.leases.settle(lease, Done())
    assert store.views.state(lease.job_id) is State.RUNNING


@pytest.mark.parametrize("outcome", [Done(), FATAL])
def test_a_locked_dependent_holds_up_no_settlement(postgres_database, user, outcome):
    """K7: the dependency finishes; the dependent is judged again once its row is free."""
    store = postgres_database.open()
    (lease,) = claim(store, 1)
    dependents = [put(store, kind="later", after=After(ids=(lease.job_id,))) for _ in range(2)]
    lock(user, dependents[0])
    assert store.leases.settle_many([Settlement(lease, outcome)]).locked == set()
    assert store.views.state(lease.job_id).finished
    assert store.views.state(dependents[0]) is State.WAITING
    assert store.views.state(dependents[1]) is not State.WAITING
    assert store.leases.complete_effects().left == 1
    user.rollback()
    assert store.leases.complete_effects().left == 0
    assert store.leases.complete_effects().taken == 0
    assert store.views.state(dependents[0]) is store.views.state(dependents[1])


def test_a_dependent_that_the_settler_left_is_judged_by_maintenance(postgres_database, user):
    """K7: another process completes them: the one that settled the job may be gone."""
    store, other = postgres_database.open(), postgres_database.open()
    (lease,) = claim(store, 1)
    dependent = put(store, kind="later", after=After(ids=(lease.job_id,)))
    lock(user, dependent)
    store.reserved_store().leases.settle_many([Settlement(lease, Done())])
    user.rollback()
    other.leases.complete_effects()
    assert store.views.state(dependent) is State.READY, "K7 is broken"


def test_a_locked_dependent_holds_up_no_take_over(postgres_database, user):
    """K7: nor does one stop the check of all waiting jobs."""
    store = postgres_database.open()
    lost, other = claim(store, 2)
    dependent = put(store, kind="later", after=After(ids=(lost.job_id,)))
    postgres_database.execute("UPDATE holdfast.job SET max_attempts = 1, max_crashes = 1")
    record_start(store, lost)
    postgres_database.execute("UPDATE holdfast.live SET lease_expires_at = '2000-01-01' WHERE state = 'running'")
    lock(user, dependent, other.job_id)
    assert [taken.job_id for taken in store.leases.take_over()] == [lost.job_id]
    assert store.leases.complete_effects().left == 1
    assert store.leases.check_waiting() is None
    user.rollback()
    store.leases.complete_effects()
    assert store.views.state(dependent) is State.CANCELLED


def test_a_locked_batch_holds_up_no_take_over(postgres_database, user):
    """K7: holders of the batch are left for later, all other leases are taken over."""
    store = postgres_database.open()
    holder, other = claim(store, 2)
    postgres_database.execute(
        "INSERT INTO holdfast.batch (identity, generation, kind, arguments, source, state, options, actor, created_at)"
        " VALUES ('i', 1, 'k', '{}', '', 'running', '{}', 'ada', now())"
    )
    postgres_database.execute(
        "INSERT INTO holdfast.in_flight (job_id, batch_id, token, run_number, units, owner)"
        ' SELECT %s, id, 1, 1, \'{"keys": ["a"], "places": [0]}\', \'{}\' FROM holdfast.batch',
        (holder.job_id,),
    )
    postgres_database.execute("UPDATE holdfast.live SET lease_expires_at = '2000-01-01'")
    user.execute("SELECT FROM holdfast.batch FOR UPDATE")
    assert [taken.job_id for taken in store.leases.take_over()] == [other.job_id]
    user.rollback()
    assert [taken.job_id for taken in store.leases.take_over()] == [holder.job_id]


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
