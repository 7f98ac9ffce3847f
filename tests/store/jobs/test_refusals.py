"""Jobs whose payload a worker cannot read: other code gets them, never the same code again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.domain.jobs.job import State, WorkerId
from holdfast.domain.jobs.new_job import NewJob, OnConflict, Unique
from holdfast.domain.jobs.refusal import load_refusals
from holdfast.domain.jobs.verdict import Done, Unreadable
from holdfast.domain.jobs.why import Because
from tests.support.jobs import BOOM, only, put, state, take, take_one

OLD, NEW, NEWEST = "build-old", "build-new", "build-newest"


@pytest.fixture
def start(store, clock):
    """Registers workers, each one second after the one before."""

    def announce(build: str, *, queues=("default",), kinds=("mail",)) -> WorkerId:
        clock.advance(seconds=1)
        worker = WorkerId(f"worker of {build}")
        store.workers.announce(worker, host="host", pid=1, queues=[*queues], kinds=[*kinds], build=build)
        return worker

    return announce


def refuse(store, build: str, **options) -> None:
    """Claim a job with the code of a build, and refuse its payload."""
    (lease,) = take(store, worker=WorkerId(f"worker of {build}"), build=build, **options)
    store.leases.settle(lease, Unreadable(error="no field `cc`", version=1, build=build))


def test_a_refused_job_goes_to_other_code_and_never_back(store, start):
    """K13: the job is released at no cost, and only workers of the other build can claim it."""
    start(OLD)
    start(NEW)
    job_id = put(store)
    refuse(store, OLD)
    job = store.views.get(job_id)
    assert (job.state, job.attempts, job.reader) == (State.READY, 0, NEW)
    assert take(store, build=OLD) == take(store) == [], "K13 is broken: the code that refused it gets it again"
    store.leases.settle(take_one(store, build=NEW), Done())
    assert state(store, job_id) is State.DONE


def test_a_job_that_no_live_worker_can_read_is_held_with_the_reason(store, start):
    """K13: it is never dead, whatever max_attempts says; the note names the version, the worker and the field."""
    start(OLD)
    start(NEW)
    job_id = put(store, max_attempts=1)
    refuse(store, OLD)
    refuse(store, NEW)
    job = store.views.get(job_id)
    assert (job.state, job.attempts, job.unreadable) == (State.HELD, 0, True), "K13 is broken: it is not held"
    assert job.note == (
        "no live worker can read its payload: version 1 on worker worker of build-old: no field `cc`; "
        "version 1 on worker worker of build-new: no field `cc`"
    )


def test_a_worker_of_new_code_gets_held_jobs_one_try_each(store, start):
    """K13: a worker that starts later gets the jobs; those that it cannot read either are held again, for good."""
    start(OLD)
    job_id = put(store)
    refuse(store, OLD)
    assert store.leases.offer_refused() == 0
    start(NEW)
    assert store.leases.offer_refused() == 1
    assert (state(store, job_id), store.views.get(job_id).note) == (State.READY, None)
    refuse(store, NEW)
    assert (state(store, job_id), store.leases.offer_refused()) == (State.HELD, 0)


def test_jobs_for_a_build_that_is_gone_go_to_the_next_one(store, start):
    """K13: no job waits for workers that have stopped."""
    start(OLD)
    new = start(NEW)
    job_id = put(store)
    refuse(store, OLD)
    store.workers.record_stop(new)
    assert store.leases.offer_refused() == 1
    assert store.views.get(job_id).unreadable
    start(NEWEST)
    assert store.leases.offer_refused() == 1
    assert store.views.get(job_id).reader == NEWEST


def test_a_silent_worker_does_not_count(store, start, clock):
    start(NEW)
    clock.advance(minutes=5)
    start(OLD)
    job_id = put(store)
    refuse(store, OLD)
    assert store.views.get(job_id).unreadable


def test_only_builds_that_serve_the_queue_and_the_kind_count(store, start):
    start(OLD)
    start(NEW, queues=("other",))
    start(NEWEST, kinds=("report",))
    job_id = put(store)
    refuse(store, OLD)
    assert store.views.get(job_id).unreadable


def test_the_newest_build_tries_first(store, start):
    start(NEW)
    start(OLD)
    start(NEWEST)
    job_id = put(store)
    refuse(store, OLD)
    assert store.views.get(job_id).reader == NEWEST


def test_a_retry_of_a_refused_job_stays_with_its_reader(store, start, clock):
    """K13: a failure, a lost holder and a release do not lead back to the code that cannot read it."""
    start(OLD)
    start(NEW)
    job_id = put(store)
    refuse(store, OLD)
    store.leases.settle(take_one(store, build=NEW), BOOM)
    clock.advance(hours=1)
    store.leases.promote()
    take_one(store, build=NEW)
    clock.advance(minutes=2)
    store.leases.take_over()
    assert take(store, build=OLD, started=True) == []
    store.leases.release([take_one(store, build=NEW, started=True)])
    assert store.views.get(job_id).reader == NEW


def test_refused_jobs_of_a_limited_queue_go_to_their_reader(store, start):
    start(OLD)
    start(NEW)
    store.queues.set_limits("default", limit=5)
    put(store)
    refuse(store, OLD)
    assert take(store, build=OLD) == []
    assert len(take(store, build=NEW)) == 1


def test_a_person_who_resumes_or_rewrites_it_gives_it_to_every_build(store, start):
    """K13: resume, a new payload and another queue clear the refusals."""
    start(OLD)
    for act in (
        lambda job: store.control.resume(only(job), actor="ann"),
        lambda job: store.control.rewrite(only(job), lambda _: '{"a": 1}', actor="ann"),
    ):
        job_id = put(store)
        refuse(store, OLD)
        assert store.views.get(job_id).unreadable
        act(job_id)
        job = store.views.get(job_id)
        assert (job.state, job.reader, job.refusals) == (State.READY, "", None)
        store.leases.settle(take_one(store, build=OLD), Done())


def test_a_held_job_of_a_person_is_not_offered(store, start):
    """K13: only the refusals of workers are undone, never the hold of a person."""
    start(OLD)
    start(NEW)
    job_id = put(store)
    refuse(store, OLD)
    store.control.hold(only(job_id), actor="ann", note="wait")
    start(NEWEST)
    assert store.leases.offer_refused() == 0
    assert (state(store, job_id), store.views.get(job_id).note) == (State.HELD, "wait")


def test_a_requested_cancel_or_pause_wins_over_a_refusal(store, start):
    start(OLD)
    start(NEW)
    for request, then in ((store.control.cancel, State.CANCELLED), (store.control.pause, State.HELD)):
        job_id = put(store)
        lease = take_one(store, build=OLD)
        request(only(job_id), actor="ann")
        store.leases.settle(lease, Unreadable(error="no", build=OLD))
        assert state(store, job_id) is then
    assert store.leases.offer_refused() == 0


def test_a_refusal_written_twice_counts_once(store, start):
    """An answer that got lost is sent again; the second write is a success and changes nothing."""
    start(OLD)
    start(NEW)
    job_id = put(store)
    lease = take_one(store, build=OLD)
    for _ in range(2):
        store.leases.settle(lease, Unreadable(error="no", build=OLD))
    assert len(load_refusals(store.views.get(job_id).refusals)) == 1


def test_every_step_is_an_event(store, start):
    """K13: the history names the build that refused and the one that tries next."""
    start(OLD)
    job_id = put(store)
    refuse(store, OLD)
    start(NEW)
    store.leases.offer_refused()
    names = [event.name for event in store.views.events(job_id)]
    assert names == ["enqueued", "unreadable", "offered"]
    details = [event.detail or "" for event in store.views.events(job_id)]
    assert ("no field `cc`" in details[1], NEW in details[2]) == (True, True)
    assert [attempt.reason for attempt in store.views.attempts(job_id)] == ["unreadable"]


def test_why_names_the_workers_that_cannot_read_it(store, start):
    """K13: why and show give the reason while it waits for other code, and while it is held."""
    start(OLD)
    start(NEW)
    job_id = put(store)
    refuse(store, OLD)
    waiting = store.views.why(job_id)[0]
    assert (waiting.because, "no field `cc`" in waiting.text) == (Because.UNREADABLE, True)
    refuse(store, NEW)
    held = store.views.why(job_id)[0]
    assert (held.because, "until one starts that can read version 1" in held.text) == (Because.UNREADABLE, True)


def test_many_refused_jobs_are_offered_in_pages(store, start):
    start(OLD)
    for _ in range(5):
        put(store)
        refuse(store, OLD)
    start(NEW)
    assert [store.leases.offer_refused(limit=2) for _ in range(4)] == [2, 2, 1, 0]


def test_a_revived_job_is_read_by_every_build_again(store, start):
    """A retry of a dead job starts afresh, with the version of its payload."""
    start(OLD)
    start(NEW)
    job_id = put(store, kind_version=3, max_attempts=1)
    refuse(store, OLD)
    store.leases.settle(take_one(store, build=NEW), BOOM)
    store.control.retry(only(job_id), actor="ann")
    lease = take_one(store, build=OLD)
    assert (lease.job_id, lease.kind_version) == (job_id, 3)


def test_a_replacement_brings_its_own_version_and_is_tried_by_all(store, start):
    """K13: replace changes payload and version together, and releases a job that no worker could read."""
    start(OLD)
    first = NewJob(kind="mail", unique=Unique("k"), kind_version=2)
    job_id = store.jobs.enqueue(first).id
    refuse(store, OLD)
    store.jobs.enqueue(NewJob(kind="mail", unique=Unique("k"), kind_version=1, on_conflict=OnConflict.REPLACE))
    lease = take_one(store, build=OLD)
    assert (lease.job_id, lease.kind_version) == (job_id, 1)


def test_refusals_do_not_delay_other_jobs_of_the_lane(store, start):
    """The claim of old code passes over nothing: refused jobs are in another lane."""
    start(OLD)
    start(NEW)
    refused = [put(store, priority=9) for _ in range(3)]
    for _ in refused:
        refuse(store, OLD)
    plain = put(store)
    assert [lease.job_id for lease in take(store, 10, build=OLD)] == [plain]
    assert [lease.job_id for lease in take(store, 10, build=NEW)] == refused


def test_one_claim_serves_both_lanes_in_order_of_priority(store, start):
    start(OLD)
    start(NEW)
    put(store, priority=5)
    refuse(store, OLD)
    first, last = put(store, priority=9), put(store, priority=1)
    claimed = [lease.job_id for lease in take(store, 10, build=NEW, lease_duration=timedelta(seconds=60))]
    assert (claimed[0], claimed[-1], len(claimed)) == (first, last, 3)


def test_a_refused_command_waits_in_line_for_its_reader(store, start):
    """K13: an autoscaler sees the jobs that every build may claim, and those of its own build, in order."""
    start(OLD)
    start(NEW)
    refused = put(store, priority=5)
    refuse(store, OLD)
    plain = put(store)
    lines = {build: store.autoscaler.queue_line("default", "mail", limit=9, build=build) for build in (OLD, NEW)}
    assert [job.job_id for job in lines[OLD]] == [plain]
    assert [job.job_id for job in lines[NEW]] == [refused, plain]


def test_why_suggests_a_worker_of_the_version(store, start):
    """After a roll back, a resume would only offer the job to the same code again."""
    start(OLD)
    job_id = put(store, kind_version=3, queue="mails")
    start(NEW, queues=["mails"])
    refuse(store, NEW, queues=["mails"])
    (held,) = store.views.why(job_id)
    assert "can read version 3 of it: version 1 on worker" in held.text
    assert held.command == "holdfast worker --app MODULE:APP --queue mails"


def test_kinds_whose_jobs_no_live_worker_can_read_are_a_problem(store, start):
    start(OLD, kinds=["mail", "post"])
    assert store.dashboard.trouble() == []
    for version in (2, 3):
        put(store, kind_version=version)
        refuse(store, OLD)
    (trouble,) = store.dashboard.trouble()
    assert (trouble.category, trouble.name, trouble.detail, trouble.count) == ("unreadable", "mail", "3", 2)
    start(NEW)
    store.leases.offer_refused()
    assert store.dashboard.trouble() == []
