"""A process that is paused past its lease must find itself shut out when it wakes up (SPEC 8.1, SPEC 8.29)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.domain.jobs.job import Lease, State
from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.verdict import Done, Failed, Released
from holdfast.errors import LeaseLost
from holdfast.store import Store
from holdfast.store.jobs.enqueue import EnqueueCall
from tests.support.jobs import claim_jobs, record_start
from tests.support.processes import children, open_store, wait_until

TERM = timedelta(seconds=1)
REFUSED = {
    "renew": [],
    "mark": "LeaseLost",
    "done": "LeaseLost",
    "failed": "LeaseLost",
    "released": "LeaseLost",
    "report": "LeaseLost",
    "give back": 0,
    "child": "LeaseLost",
}


def test_a_paused_holder_writes_nothing_while_the_new_one_runs(real_database):
    """A holder that wakes up after a take-over is refused every write, and the new holder ends the job."""
    store = real_database.open()
    job_id = store.jobs.enqueue(NewJob(kind="import")).id
    with children(1, hold_and_try, real_database.url) as (sleeper,):
        stale = sleeper.hear()
        sleeper.pause()
        current = take_over_and_claim(store)
        before = everything_about(real_database, job_id)

        assert wake_up(sleeper) == REFUSED

    assert current.token > stale.token
    assert everything_about(real_database, job_id) == before
    store.leases.settle(current, Done('"new"'))
    assert ends_of(real_database, job_id) == [("done", current.token)]


def test_a_paused_holder_writes_nothing_after_the_new_one_ended(real_database):
    """A holder that wakes up after another has finished the job cannot end it a second time."""
    store = real_database.open()
    job_id = store.jobs.enqueue(NewJob(kind="import")).id
    with children(1, hold_and_try, real_database.url) as (sleeper,):
        sleeper.hear()
        sleeper.pause()
        current = take_over_and_claim(store)
        store.leases.settle(current, Done('"new"'))
        before = everything_about(real_database, job_id)

        assert wake_up(sleeper) == REFUSED

    assert everything_about(real_database, job_id) == before
    assert ends_of(real_database, job_id) == [("done", current.token)]
    assert store.views.get(job_id).result == '"new"'


def test_a_paused_holder_is_refused_before_anybody_claimed_again(real_database):
    """The take-over alone shuts the old holder out, also while the job is ready and has no holder."""
    store = real_database.open()
    job_id = store.jobs.enqueue(NewJob(kind="import")).id
    with children(1, hold_and_try, real_database.url) as (sleeper,):
        stale = sleeper.hear()
        sleeper.pause()
        wait_until(store.leases.take_over)
        before = everything_about(real_database, job_id)

        assert wake_up(sleeper) == REFUSED

    assert everything_about(real_database, job_id) == before
    assert store.views.state(job_id) is State.READY
    assert store.views.get(job_id).token > stale.token


@pytest.mark.parametrize("outcome", [Done(), Failed(error="late")], ids=["done", "failed"])
def test_a_paused_holder_that_nobody_missed_may_still_end_its_job(real_database, outcome):
    """A lapsed lease that was not taken over is still the holder's: being late alone is no crime."""
    store = real_database.open()
    job_id = store.jobs.enqueue(NewJob(kind="import", max_attempts=1)).id
    with children(1, hold_and_settle, real_database.url, outcome) as (sleeper,):
        lease = sleeper.hear()
        sleeper.pause()
        wait_until(lambda: expired(store, job_id))
        sleeper.tell("go on")
        sleeper.resume()
        assert sleeper.hear() == "accepted"

    assert ends_of(real_database, job_id) == [("done" if outcome == Done() else "dead", lease.token)]
    assert store.leases.take_over() == []


def take_over_and_claim(store: Store) -> Lease:
    """Another holder, whose start is not recorded: only its token tells it from the old one."""
    wait_until(store.leases.take_over)
    (current,) = claim_jobs(store, "second", queues=["default"], kinds=["import"])
    return current


def wake_up(sleeper):
    """Let the paused process go on, and return what came of its writes."""
    sleeper.tell("go on")
    sleeper.resume()
    return sleeper.hear()


def everything_about(database, job_id):
    """All rows that tell of a job, its children included."""
    tables = {"live": "id", "finished": "id", "attempt": "job_id", "event": "job_id", "progress": "job_id"}
    rows = {
        name: database.execute(f"SELECT * FROM holdfast.{name} WHERE {key} = {job_id}") for name, key in tables.items()
    }
    rows["job"] = database.execute("SELECT id, parent_id FROM holdfast.job ORDER BY id")
    return rows


def ends_of(database, job_id):
    return database.execute(f"SELECT state, token FROM holdfast.finished WHERE id = {job_id}")


def expired(store, job_id):
    """Whether a lease has run out; the processes and the server of a test share one machine's clock."""
    return store.views.get(job_id).lease_expires_at < datetime.now(UTC)


def hold_and_try(pipe, index, url):
    """In the child: claim, wait until told, then try every write that a holder can make."""
    store = open_store(url)
    (lease,) = claim_jobs(store, "first", queues=["default"], kinds=["import"], lease_duration=TERM)
    pipe.send(lease)
    pipe.recv()
    pipe.send({name: attempt(write) for name, write in writes_of(store, lease).items()})


def hold_and_settle(pipe, index, url, outcome):
    """In the child: claim, wait until told, then settle."""
    store = open_store(url)
    (lease,) = claim_jobs(store, "first", queues=["default"], kinds=["import"], lease_duration=TERM)
    pipe.send(lease)
    pipe.recv()
    store.leases.settle(lease, outcome)
    pipe.send("accepted")


def writes_of(store, lease):
    leases = store.leases
    return {
        "renew": lambda: leases.renew([lease]),
        "mark": lambda: record_start(store, lease),
        "done": lambda: leases.settle(lease, Done('"old"')),
        "failed": lambda: leases.settle(lease, Failed(error="old", permanent=True)),
        "released": lambda: leases.settle(lease, Released()),
        "report": lambda: leases.report(lease, done=1, checkpoint='"old"'),
        "give back": lambda: leases.release([lease]).released,
        "child": lambda: store.jobs.enqueue_child(NewJob(kind="child"), EnqueueCall(lease)),
    }


def attempt(write):
    try:
        return write()
    except LeaseLost:
        return "LeaseLost"
