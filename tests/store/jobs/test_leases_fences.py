"""Each fence by itself: a statement with an old token, or for a job that does not run, changes nothing.

The flows check more than once, so a fence that is missing in one statement would not show
in their tests. Here each statement is sent alone.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec import structs

from holdfast.domain.jobs.history import EventName
from holdfast.domain.jobs.job import ControlRequest, State, WorkerId
from holdfast.domain.jobs.verdict import Done, Failed, Lost, Released, Stopped
from holdfast.errors import LeaseLost
from holdfast.store.engine.operation import ById, query
from holdfast.store.jobs.settlement import Settlement
from tests.support.backends import START
from tests.support.jobs import lapse, put, record_start, take_one

TERM = timedelta(seconds=60)


def rows(lease, **more):
    return ById(id=[lease.job_id], token=[lease.token], **{name: [value] for name, value in more.items()})


def held(lease, **more):
    return {"leases": rows(lease, **more), "worker": lease.worker}


def put_back_columns(lease):
    return rows(
        lease,
        worker=lease.worker,
        state="ready",
        attempts=0,
        crashes=0,
        raised=0,
        losses=0,
        note="forged",
        delay=timedelta(0),
    )


def end_columns(lease):
    return rows(
        lease,
        worker=lease.worker,
        state="dead",
        attempts=9,
        crashes=0,
        raised=0,
        reason="forged",
        error="forged",
        ran=None,
        age=timedelta(0),
    )


STATEMENTS = {
    "renew_leases": lambda lease: query("renew_leases", **held(lease, lease_duration=TERM * 9, mark=True)),
    "record_starts": lambda lease: query("record_starts", **held(lease)),
    "start_command": lambda lease: query("start_command", **lease.fence, lease_duration=TERM * 9),
    "settle_done": lambda lease: query("settle_done", **held(lease, result=None, ran=None, age=timedelta(0))),
    "lock_leases": lambda lease: query("lock_leases", **held(lease)),
    "return_jobs": lambda lease: query("return_jobs", verdict=put_back_columns(lease)),
    "finish_jobs": lambda lease: query("finish_jobs", verdict=end_columns(lease)),
    "release_unstarted": lambda lease: query("release_unstarted", **held(lease)),
    "report_progress": lambda lease: query(
        "report_progress", **lease.fence, done=9, total=9, message="forged", checkpoint=None
    ),
    "insert_step": lambda lease: query("insert_step", **lease.fence, name="forged", result="1", delay=None),
    "lock_lease": lambda lease: query("lock_lease", **lease.fence),
    "read_requests": lambda lease: query("read_requests", **held(lease)),
}


def everything(database):
    """All rows of all tables that a holder may write."""
    return {
        table: sorted(database.execute(f"SELECT * FROM holdfast.{table}"), key=repr)
        for table in ("live", "finished", "progress", "attempt", "step")
    }


@pytest.mark.parametrize("name", STATEMENTS)
def test_the_holder_may_write(store, database, name):
    """With the right token each statement has its effect; without this the tests below would prove nothing."""
    put(store)
    lease = take_one(store)
    before = everything(database)
    rows = store.backend.run(STATEMENTS[name](lease))
    assert rows or everything(database) != before


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("name", STATEMENTS)
def test_the_token_of_another_worker_writes_nothing(store, database, name, started):
    """CORE2 E1: a failover lost the claim of one worker, and the new primary gave its token to another."""
    put(store)
    lost = structs.replace(take_one(store, started=started), worker=WorkerId("lost with the old primary"))
    before = everything(database)
    assert store.backend.run(STATEMENTS[name](lost)) == [], f"I4 is broken: {name} writes for another worker"
    assert everything(database) == before, f"I4 is broken: {name} writes for another worker"


@pytest.mark.parametrize("outcome", [Done("1"), Failed(error="no"), Released(), Stopped(), Lost(begun=True)])
def test_the_outcome_of_another_worker_is_lost(store, database, outcome):
    """Also when the other one has recorded an outcome of the same sort with this token."""
    put(store)
    lease = take_one(store, started=True)
    lost = structs.replace(lease, worker=WorkerId("lost with the old primary"))
    for _ in range(2):
        before = everything(database)
        with pytest.raises(LeaseLost):
            store.leases.settle(lost, outcome)
        assert everything(database) == before
        if store.views.state(lease.job_id) is State.RUNNING:
            store.leases.settle(lease, outcome)


def test_outcomes_of_two_workers_may_come_together(store):
    """One call with the same job and token of both: each is compared with its own worker."""
    put(store)
    lease = take_one(store)
    lost = structs.replace(lease, worker=WorkerId("lost with the old primary"))
    assert store.leases.settle_many([Settlement(each, Done()) for each in (lost, lease)]).lost
    assert store.views.state(lease.job_id) is State.DONE


@pytest.mark.parametrize("name", STATEMENTS)
def test_an_old_token_writes_nothing(store, database, clock, name):
    """After a take-over, while the new holder runs."""
    put(store)
    stale = take_one(store)
    lapse(clock)
    store.leases.take_over()
    take_one(store, started=True)
    before = everything(database)
    assert store.backend.run(STATEMENTS[name](stale)) == []
    assert everything(database) == before


@pytest.mark.parametrize("name", STATEMENTS)
def test_an_old_token_writes_nothing_to_an_unmarked_run(store, database, name):
    """After a release, while the next holder has the job but has not begun it."""
    put(store)
    stale = take_one(store)
    store.leases.settle(stale, Released())
    take_one(store)
    before = everything(database)
    assert store.backend.run(STATEMENTS[name](stale)) == []
    assert everything(database) == before


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_job_that_does_not_run_is_not_written(store, database, name):
    """After a release the token is still the newest, but nobody holds the job."""
    put(store)
    lease = take_one(store)
    store.leases.settle(lease, Released())
    before = everything(database)
    assert store.backend.run(STATEMENTS[name](lease)) == [], f"I4 is broken: {name} writes for a job that nobody holds"
    assert everything(database) == before


@pytest.mark.parametrize("name", STATEMENTS)
def test_an_ended_job_is_not_written(store, database, name):
    """One accepted end, whatever comes later."""
    put(store)
    lease = take_one(store)
    store.leases.settle(lease, Done())
    before = everything(database)
    assert store.backend.run(STATEMENTS[name](lease)) == []
    assert everything(database) == before


@pytest.mark.parametrize("name", ["settle_done", "finish_jobs"])
def test_an_end_writes_one_row(store, database, name):
    """A refused end leaves no half: neither table shows a trace, an accepted one moves the row."""
    put(store)
    lease = take_one(store)
    store.backend.run(STATEMENTS[name](lease))
    assert database.execute("SELECT count(*) FROM holdfast.live")[0][0] == 0
    assert database.execute("SELECT id, token FROM holdfast.finished") == [(lease.job_id, lease.token)]


def test_a_claim_raises_the_token(store):
    """By one, on the way from limited and unlimited queues."""
    for queue in ("default", "tight"):
        put(store, queue=queue)
    store.queues.set_limits("tight", limit=1)
    for queue in ("default", "tight"):
        lease = take_one(store, queues=(queue,))
        assert lease.token == 1
        store.leases.settle(lease, Released())
        assert take_one(store, queues=(queue,)).token == 2


@pytest.mark.parametrize("max_attempts", [1, 3])
def test_a_take_over_raises_the_token(store, clock, max_attempts):
    """Whether the job goes back or ends, so that even a settle sent again by the old holder is refused."""
    job_id = put(store, max_attempts=max_attempts)
    lease = take_one(store, started=True)
    lapse(clock)
    store.leases.take_over()
    assert store.views.get(job_id).token == lease.token + 1


def test_the_leases_of_an_ended_worker_end_at_once(make_store):
    """Y7: before they expire, fenced, with an attempt and an event; those of other workers stay."""
    store, other = make_store(), make_store()
    begun, unbegun, kept = (put(store, max_attempts=2) for _ in range(3))
    first = take_one(store, worker=WorkerId("ended"), started=True)
    second = take_one(store, worker=WorkerId("ended"))
    third = take_one(store, worker=WorkerId("alive"), started=True)
    assert [first.job_id, second.job_id, third.job_id] == [begun, unbegun, kept]
    taken = other.leases.take_over_from(WorkerId("ended"))
    assert {each.job_id: each.state for each in taken} == {begun: State.SCHEDULED, unbegun: State.READY}
    for stale in (first, second):
        with pytest.raises(LeaseLost):
            store.leases.settle(stale, Done())
        assert store.views.get(stale.job_id).token == stale.token + 1
    (attempt,) = store.views.attempts(begun)
    assert (attempt.reason, attempt.error) == ("lease_lost", "the process of its worker ended has exited")
    assert EventName.TAKEN_OVER in [event.name for event in store.views.events(begun)]
    assert store.views.get(unbegun).attempts == 0
    store.leases.settle(third, Done())
    assert other.leases.take_over_from(WorkerId("ended")) == []


def test_only_a_lapsed_lease_is_taken(store, clock):
    """The sweep asks the store's clock, not the holder."""
    put(store)
    lease = take_one(store)
    assert store.backend.run(query("lock_expired_leases", limit=9)) == []
    lapse(clock)
    assert store.backend.run(query("lock_expired_leases", limit=9))[0][0] == lease.job_id


def test_what_was_begun_is_not_given_back(store, database):
    """A marked start has perhaps had its effect."""
    put(store)
    lease = take_one(store)
    record_start(store, lease)
    before = everything(database)
    assert store.backend.run(STATEMENTS["release_unstarted"](lease)) == []
    assert everything(database) == before


# -- people -------------------------------------------------------------------------------------
# A verb first selects its jobs and then writes; between the two a worker may claim one of them.

FOR_IDLE_JOBS = {
    "set_queue": lambda job_id: query("set_queue", ids=[job_id], queue="other"),
    "set_due_time": lambda job_id: query("set_due_time", ids=[job_id], due_at=START),
    "cancel_idle_jobs": lambda job_id: query("cancel_idle_jobs", idle=ById(id=[job_id], note=["forged"])),
    "hold_jobs": lambda job_id: query("hold_jobs", notes=ById(id=[job_id], note=["forged"])),
    "release_held_jobs": lambda job_id: query("release_held_jobs", ids=[job_id]),
    "run_retries_now": lambda job_id: query("run_retries_now", ids=[job_id]),
    "wake_waiting_jobs": lambda job_id: query("wake_waiting_jobs", ids=[job_id]),
    "retry_jobs": lambda job_id: query("retry_jobs", ids=[job_id]),
    "rerun_done_jobs": lambda job_id: query("rerun_done_jobs", ids=[job_id]),
    "set_payloads": lambda job_id: query("set_payloads", changed=ById(id=[job_id], payload=['{"forged":1}'])),
    "replace_job": lambda job_id: query(
        "replace_job",
        id=job_id,
        kind_version=1,
        payload="{}",
        label=None,
        tags=None,
        priority=9,
        delay=None,
        run_at=None,
    ),
}


@pytest.mark.parametrize("name", FOR_IDLE_JOBS)
def test_a_verb_leaves_a_running_job_alone(store, database, name):
    """Though it was idle when the verb chose it; what it has told stays as well."""
    job_id = put(store)
    store.leases.report(take_one(store), done=1)
    before = everything(database)
    assert store.backend.run(FOR_IDLE_JOBS[name](job_id)) == []
    assert everything(database) == before


@pytest.mark.parametrize("requested", ControlRequest)
def test_a_cancel_or_a_pause_is_wanted_only_of_what_runs(store, database, requested):
    """A job that was released meanwhile is not marked for a wish that nobody would carry out."""
    job_id = put(store)
    before = everything(database)
    assert store.backend.run(query("request_job_control", ids=[job_id], requested=requested, note=None)) == []
    assert everything(database) == before


def test_a_done_job_is_not_revived(store, database):
    """Only a restart leads out of done, whatever was selected."""
    job_id = put(store)
    store.leases.settle(take_one(store), Done())
    before = everything(database)
    assert store.backend.run(query("retry_jobs", ids=[job_id])) == []
    assert everything(database) == before
