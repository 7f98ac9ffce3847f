"""Broken connections on PostgreSQL: work that is sent again is done once (SPEC 8.33).

SQLite has no connection that could break between a COMMIT and its answer.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.job import Lease, State
from holdfast.domain.jobs.new_job import NewJob, Unique
from holdfast.domain.jobs.verdict import Done, Failed, Released
from holdfast.store import Store
from holdfast.store.jobs.enqueue import EnqueueCall
from holdfast.store.jobs.settlement import Settlement
from tests.support.backends import available, open_database
from tests.support.jobs import claim_jobs
from tests.support.processes import connect, open_store
from tests.support.proxy import proxy_to

POSTGRES = [name for name in available() if name != "sqlite"]
LONG = timedelta(minutes=5)
ENQUEUE_ONE = "INSERT INTO holdfast.live"
SETTLE_DONE = "DELETE FROM holdfast.live"


@pytest.fixture(params=POSTGRES)
def postgres(request, tmp_path):
    with open_database(request.param, tmp_path, real_time=True) as database:
        yield database


@pytest.fixture
def proxy(postgres):
    with proxy_to(postgres.url) as proxy:
        yield proxy


@pytest.fixture
def store(proxy) -> Iterator[Store]:
    """A store that reaches its database through the proxy."""
    store = open_store(proxy.url)
    yield store
    store.close()


# -- lost answers --------------------------------------------------------------------------


def test_a_lost_commit_of_many_jobs_doubles_none(postgres, proxy, store):
    """When the answer to COMMIT is lost, enqueue_many returns as if nothing had been, and every job is there once."""
    proxy.lose_answer("COMMIT")
    answers = store.jobs.enqueue_many([NewJob(kind="mail", payload=str(n)) for n in range(100)])

    assert proxy.cuts == 1
    assert all(answer.created for answer in answers)
    stored = postgres.execute("SELECT id, payload::text FROM holdfast.job JOIN holdfast.live USING (id) ORDER BY id")
    assert stored == [(answer.id, str(n)) for n, answer in enumerate(answers)]


def test_a_lost_commit_of_unique_jobs_is_answered_as_created(postgres, proxy, store):
    """The jobs whose COMMIT got no answer are not mistaken for somebody else's when they are sent again."""
    proxy.lose_answer("COMMIT")
    answers = store.jobs.enqueue_many([NewJob(kind="mail", unique=Unique(str(n))) for n in range(100)])

    assert proxy.cuts == 1
    assert all(answer.created for answer in answers)
    assert postgres.execute("SELECT count(*), count(DISTINCT key) FROM holdfast.job") == [(100, 100)]


def test_a_lost_commit_of_children_doubles_none(postgres, proxy, store):
    """A child that a running job enqueues is there once, though the answer to its COMMIT was lost."""
    lease = claim_one(store)
    proxy.lose_answer("COMMIT")
    answer = store.jobs.enqueue_child(NewJob(kind="child"), EnqueueCall(lease))

    assert proxy.cuts == 1
    children = postgres.execute("SELECT id FROM holdfast.job WHERE parent_id = %s", (lease.job_id,))
    assert children == [(answer.id,)]


@pytest.mark.parametrize("times", [1, 3])
def test_a_lost_answer_to_a_single_enqueue_doubles_nothing(postgres, proxy, store, times):
    """One job enqueued over a connection that breaks is there once."""
    proxy.lose_answer(ENQUEUE_ONE, times=times)
    answer = store.jobs.enqueue(NewJob(kind="mail"))

    assert proxy.cuts == times
    assert postgres.execute("SELECT id FROM holdfast.job JOIN holdfast.live USING (id)") == [(answer.id,)]


def test_lost_answers_to_prepared_statements_double_nothing(postgres, proxy, store):
    """A connection that breaks after long use costs no more than a fresh one."""
    for _ in range(10):
        store.jobs.enqueue(NewJob(kind="mail"))
    proxy.lose_answer(ENQUEUE_ONE)
    store.jobs.enqueue(NewJob(kind="mail"))

    assert proxy.cuts == 1
    assert postgres.execute("SELECT count(*) FROM holdfast.live") == [(11,)]


def test_a_lost_answer_to_done_is_a_success(postgres, proxy, store):
    """A run whose end was recorded without an answer is done, and its holder is not told otherwise."""
    lease = claim_one(store)
    proxy.lose_answer(SETTLE_DONE)
    store.leases.settle(lease, Done("1"))

    assert proxy.cuts == 1
    assert ends_of(postgres, lease) == [("done", lease.token, 1)]
    assert postgres.execute("SELECT count(*) FROM holdfast.attempt") == [(0,)]


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (Failed(error="no", after=LONG), State.SCHEDULED),
        (Failed(error="no", after=timedelta(0)), State.READY),
        (Failed(error="no", permanent=True), State.DEAD),
        (Released(delay=LONG), State.SCHEDULED),
    ],
    ids=["retry later", "retry now", "dead", "released"],
)
def test_a_lost_commit_of_another_outcome_is_a_success(postgres, proxy, store, outcome, state):
    """A failure or release that was recorded without an answer costs one attempt and leaves one trace."""
    lease = claim_one(store)
    proxy.lose_answer("COMMIT")
    store.leases.settle(lease, outcome)

    assert proxy.cuts == 1
    job = store.views.get(lease.job_id)
    assert (job.state, job.attempts) == (state, 0 if isinstance(outcome, Released) else 1)
    assert postgres.execute("SELECT token FROM holdfast.attempt") == [(lease.token,)]
    assert len(postgres.execute("SELECT name FROM holdfast.event")) == 1
    assert len(ends_of(postgres, lease)) == (state is State.DEAD)


def test_a_lost_answer_to_done_still_wakes_dependents(postgres, proxy, store):
    """What waits for a job starts when it is done, also when the answer to its settle was lost, without any sweep."""
    lease = claim_one(store)
    dependent = store.jobs.enqueue(NewJob(kind="dependent", after=After(ids=(lease.job_id,))))
    proxy.lose_answer(SETTLE_DONE)
    store.leases.settle(lease, Done())

    assert proxy.cuts == 1
    assert store.views.state(dependent.id) is State.READY


def test_a_lost_commit_of_a_take_over_happens_once(postgres, proxy, store):
    """A take-over whose COMMIT got no answer raises the token once and leaves one trace."""
    lease = claim_one(store, lease_duration=timedelta(milliseconds=1), started=True)
    proxy.lose_answer("COMMIT")
    store.leases.take_over()

    assert proxy.cuts == 1
    assert store.views.get(lease.job_id).token == lease.token + 1
    assert postgres.execute("SELECT token, reason FROM holdfast.attempt") == [(lease.token, "lease_lost")]


# -- terminated connections ----------------------------------------------------------------


def test_connections_that_ended_between_calls_are_not_noticed(postgres):
    """A server that has ended all idle connections of a store costs it no call and doubles no work."""
    store = postgres.open()
    store.jobs.enqueue_many([NewJob(kind="work")] * 3)
    leases = claim_jobs(store, "w", queues=["default"], kinds=["work"], limit=3, lease_duration=LONG)
    calls = [
        lambda: store.jobs.enqueue(NewJob(kind="mail")),
        lambda: store.jobs.enqueue_many([NewJob(kind="mail")] * 10),
        lambda: store.jobs.enqueue(NewJob(kind="mail", unique=Unique("k"))),
        lambda: store.leases.renew(leases),
        lambda: store.leases.settle(leases[0], Done()),
        lambda: store.leases.settle(leases[1], Failed(error="no", after=LONG)),
        lambda: store.leases.settle_many([Settlement(leases[2], Released(delay=LONG))]),
    ]
    for call in calls:
        assert terminate(postgres) >= 1
        call()

    assert postgres.execute("SELECT count(*) FROM holdfast.job WHERE kind = 'mail'") == [(12,)]
    assert ends_of(postgres, leases[0]) == [("done", 1, 1)]
    assert postgres.execute("SELECT reason FROM holdfast.attempt ORDER BY job_id") == [
        ("handler_error",),
        ("released",),
    ]


def test_connections_that_end_during_calls_double_nothing(postgres):
    """While the server ends connections again and again, every call succeeds and does its work once."""
    store = postgres.open()
    store.jobs.enqueue_many([NewJob(kind="work")] * 400)
    leases = claim_jobs(store, "w", queues=["default"], kinds=["work"], limit=400, lease_duration=LONG)
    answers, outcomes = [], []
    with terminating(postgres.url) as (once, finished):
        while len(finished) < 10:
            once.set()
            answers += [store.jobs.enqueue(NewJob(kind="mail")), *store.jobs.enqueue_many([NewJob(kind="mail")] * 50)]
            outcomes.append(Done() if len(outcomes) % 2 else Failed(error="no", permanent=True))
            store.leases.settle(leases.pop(), outcomes[-1])

    stored = postgres.execute("SELECT id FROM holdfast.job JOIN holdfast.live USING (id) WHERE job.kind = 'mail'")
    assert sorted(row[0] for row in stored) == sorted(answer.id for answer in answers)
    counts = dict(postgres.execute("SELECT state, count(*) FROM holdfast.finished GROUP BY state"))
    assert counts == {"done": outcomes.count(Done()), "dead": len(outcomes) - outcomes.count(Done())}
    assert postgres.execute("SELECT count(*) FROM holdfast.attempt") == [(counts["dead"],)]


def claim_one(store: Store, **options) -> Lease:
    store.jobs.enqueue(NewJob(kind="work"))
    (lease,) = claim_jobs(store, "w", queues=["default"], kinds=["work"], **{"lease_duration": LONG, **options})
    return lease


def ends_of(database, lease):
    return database.execute("SELECT state, token, attempts FROM holdfast.finished WHERE id = %s", (lease.job_id,))


TERMINATE = """
    SELECT count(pg_terminate_backend(pid, {patience})) FROM pg_stat_activity
    WHERE application_name = 'holdfast' AND datname = current_database()
"""


def terminate(database) -> int:
    """End all connections of all stores, wait until they have ended, and return how many there were."""
    return database.execute(TERMINATE.format(patience=5000))[0][0]


@contextmanager
def terminating(url: str) -> Iterator[tuple[threading.Event, list[int]]]:
    """End all connections of all stores, *once* each time that is set, a little later; collects how many it ended.

    Not by the clock: on a slow machine that would end every try of a call, which gives up in the end, as it should.
    """
    finished: list[int] = []
    once, over = threading.Event(), threading.Event()
    chance = random.Random(1)

    def work() -> None:
        with connect(url, autocommit=True) as connection:
            while once.wait() and not over.wait(chance.uniform(0, 0.05)):
                once.clear()
                count = connection.execute(TERMINATE.format(patience=0)).fetchone()[0]
                finished.extend([count] if count else [])

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield once, finished
    finally:
        over.set()
        once.set()
        thread.join()


# -- ids given out twice -------------------------------------------------------------------


@pytest.mark.parametrize("many", [False, True])
def test_ids_that_a_failover_gave_out_again_lose_no_job(postgres, many):
    """K35: equal jobs of two processes are two jobs, although both had drawn the same id."""
    ahead, behind = open_store(postgres.url), open_store(postgres.url)
    request = NewJob(kind="cleanup")
    first = [ahead.jobs.enqueue(request).id for _ in range(10)]  # it has drawn more ids ahead
    postgres.execute("SELECT setval('holdfast.job_id', %s)", (max(first),))  # the new primary does not know of them
    later = [behind.jobs.enqueue(request) for _ in range(3)]
    if many:
        later += ahead.jobs.enqueue_many([request] * 2)
    else:
        later += [ahead.jobs.enqueue(request) for _ in range(2)]
    later += [behind.jobs.enqueue(NewJob(kind="cleanup", unique=Unique(str(n)))) for n in range(3)]

    assert len({answer.id for answer in later}) == 8
    assert all(answer.created for answer in later)
    assert postgres.execute("SELECT count(*) FROM holdfast.live") == [(18,)]
    ahead.close()
    behind.close()


def test_a_sequence_that_is_far_behind_catches_up(postgres):
    """K35: one enqueue draws past all ids that exist."""
    store = open_store(postgres.url)
    for answer in store.jobs.enqueue_many([NewJob(kind="cleanup")] * 50):
        assert answer.created
    postgres.execute("SELECT setval('holdfast.job_id', 1)")
    store.close()
    store = open_store(postgres.url)
    assert store.jobs.enqueue(NewJob(kind="cleanup")).created
    with connect(postgres.url) as connection:
        (new,) = store.jobs.enqueue_on(connection, [NewJob(kind="cleanup")])
    assert new.created
    store.close()
