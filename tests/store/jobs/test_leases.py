"""Claim, renew, mark, settle, give back: one test per promise of store/jobs/leases.py."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from holdfast.domain.fleet.stop_switch import StopMode
from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.job import COMMAND, ControlRequest, OnLost, State, WorkerId
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.verdict import Done, Failed, Released, Stopped
from holdfast.errors import InvalidInput, LeaseLost
from holdfast.store.jobs.leases import DEFAULT_LEASE, StartedCommand
from holdfast.store.jobs.settlement import Settlement
from tests.support.backends import START
from tests.support.jobs import BOOM, WORKER, lapse, only, put, record_start, state, states, take, take_one

SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)


# -- claim ----------------------------------------------------------------------------------


def test_a_job_is_handed_to_one_holder(make_store):
    """What one worker has claimed, another does not get."""
    first, second = make_store(), make_store()
    put(first)
    assert len(take(first)) == 1
    assert take(second) == []


def test_a_lease_tells_what_a_run_needs(store):
    """Payload, attempt number, token, and whether the start is marked."""
    job_id = put(store, payload='{"to":1}')
    lease = take_one(store, started=True)
    assert (lease.job_id, lease.payload, lease.attempt, lease.token, lease.losses) == (job_id, '{"to":1}', 1, 1, 0)
    job = store.views.get(job_id)
    assert (job.state, job.worker, job.lease_expires_at) == (State.RUNNING, "worker-1", START + DEFAULT_LEASE)


def test_the_most_urgent_comes_first(store, clock):
    """Higher priority first, then the earlier due time, then the smaller id."""
    third = put(store)
    fourth = put(store)
    first = put(store, priority=5)
    second = put(store, run_at=START - HOUR)
    last = put(store, priority=-1)
    assert [lease.job_id for lease in take(store, 9)] == [first, second, third, fourth, last]


def test_urgency_holds_across_queues_and_kinds(store):
    """The best of all lanes are taken, not the best of each."""
    put(store, kind="a")
    urgent = put(store, kind="b", queue="other", priority=9)
    assert take_one(store, kinds=("a", "b"), queues=("default", "other")).job_id == urgent


def test_a_worker_never_touches_what_it_does_not_know(store):
    """Kinds and queues that were not named stay where they are."""
    put(store, kind="unknown")
    put(store, queue="elsewhere")
    assert take(store, 9) == []


def test_no_kinds_no_jobs(store):
    """A worker that knows nothing gets nothing."""
    put(store)
    assert take(store, kinds=()) == []


@pytest.mark.parametrize("options", [{"hold": True}, {"delay": HOUR}])
def test_only_ready_jobs_are_claimed(store, options):
    """Held and scheduled jobs are not."""
    put(store, **options)
    assert take(store) == []


def test_each_claim_raises_the_token(store):
    """Tokens only grow."""
    put(store)
    tokens = []
    for _ in range(3):
        lease = take_one(store)
        tokens.append(lease.token)
        store.leases.settle(lease, Released())
    assert tokens == [1, 2, 3]


def test_a_claim_records_no_start(store):
    """K21, K68: also for work that must not run twice, and in a limited queue. Only a run that begins costs anything."""
    store.queues.set_limits("narrow", limit=9)
    ids = [put(store, on_lost=OnLost.DEAD), put(store, queue="narrow")]
    assert len(take(store, 9, queues=("default", "narrow"))) == 2
    assert [(job.attempts, job.started_at) for job in map(store.views.get, ids)] == [(0, None)] * 2, "K21 is broken"


def test_the_start_of_a_command_is_recorded_once(store):
    """K42: the answer has the label, and says whether commands are switched off."""
    job_id = put(store, kind=COMMAND, label="nightly")
    lease = take_one(store, kinds=[COMMAND])
    assert [store.leases.start_command(lease, HOUR) for _ in range(2)] == [StartedCommand(False, "nightly")] * 2
    job = store.views.get(job_id)
    assert (job.attempts, job.started_at, job.lease_expires_at) == (1, START, START + HOUR), "K42 is broken"
    store.command_switch.set(on=False)
    assert store.leases.start_command(lease) == StartedCommand(True, "nightly")


def test_a_command_does_not_start_after_its_cancel(store):
    """J14: it was claimed ahead. Its worker releases it, and it is cancelled."""
    job_id = put(store, kind=COMMAND)
    lease = take_one(store, kinds=[COMMAND])
    store.control.cancel(Selector(ids=(job_id,)), actor="ada")
    assert store.leases.start_command(lease) is None
    store.leases.release([lease])
    assert (state(store, job_id), store.views.get(job_id).attempts) == (State.CANCELLED, 0)


def test_a_command_does_not_start_after_a_pause_or_a_stop(store):
    """J13: also one that was claimed before. A callback, which has the highest priority, starts in a paused queue."""
    ids = [put(store, kind=COMMAND, priority=priority) for priority in (2147483647, 0)]
    callback, lease = take(store, 2, kinds=[COMMAND])
    store.queues.pause("default", note="maintenance")
    assert store.leases.start_command(lease) is None, "J13 is broken"
    assert store.leases.start_command(callback) is not None
    store.queues.resume("default")
    store.stop_switch.set(StopMode.DRAIN, actor="ada")
    assert store.leases.start_command(lease) is None
    assert [store.views.get(job_id).attempts for job_id in ids] == [1, 0]
    assert store.leases.start_command(callback) is not None, "K42 is broken: a start that is sent again is refused"
    store.stop_switch.clear()
    assert store.leases.start_command(lease) is not None


def test_one_transaction_ends_a_run_and_starts_a_command(store):
    """K42: both are on record, or neither. A second call changes nothing more; dependents of the first are judged."""
    ids = [put(store, kind=COMMAND, label=label) for label in ("first", "second")]
    dependent = put(store, kind="other", after=After(ids=(ids[0],)))
    first, second = take(store, 2, kinds=[COMMAND])
    done = Settlement(first, Done("7"), SECOND)
    with pytest.raises(Exception, match=r"bind|adapt"):
        store.leases.settle_and_start(done, second, object())
    assert states(store) == {ids[0]: State.RUNNING, ids[1]: State.RUNNING, dependent: State.WAITING}
    assert store.views.get(ids[1]).attempts == 0
    for _ in range(2):
        result, started = store.leases.settle_and_start(done, second, HOUR)
        assert (result.lost, result.locked, started) == (set(), set(), StartedCommand(False, "second"))
        assert states(store) == {ids[0]: State.DONE, ids[1]: State.RUNNING, dependent: State.READY}
    jobs = [store.views.get(each) for each in ids]
    assert [job.attempts for job in jobs] == [1, 1]
    assert (jobs[0].result, jobs[1].lease_expires_at) == ("7", START + HOUR)


def test_neither_lease_of_a_joint_write_depends_on_the_other(store, clock):
    """A run whose lease is lost delays no start, and a command that must not start keeps no result back."""
    ids = [put(store, kind=COMMAND) for _ in range(3)]
    lost, first, second = take(store, 3, kinds=[COMMAND])
    store.leases.settle(lost, Released())
    take_one(store, kinds=[COMMAND])
    result, started = store.leases.settle_and_start(Settlement(lost, Done()), first)
    assert (result.lost, started is not None) == ({(lost.job_id, lost.token)}, True)
    store.queues.pause("default")
    assert store.leases.settle_and_start(Settlement(first, Done()), second)[1] is None
    assert [state(store, each) for each in ids] == [State.RUNNING, State.DONE, State.RUNNING]
    assert store.views.get(ids[2]).attempts == 0


def test_a_paused_queue_starts_nothing(store):
    """Until it is resumed; what runs goes on."""
    put(store)
    put(store)
    running = take_one(store)
    store.queues.pause("default", note="maintenance")
    assert take(store) == []
    store.leases.settle(running, Done())
    store.queues.resume("default")
    assert len(take(store)) == 1


def test_a_checkpoint_is_handed_to_the_next_attempt(store):
    """So that it can go on where the last one stopped."""
    put(store)
    lease = take_one(store)
    store.leases.report(lease, checkpoint='{"at":5}')
    store.leases.settle(lease, Failed(error="x", after=timedelta(0)))
    assert take_one(store).checkpoint == '{"at":5}'


# -- renew ----------------------------------------------------------------------------------


def test_a_renewal_extends_the_lease(store, clock):
    """By its term, from now."""
    job_id = put(store)
    lease = take_one(store)
    clock.advance(SECOND * 30)
    (renewal,) = store.leases.renew([lease])
    assert renewal.renewed
    assert store.views.get(job_id).lease_expires_at == START + SECOND * 30 + DEFAULT_LEASE


def test_renewing_a_lapsed_lease_that_nobody_took_succeeds(store, clock):
    """A late holder is not robbed by its own clock."""
    put(store)
    lease = take_one(store)
    lapse(clock)
    assert len(store.leases.renew([lease])) == 1
    assert store.leases.take_over() == []


def test_lost_leases_are_missing_in_the_answer(store, clock):
    """Those that are still held are renewed beside them."""
    put(store)
    put(store)
    kept, lost = take(store, 2)
    store.leases.settle(lost, Done())
    assert [renewal.job_id for renewal in store.leases.renew([kept, lost])] == [kept.job_id]


def test_a_renewal_brings_the_news_of_a_cancel(store):
    """A cancel reaches the holder with its next renewal."""
    job_id = put(store)
    lease = take_one(store)
    store.control.cancel(only(job_id), actor="ada")
    (renewal,) = store.leases.renew([lease])
    assert renewal.requested is ControlRequest.CANCEL


def test_renewing_nothing_is_no_work(store):
    """An idle worker asks nothing."""
    assert store.leases.renew([]) == []


# -- mark -----------------------------------------------------------------------------------


def test_a_mark_counts_the_attempt_once(store):
    """A mark that is sent again changes nothing."""
    job_id = put(store)
    lease = take_one(store)
    assert store.views.get(job_id).attempts == 0
    assert record_start(store, lease) == 1
    assert record_start(store, lease) == 1
    assert store.views.get(job_id).started_at == START


def test_a_lost_lease_cannot_be_marked(store):
    """Whoever lost the job must not begin it."""
    put(store)
    lease = take_one(store)
    store.leases.release([lease])
    with pytest.raises(LeaseLost):
        record_start(store, lease)


# -- settle ---------------------------------------------------------------------------------


@pytest.mark.parametrize("started", [True, False])
def test_a_success_is_one_row(store, database, clock, started):
    """A job done at its first attempt leaves no row of attempts or events, and both can be told."""
    job_id = put(store)
    clock.advance(SECOND)
    lease = take_one(store, started=started)
    clock.advance(SECOND * 9)
    store.leases.settle(lease, Done('{"n":1}'), ran=SECOND * 5)
    job = store.views.get(job_id)
    assert (job.state, job.result, job.attempts, job.reason) == (State.DONE, '{"n":1}', 1, "done")
    assert (job.started_at, job.finished_at) == (START + SECOND * 5, START + SECOND * 10)
    assert database.execute("SELECT count(*) FROM holdfast.attempt")[0][0] == 0
    assert database.execute("SELECT count(*) FROM holdfast.event")[0][0] == 0
    (attempt,) = store.views.attempts(job_id)
    assert (attempt.number, attempt.token, attempt.worker, attempt.reason) == (1, 1, "worker-1", "done")
    assert [event.name for event in store.views.events(job_id)] == ["enqueued", "started", "done"]


@pytest.mark.parametrize("outcome", [Done(), Failed(error="boom", permanent=True), Failed(error="boom")])
def test_a_late_settlement_has_the_times_of_the_run(store, clock, outcome):
    """A4: after an outage of 50 seconds, a run seemed to have begun and ended 50 seconds late."""
    job_id = put(store)
    lease = take_one(store)
    clock.advance(SECOND * 60)
    late = Settlement(lease, outcome, SECOND * 10, finished=time.monotonic() - 50)
    store.leases.settle_many([late])
    (attempt,) = store.views.attempts(job_id)
    times = [(attempt.started_at, attempt.finished_at)]
    job = store.views.get(job_id)
    times += [(job.started_at, job.finished_at)] if job.state.finished else []
    for begun, finished in times:
        assert abs(begun - START) < SECOND, "A4 is broken"
        assert abs(finished - START - SECOND * 10) < SECOND, "A4 is broken"


def test_a_failure_is_scheduled_again(store, clock):
    """With its attempt, its error, and a delay by the store's clock."""
    job_id = put(store)
    store.leases.settle(take_one(store), Failed(error="boom", exit_code=3), ran=SECOND)
    job = store.views.get(job_id)
    assert (job.state, job.attempts) == (State.SCHEDULED, 1)
    assert START + SECOND * 48 <= job.due_at <= START + SECOND * 72
    (attempt,) = store.views.attempts(job_id)
    assert (attempt.number, attempt.reason, attempt.error, attempt.exit_code) == (1, "handler_error", "boom", 3)
    assert attempt.started_at == START - SECOND


def test_the_rows_own_numbers_rule(store, database):
    """A limit that was lowered while the job ran holds, whatever the lease said."""
    job_id = put(store)
    lease = take_one(store)
    database.execute("UPDATE holdfast.job SET max_attempts = 1")
    store.leases.settle(lease, BOOM)
    assert state(store, job_id) is State.DEAD


def test_attempts_run_out(store):
    """After the last failure the job is dead, with every attempt on record."""
    job_id = put(store, max_attempts=2)
    for error in ("one", "two"):
        store.leases.settle(take_one(store), Failed(error=error, after=timedelta(0)))
    job = store.views.get(job_id)
    assert (job.state, job.attempts, job.error) == (State.DEAD, 2, "two")
    assert [attempt.error for attempt in store.views.attempts(job_id)] == ["one", "two"]


def test_a_stopped_run_is_cancelled(store):
    """A handler that obeyed ends its job as cancelled."""
    job_id = put(store)
    lease = take_one(store)
    store.leases.settle(lease, Stopped())
    assert state(store, job_id) is State.CANCELLED


def test_a_release_costs_no_attempt(store):
    """The job is ready again, in its old place: a shutdown refunds the attempt (SPEC 8.11)."""
    job_id = put(store)
    store.leases.settle(take_one(store, started=True), Released())
    job = store.views.get(job_id)
    assert (job.state, job.attempts, job.due_at) == (State.READY, 0, START)


def test_a_settle_sent_again_is_a_success(store):
    """Its outcome is recorded once."""
    job_id = put(store)
    lease = take_one(store)
    for _ in range(2):
        store.leases.settle(lease, BOOM)
    assert len(store.views.attempts(job_id)) == 1
    other = put(store)
    lease = take_one(store)
    for _ in range(2):
        store.leases.settle(lease, Done())
    assert state(store, other) is State.DONE


def test_another_outcome_for_a_settled_run_is_refused(store):
    """One accepted end per attempt: a late success does not undo a recorded failure."""
    job_id = put(store)
    lease = take_one(store)
    store.leases.settle(lease, BOOM)
    for outcome in (Done(), Released(), Stopped()):
        with pytest.raises(LeaseLost):
            store.leases.settle(lease, outcome)
    assert state(store, job_id) is State.SCHEDULED


def test_many_are_settled_at_once_and_the_lost_are_named(store):
    """A lost lease holds up no other settlement."""
    ids = [put(store) for _ in range(4)]
    leases = take(store, 4)
    store.leases.settle(leases[0], Done())
    outcomes = [BOOM, Done(), Released(), Done()]
    lost = store.leases.settle_many([Settlement(*pair) for pair in zip(leases, outcomes, strict=True)]).lost
    assert lost == {(ids[0], 1)}
    assert states(store) == dict(zip(ids, [State.DONE, State.DONE, State.READY, State.DONE], strict=True))


@pytest.mark.parametrize("stale", [Done('"stale"'), BOOM, Released()])
@pytest.mark.parametrize("newest_first", [True, False])
def test_an_old_run_of_a_job_does_not_hide_the_new_one(store, clock, stale, newest_first):
    """K52: both finish in one group; each is judged by its token."""
    job_id = put(store)
    old = take_one(store, started=True)
    lapse(clock)
    store.leases.take_over()
    clock.advance(hours=1)
    store.leases.promote()
    new = take_one(store, started=True)
    group = [Settlement(new, Done('"right"')), Settlement(old, stale)]
    result = store.leases.settle_many(group if newest_first else group[::-1])
    assert (result.lost, store.views.get(job_id).result) == ({(job_id, old.token)}, '"right"')


def test_odd_error_text_never_costs_the_job(store):
    """NUL, half an emoji and megabytes are mended and cut."""
    job_id = put(store)
    store.leases.settle(take_one(store), Failed(error="\0 \ud83d " + "x" * 10_000_000))
    (attempt,) = store.views.attempts(job_id)
    assert attempt.error.startswith("\ufffd ?")
    assert len(attempt.error) == 64 * 1024


@pytest.mark.parametrize("result", ["x" * 300_000, '"half \ud83d"', '"nul \0"', "not json", '"' + "y" * 300_000 + '"'])
def test_an_odd_result_never_undoes_a_success(store, result):
    """Nor that of its neighbours in the group (SPEC 8.12)."""
    ids = [put(store) for _ in range(3)]
    leases = take(store, 3)
    outcomes = [Done("1"), Done(result), Done("3")]
    assert store.leases.settle_many([Settlement(*pair) for pair in zip(leases, outcomes, strict=True)]).lost == set()
    assert [states(store)[job_id] for job_id in ids] == [State.DONE] * 3
    assert [store.views.get(ids[n]).result for n in (0, 2)] == ["1", "3"]


@pytest.mark.parametrize("checkpoint", ["x" * 70_000, '"' + "y" * 70_000 + '"', "{", '"\ud83d"'])
def test_a_checkpoint_is_json_of_bounded_size(store, checkpoint):
    """What cannot be handed to the next attempt is refused at once."""
    put(store)
    with pytest.raises(InvalidInput):
        store.leases.report(take_one(store), checkpoint=checkpoint)


# -- give back ------------------------------------------------------------------------------


def test_unbegun_jobs_are_given_back(store):
    """They cost nothing and leave no trace; what has begun stays."""
    ids = [put(store) for _ in range(3)]
    leases = take(store, 3)
    record_start(store, leases[0])
    assert store.leases.release(leases).released == 2
    assert [states(store)[job_id] for job_id in ids] == [State.RUNNING, State.READY, State.READY]
    assert store.views.attempts(ids[1]) == []
    assert store.leases.release([]).released == 0


def test_a_wanted_cancel_is_not_given_back(store):
    """A prefetched job that shall be cancelled is cancelled, not handed to the next worker."""
    job_id = put(store)
    lease = take_one(store)
    store.control.cancel(only(job_id), actor="ada")
    assert store.leases.release([lease]).released == 1
    assert state(store, job_id) is State.CANCELLED


def test_a_cancel_is_wanted_of_one_run(store):
    """A job that came back from its holder is free of it."""
    job_id = put(store, on_lost=OnLost.HOLD)
    lease = take_one(store, started=True)
    store.control.cancel(only(job_id), actor="ada")
    store.leases.settle(lease, Released(interrupted=True))
    assert state(store, job_id) is State.CANCELLED


# -- promote, report --------------------------------------------------------------------------


def test_due_jobs_become_ready(store, clock):
    """Not before their time; the earliest first."""
    soon, late = put(store, delay=SECOND), put(store, delay=HOUR)
    assert store.leases.promote() == 0
    clock.advance(SECOND)
    assert store.leases.promote() == 1
    assert states(store) == {soon: State.READY, late: State.SCHEDULED}
    assert [(event.name, event.actor) for event in store.views.events(soon)][1:] == [("due", "holdfast:maintenance")]


def test_the_next_due_job_is_known(store, clock):
    """None without one, less than nothing when it is due."""
    assert store.leases.next_due() is None
    put(store, delay=HOUR)
    put(store, delay=SECOND)
    assert store.leases.next_due() == SECOND
    clock.advance(2 * SECOND)
    assert store.leases.next_due() == -SECOND


def test_a_lapsed_lease_is_seen(store, clock):
    put(store)
    take_one(store)
    assert not store.leases.any_expired()
    lapse(clock)
    assert store.leases.any_expired()
    clock.advance(timedelta(minutes=1))
    assert store.leases.any_expired(window=timedelta(minutes=2))
    assert not store.leases.any_expired(window=timedelta(seconds=30))


def test_promotion_goes_in_steps(store, clock):
    """No more than the limit at once."""
    for _ in range(3):
        put(store, delay=SECOND)
    clock.advance(HOUR)
    assert [store.leases.promote(limit=2) for _ in range(3)] == [2, 1, 0]


def test_progress_is_seen_by_everyone(make_store):
    """What is not said stays as it was."""
    worker, reader = make_store(), make_store()
    job_id = put(worker)
    lease = take_one(worker)
    worker.leases.report(lease, done=1, total=10, message="begun \0")
    worker.leases.report(lease, done=2)
    job = reader.views.get(job_id)
    assert (job.progress_done, job.progress_total, job.progress_message) == (2, 10, "begun \ufffd")


def test_a_lost_lease_reports_nothing(store):
    """Progress is a write of the holder, and fenced like all of them."""
    put(store)
    lease = take_one(store)
    store.leases.settle(lease, Done())
    with pytest.raises(LeaseLost):
        store.leases.report(lease, done=1)


def test_workers_are_told_apart(store):
    """Each lease carries the id of the worker that claimed it."""
    job_id = put(store)
    take_one(store, worker=WorkerId("other"))
    assert store.views.get(job_id).worker == "other"


def test_a_renewal_marks_the_runs_that_are_under_way(store):
    """Once; those that have not begun stay unmarked."""
    begun, unbegun = put(store), put(store)
    leases = take(store, 2)
    for _ in range(2):
        store.leases.renew(leases, begun=[begun])
    jobs = {job: store.views.get(job) for job in (begun, unbegun)}
    assert (jobs[begun].attempts, jobs[begun].started_at) == (1, START)
    assert (jobs[unbegun].attempts, jobs[unbegun].started_at) == (0, None)


def test_the_order_of_leases_does_not_matter(store, clock):
    """Each row is compared with its own lease, whatever the order of the call; of two leases of a job, one counts."""
    ids = [put(store) for _ in range(5)]
    leases = take(store, 5)
    stale = leases[2]
    assert store.leases.release([stale]).released == 1
    shuffled = [leases[4], stale, leases[1], take_one(store), leases[3], leases[0]]
    clock.advance(SECOND * 30)
    renewed = store.leases.renew(shuffled, begun=ids[1:4:2])
    assert {renewal.job_id for renewal in renewed if renewal.renewed} == set(ids)
    assert [store.views.get(job).attempts for job in ids] == [0, 1, 0, 1, 0]
    results = {lease.job_id: f'"{lease.job_id}"' for lease in shuffled}
    assert results.keys() == set(ids)
    lost = store.leases.settle_many([Settlement(lease, Done(results[lease.job_id])) for lease in shuffled]).lost
    assert lost == {(stale.job_id, stale.token)}
    assert {job: store.views.get(job).result for job in ids} == results


# -- leases that their holder does not know of ----------------------------------------------------


def test_what_a_worker_holds_without_knowing_goes_back(store):
    """The answer to its claim was lost. Nothing was begun, so nothing is paid."""
    known, started, plain = put(store), put(store), put(store)
    for job, has_started in ((known, False), (started, True), (plain, False)):
        assert take_one(store, started=has_started).job_id == job
    assert store.leases.release_unknown(WORKER, queues=["default"], known=[known]) == 2
    assert states(store) == {known: State.RUNNING, started: State.READY, plain: State.READY}
    assert {store.views.get(job).attempts for job in (started, plain)} == {0}


def test_nobody_forsakes_what_another_holds(store):
    put(store)
    take_one(store)
    assert store.leases.release_unknown(WorkerId("other"), queues=["default"], known=[]) == 0


def test_a_cancel_reaches_what_is_forsaken(store):
    """It was wanted while the holder did not know that it held the job."""
    job_id = put(store)
    take_one(store)
    store.control.cancel(only(job_id), actor="ada")
    store.leases.release_unknown(WORKER, queues=["default"], known=[])
    assert state(store, job_id) is State.CANCELLED


def test_the_rate_of_progress_counts_this_run_alone(store, clock):
    """K59: a run that resumes at 500 has not made 500 in its first second."""
    job_id = put(store)
    lease = take_one(store)
    clock.advance(seconds=10)
    store.leases.report(lease, done=500, total=1000)
    assert store.views.get(job_id).progress_rate(clock.now()) == 50
    store.leases.settle(lease, Released())
    again = take_one(store)
    clock.advance(seconds=10)
    assert store.views.get(job_id).progress_rate(clock.now()) is None
    store.leases.report(again, checkpoint="{}")
    for done in (510, 520):
        store.leases.report(again, done=done)
    assert store.views.get(job_id).progress_rate(clock.now()) == 2
    store.leases.report(again, done=530)
    assert store.views.get(job_id).progress_rate(clock.now()) == 3


def test_a_run_that_counts_from_the_beginning_has_its_own_rate(store, clock):
    """K59: without a checkpoint the progress begins at nothing again."""
    job_id = put(store)
    lease = take_one(store)
    store.leases.report(lease, done=500)
    store.leases.settle(lease, Released())
    again = take_one(store)
    clock.advance(seconds=10)
    for done in (1, 20):
        store.leases.report(again, done=done)
    assert store.views.get(job_id).progress_rate(clock.now()) == 2


def test_a_running_job_counts_its_present_attempt(store):
    """K59: from the claim on, though its start may not be recorded yet."""
    job_id = put(store)
    assert store.views.get(job_id).tries == 0
    lease = take_one(store)
    assert store.views.get(job_id).tries == 1
    record_start(store, lease)
    assert store.views.get(job_id).tries == 1
    store.leases.settle(lease, BOOM)
    assert store.views.get(job_id).tries == 1


def test_starts_stay_in_the_history(store, clock):
    """K59: also of attempts that failed or were released."""
    job_id = put(store)
    for end in (BOOM, Released(), Done()):
        store.leases.settle(take_one(store), end)
        clock.advance(hours=1)
        store.leases.promote()
    names = [event.name for event in store.views.events(job_id)]
    assert names == ["enqueued", "started", "failed", "due", "started", "released", "started", "done"]
    assert [event.name for event in store.dashboard.job_record(job_id).events] == names
