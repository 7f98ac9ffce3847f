"""The situation of a job that a worker holds: its heartbeat, its lease, and who could take the job over."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.domain.commands.command import COMMAND, Command
from holdfast.domain.jobs.job import WorkerId
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.kind_options import KindOptions
from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.why import Because
from tests.support.jobs import claim_jobs, lapse, put

HOUR = timedelta(hours=1)


def announce(store, name, **options):
    values = {"host": "h", "pid": 1, "queues": ["default"], "kinds": ["mail"], **options}
    store.workers.announce(WorkerId(name), **values)


@pytest.fixture
def held(store):
    """A function that makes a job which worker *w* holds."""

    def make(*, started=True, **options):
        announce(store, "w")
        job_id = put(store)
        claim_jobs(store, "w", queues=["default"], kinds=["mail"], started=started, **options)
        return job_id

    return make


def reasons(store, job_id):
    return {reason.because: reason.text for reason in store.views.why(job_id)}


def test_a_worker_that_beats_runs_it(store, clock, held):
    job_id = held()
    clock.advance(seconds=29)
    assert reasons(store, job_id) == {Because.RUNNING: "worker w is running it"}


@pytest.mark.parametrize(("started", "verb"), [(True, "runs"), (False, "has claimed")])
def test_a_late_worker_may_be_lost(store, clock, held, started, verb):
    job_id = held(started=started)
    clock.advance(seconds=38)
    announce(store, "other")
    text = f"worker w {verb} it, but its last heartbeat was 38 s ago; if it is lost, another worker takes over in 22 s"
    assert reasons(store, job_id) == {Because.LATE_WORKER: text}


def test_a_lost_worker_may_have_a_long_lease(store, clock, held):
    job_id = held(lease_duration=HOUR)
    clock.advance(minutes=5)
    announce(store, "other")
    text = "worker w runs it, but it is lost: its last heartbeat was 5 min ago; another worker takes over in 55 min"
    assert reasons(store, job_id) == {Because.LATE_WORKER: text}


def test_a_late_worker_without_another_one(store, clock, held):
    """The holder itself does not count, although it is not lost yet."""
    job_id = held()
    clock.advance(seconds=38)
    announce(store, "stranger", kinds=["other"])
    found = reasons(store, job_id)
    assert found[Because.LATE_WORKER].endswith("; its lease expires in 22 s")
    assert found[Because.NO_WORKER] == "no live worker serves kind 'mail' on queue 'default'"


@pytest.mark.parametrize("started", [True, False])
def test_an_expired_lease(store, clock, held, started):
    job_id = held(started=started)
    lapse(clock)
    found = reasons(store, job_id)
    assert found[Because.EXPIRED] == "the lease of worker w expired 1 s ago"
    assert found[Because.NO_WORKER] == "no live worker serves kind 'mail' on queue 'default'"
    announce(store, "other")
    assert reasons(store, job_id) == {
        Because.EXPIRED: "the lease of worker w expired 1 s ago; another worker takes it over"
    }


def test_a_holder_that_is_not_a_worker(store, clock):
    """A batch that runs in a program of its own renews its lease without a heartbeat."""
    job_id = put(store)
    claim_jobs(store, "w", queues=["default"], kinds=["mail"], started=True)
    clock.advance(seconds=38)
    assert reasons(store, job_id) == {Because.RUNNING: "worker w is running it"}


@pytest.mark.parametrize(
    ("kind", "queue", "command"),
    [
        ("mail", "default", "holdfast worker --app MODULE:APP --queue default"),
        ("mail", "a; b", "holdfast worker --app MODULE:APP --queue 'a; b'"),
        (COMMAND, "default", "holdfast worker --run-commands on --queue default"),
    ],
)
def test_the_command_that_serves_it(store, kind, queue, command):
    """A worker without an application would serve no kind of it, and one with an application runs no commands."""
    announce(store, "w", kinds=["other"])
    (reason,) = store.views.why(put(store, kind, queue=queue, payload=Command(argv=("make",), cwd="/").dumps()))
    assert (reason.because, reason.command) == (Because.NO_WORKER, command)


@pytest.mark.parametrize(("count", "text"), [(1000, "1,000 jobs come"), (1001, "more than 1,000 jobs come")])
def test_the_count_of_jobs_before_it_has_a_cap(store, count, text):
    announce(store, "w")
    store.jobs.enqueue_many([NewJob(kind="mail") for _ in range(count)])
    assert reasons(store, put(store))[Because.IN_LINE] == f"{text} before it in its queue and kind"


@pytest.mark.parametrize("own", [True, False], ids=["its own timeout", "that of its kind"])
def test_a_run_past_its_timeout(store, clock, own):
    options = KindOptions(timeout=None if own else timedelta(seconds=20))
    store.kinds.publish([Kind("mail", lambda: None, options).published()])
    announce(store, "w")
    job_id = put(store, timeout=20.0 if own else None)
    claim_jobs(store, "w", queues=["default"], kinds=["mail"], started=True, lease_duration=HOUR)
    clock.advance(seconds=25)
    assert reasons(store, job_id) == {Because.RUNNING: "worker w is running it"}
    assert store.dashboard.trouble() == []
    clock.advance(seconds=30)
    store.workers.heartbeat(WorkerId("w"))
    (reason,) = store.views.why(job_id)
    text = "worker w runs it 35 s past its timeout of 20 s; its thread cannot be stopped"
    assert (reason.because, reason.text, reason.command) == (Because.OVERDUE, text, "holdfast ask w stop")
    (trouble,) = store.dashboard.trouble()
    assert (trouble.category, trouble.name, trouble.detail) == ("overdue", str(job_id), "w")


def test_a_run_without_a_timeout_is_never_overdue(store, clock, held):
    job_id = held(lease_duration=HOUR)
    clock.advance(minutes=50)
    store.workers.heartbeat(WorkerId("w"))
    assert reasons(store, job_id) == {Because.RUNNING: "worker w is running it"}
    assert store.dashboard.trouble() == []
