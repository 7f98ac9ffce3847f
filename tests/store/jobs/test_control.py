"""The verbs of people: one test per promise of store/jobs/control.py."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.domain.commands.command import COMMAND
from holdfast.domain.jobs.dependencies import After, IfNot
from holdfast.domain.jobs.job import ControlRequest, OnLost, State
from holdfast.domain.jobs.new_job import KeyScope, Unique
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.verdict import Done, Failed, Released
from holdfast.errors import InvalidInput, JobInUse, NoSuchJob
from tests.support.jobs import BOOM, lapse, only, put, state, states, take, take_one

FATAL = Failed(error="boom", permanent=True)
ALL = Selector()


def kill(store, **options):
    """A job that is dead."""
    job_id = put(store, **options)
    store.leases.settle(take_one(store), FATAL)
    return job_id


@pytest.mark.parametrize("options", [{}, {"hold": True}, {"delay": timedelta(hours=1)}])
def test_idle_jobs_are_cancelled_at_once(store, options):
    """Ready, held or scheduled; the event names the person."""
    job_id = put(store, **options)
    assert store.control.cancel(only(job_id), actor="ada") == [job_id]
    job = store.views.get(job_id)
    assert (job.state, job.reason, job.error) == (State.CANCELLED, "cancelled", "cancelled by ada")
    assert [(event.name, event.actor) for event in store.views.events(job_id)][1:] == [("cancelled", "ada")]


def test_a_running_job_is_asked_to_stop(store):
    """It goes on until its holder obeys; asking twice is asking once."""
    job_id = put(store)
    take_one(store)
    assert store.control.cancel(only(job_id), actor="ada") == [job_id]
    assert store.control.cancel(only(job_id), actor="ada") == []
    assert state(store, job_id) is State.RUNNING


def test_what_has_ended_is_not_cancelled(store):
    """Cancelled never becomes done, and done never cancelled."""
    job_id = put(store)
    store.leases.settle(take_one(store), Done())
    assert store.control.cancel(only(job_id), actor="ada") == []
    assert state(store, job_id) is State.DONE


def test_held_jobs_are_let_go(store):
    """Back to ready, or scheduled when it is not yet time."""
    ready, late = put(store), put(store, delay=timedelta(hours=1))
    assert store.control.hold(ALL, actor="ada", note="wait") == [ready, late]
    assert store.views.get(ready).note == "wait"
    assert take(store) == []
    assert store.control.unhold(ALL, actor="ada") == [ready, late]
    assert states(store) == {ready: State.READY, late: State.SCHEDULED}
    assert [event.name for event in store.views.events(ready)] == ["enqueued", "held", "resumed"]


def test_a_running_job_cannot_be_held(store):
    """What runs is cancelled, or left to end."""
    job_id = put(store)
    take_one(store)
    assert store.control.hold(only(job_id), actor="ada") == []


def test_dead_jobs_run_again_with_all_their_attempts(store):
    """The same job, its history kept, its token going on; no new job is made (SPEC 8.22)."""
    job_id = kill(store)
    assert store.control.retry(only(job_id), actor="ada") == [job_id]
    job = store.views.get(job_id)
    assert (job.state, job.attempts, job.crashes, job.error, job.finished_at) == (State.READY, 0, 0, None, None)
    lease = take_one(store, started=True)
    assert (lease.token, lease.attempt) == (2, 1)
    assert len(store.views.attempts(job_id)) == 2
    assert len(states(store)) == 1


def test_retry_finds_jobs_by_their_error(store):
    """Any part of the text, in any case."""
    job_id = kill(store)
    assert store.control.retry(Selector(error="BO"), actor="ada") == [job_id]
    assert store.control.retry(Selector(error="other"), actor="ada") == []


def test_a_scheduled_retry_can_be_hastened(store):
    """A job that waits for its next attempt runs now, its attempts as they are."""
    job_id = put(store)
    store.leases.settle(take_one(store), BOOM)
    assert store.control.retry(only(job_id), actor="ada") == [job_id]
    assert take_one(store).attempt == 2


def test_done_jobs_are_not_retried(store):
    """A done job stays done."""
    put(store)
    store.leases.settle(take_one(store), Done())
    assert store.control.retry(ALL, actor="ada") == []


def test_of_dead_duplicates_only_the_newest_comes_back(store):
    """No unique key is broken (SPEC 8.20)."""
    dead = [kill(store, unique=Unique("k")) for _ in range(3)]
    assert store.control.retry(ALL, actor="ada") == [dead[-1]]
    assert put(store, unique=Unique("k")) == dead[-1]


def test_a_dead_job_does_not_come_back_beside_a_live_one(store):
    """The key belongs to the newer job; retrying the old one is no error (SPEC 8.28)."""
    dead = kill(store, unique=Unique("k"))
    live = put(store, unique=Unique("k"))
    assert store.control.retry(only(dead), actor="ada") == []
    assert states(store) == {dead: State.DEAD, live: State.READY}


def test_a_revived_job_has_its_key_again(store):
    """Also when its scope was for ever."""
    dead = kill(store, unique=Unique("k", KeyScope.FOREVER))
    assert store.control.retry(only(dead), actor="ada") == [dead]
    assert put(store, unique=Unique("k")) == dead


def test_an_older_duplicate_takes_the_key_over_when_it_alone_is_revived(store):
    """The newest of the chosen ones, even when a newer dead one had the key last."""
    old = kill(store, unique=Unique("k"))
    kill(store, unique=Unique("k"))
    assert store.control.retry(only(old), actor="ada") == [old]
    assert put(store, unique=Unique("k")) == old


def test_priority_queue_and_time_can_be_changed(store, clock):
    """Each change is an event with its actor."""
    job_id = put(store)
    store.control.set_priority(only(job_id), 7, actor="ada")
    store.control.move(only(job_id), "other", actor="ada")
    store.control.reschedule(only(job_id), clock.now() + timedelta(hours=1), actor="ada")
    job = store.views.get(job_id)
    assert (job.priority, job.queue, job.state) == (7, "other", State.SCHEDULED)
    store.control.reschedule(only(job_id), clock.now(), actor="ada")
    assert state(store, job_id) is State.READY
    names = [event.name for event in store.views.events(job_id)][1:]
    assert names == ["reprioritised", "moved", "rescheduled", "rescheduled"]


@pytest.mark.parametrize(
    "change",
    [
        lambda control: control.set_priority(ALL, 2**31, actor="a"),
        lambda control: control.move(ALL, "", actor="a"),
    ],
)
def test_senseless_changes_are_refused(store, change):
    """Nothing is changed."""
    with pytest.raises(InvalidInput):
        change(store.control)


def test_jobs_are_removed_with_their_history(store, database):
    """No row of theirs is left in any table."""
    job_id = kill(store, unique=Unique("k"))
    waiting = put(store, hold=True)
    assert store.control.delete(ALL) == [job_id, waiting]
    with pytest.raises(NoSuchJob):
        store.views.get(job_id)
    for table in ("job", "live", "finished", "attempt", "event", "progress", "dependency", "key"):
        assert database.execute(f"SELECT count(*) FROM holdfast.{table}")[0][0] == 0


def test_a_running_job_is_not_removed(store):
    """What a live holder owns is refused, and everything stays."""
    put(store)
    put(store)
    take_one(store)
    with pytest.raises(JobInUse) as caught:
        store.control.delete(ALL)
    assert caught.value.exit_code == 9
    assert len(states(store)) == 2


def test_a_needed_job_is_not_removed(store):
    """A live job waits for it."""
    need = put(store)
    put(store, kind="later", after=After(ids=(need,)))
    with pytest.raises(JobInUse):
        store.control.delete(only(need))


def test_a_verb_reaches_thousands_in_chunks(store):
    """All that match, whatever their number."""
    from holdfast.domain.jobs.new_job import NewJob

    store.jobs.enqueue_many([NewJob(kind="mail", label="bulk") for _ in range(1200)])
    put(store)
    assert len(store.control.cancel(Selector(labels=("bulk",)), actor="ada")) == 1200
    assert store.views.count(Selector(states=(State.READY,))).count == 1


def test_a_retried_job_waits_for_its_needs_again(store):
    """A job never starts before its needs, whoever revives it (I13)."""
    need = put(store)
    later = put(store, kind="later", after=After(ids=(need,)))
    store.control.cancel(only(later), actor="ada")
    assert store.control.retry(only(later), actor="ada") == [later]
    assert state(store, later) is State.WAITING
    store.leases.settle(take_one(store), Done())
    assert state(store, later) is State.READY


def chain(store, outcome=FATAL, **condition):
    """A job that has failed, one that was cancelled because of it, and one because of that."""
    first = put(store)
    second = put(store, kind="later", after=After(ids=(first,), **condition))
    third = put(store, kind="later", after=After(ids=(second,)))
    store.leases.settle(take_one(store), outcome)
    return first, second, third


def test_a_job_whose_need_is_dead_is_not_retried(store):
    """K17: it would run before its need; it stays as it is, and so does what depends on it."""
    _, second, third = chain(store)
    assert store.control.retry(only(second, third), actor="ada") == []
    assert store.control.restart(only(third), actor="ada") == []
    assert state(store, second) is state(store, third) is State.CANCELLED
    assert store.views.get(second).reason == "dependency_failed"


def test_a_need_and_its_dependents_are_retried_together(store):
    """K17: in one selection they wait for each other."""
    first, second, third = chain(store)
    assert sorted(store.control.retry(ALL, actor="ada")) == [first, second, third]
    assert [state(store, job) for job in (first, second, third)] == [State.READY, State.WAITING, State.WAITING]


def test_dependents_come_back_with_their_need(store):
    """K17: those that were cancelled because of it, down the chain; not those that a person cancelled."""
    first, second, third = chain(store)
    other = put(store, kind="later", after=After(ids=(put(store, hold=True),)))
    store.control.cancel(only(other), actor="ada")
    assert store.control.left_behind([first, other]) == [second, third]
    assert store.control.retry(only(first), actor="ada", with_dependents=True) == [first, second, third]
    assert [state(store, job) for job in (second, third, other)] == [State.WAITING, State.WAITING, State.CANCELLED]
    store.leases.settle(take_one(store), Done())
    assert state(store, second) is State.READY


def test_a_retried_job_is_held_if_its_condition_says_so(store):
    """K17: the rule of the job decides, as at first."""
    first, second, _ = chain(store, if_not=IfNot.HOLD)
    store.control.cancel(only(second), actor="ada")
    assert store.control.retry(only(second), actor="ada") == [second]
    job = store.views.get(second)
    assert (job.state, job.note) == (State.HELD, f"dependency {first} is dead")


def test_a_need_that_was_pruned_after_its_success_stops_nobody(store, clock):
    """K26: its dependent can be retried long after."""
    need = put(store)
    later = put(store, kind="later", after=After(ids=(need,)))
    store.leases.settle(take_one(store), Done())
    store.leases.settle(take_one(store, kinds=("later",)), FATAL)
    clock.advance(days=31)
    assert store.pruner.prune()[State.DONE] == 1
    assert store.control.retry(only(later), actor="ada") == [later]
    assert state(store, later) is State.READY
    store.leases.check_waiting()
    assert state(store, later) is State.READY


def test_retry_leaves_delayed_jobs_alone(store):
    """Only what failed before is hastened; another time is set with reschedule."""
    put(store, delay=timedelta(hours=1))
    assert store.control.retry(ALL, actor="ada") == []


def test_a_need_and_its_dependent_are_removed_together(store):
    """Nobody else needs them."""
    need = put(store)
    later = put(store, kind="later", after=After(ids=(need,)))
    assert store.control.delete(only(need, later)) == [need, later]


@pytest.mark.parametrize("actor", ["", "holdfast:worker", "nul\0", "half \ud83d"])
def test_an_actor_is_a_persons_name(store, actor):
    """Not empty, storable, and none of the system's own."""
    job_id = put(store)
    with pytest.raises(InvalidInput):
        store.control.cancel(only(job_id), actor=actor)
    assert state(store, job_id) is State.READY


def test_a_dead_job_takes_a_key_back_whose_row_is_gone(store, clock):
    """The newer job that had the key was pruned; the key is free, and the revived job has it."""
    dead = kill(store, unique=Unique("k"))
    put(store, unique=Unique("k"))
    store.leases.settle(take_one(store), Done())
    clock.advance(days=31)
    store.pruner.prune()
    assert store.control.retry(only(dead), actor="ada") == [dead]
    assert put(store, unique=Unique("k")) == dead


def test_a_paused_job_goes_back_and_is_held(store):
    """Its holder learns of it with the next renewal; the attempt is not lost, the checkpoint stays."""
    job_id = put(store)
    lease = take_one(store)
    store.leases.report(lease, checkpoint="7")
    assert store.control.pause(only(job_id), actor="ada") == [job_id]
    assert store.control.pause(only(job_id), actor="ada") == [], "it is told once"
    (renewal,) = store.leases.renew([lease])
    assert renewal.requested is ControlRequest.PAUSE
    store.leases.settle(lease, Released(interrupted=True))
    job = store.views.get(job_id)
    assert (job.state, job.attempts, job.note, job.checkpoint) == (State.HELD, 0, "paused by ada", "7")
    assert store.control.resume(only(job_id), actor="ada") == [job_id]
    assert take_one(store).checkpoint == "7"


def test_a_pause_that_nobody_obeyed_can_be_taken_back(store):
    job_id = put(store)
    lease = take_one(store)
    store.control.pause(only(job_id), actor="ada", note="lunch")
    assert store.control.resume(only(job_id), actor="ada") == [job_id]
    store.leases.settle(lease, Released())
    job = store.views.get(job_id)
    assert (job.state, job.note) == (State.READY, None)
    assert [event.name for event in store.views.events(job_id)][1:3] == ["pause_requested", "resumed"]


def test_a_cancel_outweighs_a_pause(store):
    """In either order."""
    first, second = put(store), put(store)
    leases = {lease.job_id: lease for lease in (take_one(store), take_one(store))}
    store.control.pause(only(first), actor="ada")
    assert store.control.cancel(only(first), actor="ada") == [first]
    store.control.cancel(only(second), actor="ada")
    assert store.control.pause(only(second), actor="ada") == []
    for lease in leases.values():
        store.leases.settle(lease, Released())
    assert {store.views.get(job_id).state for job_id in leases} == {State.CANCELLED}


def test_an_idle_job_is_paused_at_once(store):
    job_id = put(store)
    assert store.control.pause(only(job_id), actor="ada", note="lunch") == [job_id]
    job = store.views.get(job_id)
    assert (job.state, job.note) == (State.HELD, "lunch")


# -- programs that are done begin anew; payloads that are changed ------------------------------


def finish(store, **options):
    """A program that is done."""
    job_id = put(store, kind=COMMAND, **options)
    store.leases.settle(take_one(store, kinds=(COMMAND,)), Done('{"exit_code":0}'))
    return job_id


def test_a_program_that_is_done_is_restarted(store):
    """The same job: its attempts are counted on, the one before stays in its history, and its token grows."""
    job_id = finish(store)
    assert store.control.restart(ALL, actor="ada") == [job_id]
    again = take_one(store, kinds=(COMMAND,))
    assert (again.job_id, again.token, again.checkpoint) == (job_id, 2, None)
    store.leases.settle(again, Done())
    assert [(attempt.number, attempt.token, attempt.reason) for attempt in store.views.attempts(job_id)] == [
        (1, 1, "done"),
        (2, 2, "done"),
    ]
    names = [event.name for event in store.views.events(job_id)]
    assert names == ["enqueued", "started", "done", "retried", "started", "done"]
    assert store.views.count(ALL).count == 1


def test_other_jobs_that_are_done_stay_so(store):
    """A restart is for programs; what is dead comes back as with a retry."""
    done = put(store)
    store.leases.settle(take_one(store), Done())
    dead = kill(store)
    assert store.control.restart(ALL, actor="ada") == [dead]
    assert state(store, done) is State.DONE


def test_attempts_are_counted_on_after_a_retry(store):
    job_id = kill(store)
    store.control.retry(only(job_id), actor="ada")
    store.leases.settle(take_one(store), FATAL)
    assert [attempt.number for attempt in store.views.attempts(job_id)] == [1, 2]


def test_a_restarted_program_gets_its_key_back(store):
    """Unless another live job has it: then it stays as it is."""
    job_id = finish(store, unique=Unique("k"))
    other = put(store, kind=COMMAND, unique=Unique("k"))
    assert store.control.restart(only(job_id), actor="ada") == []
    store.control.cancel(only(other), actor="ada")
    assert store.control.restart(only(job_id), actor="ada") == [job_id]


@pytest.mark.parametrize("options", [{}, {"hold": True}, {"delay": timedelta(hours=1)}])
def test_a_payload_is_changed_while_nobody_runs_it(store, options):
    """It stands where it stood, as old as it was, and the event tells what was changed."""
    job_id = put(store, payload='{"n":1}', **options)
    before = store.views.get(job_id)
    changed = store.control.rewrite(only(job_id), lambda _: '{"n":2}', actor="ada", detail={"n": 2})
    after = store.views.get(job_id)
    assert (changed, after.payload) == ([job_id], '{"n":2}')
    assert (after.state, after.due_at) == (before.state, before.due_at)
    assert [(e.name, e.actor, e.detail) for e in store.views.events(job_id)][1:] == [("changed", "ada", '{"n":2}')]


def test_a_payload_that_stays_the_same_is_no_change(store):
    job_id = put(store, payload='{"n":1}')
    assert store.control.rewrite(only(job_id), lambda old: old, actor="ada") == []
    assert (state(store, job_id), len(store.views.events(job_id))) == (State.READY, 1)
    assert take_one(store).job_id == job_id


def test_what_runs_or_has_ended_keeps_its_payload(store):
    finished = kill(store)
    running = put(store)
    take_one(store)
    assert store.control.rewrite(ALL, lambda _: '{"n":2}', actor="ada") == []
    assert {store.views.get(job_id).payload for job_id in (finished, running)} == {"{}"}


def test_a_held_job_that_is_out_of_attempts_begins_anew(store, clock):
    """Held since its holder was lost in its last attempt: who lets it go gives it all of them, never one too many."""
    job_id = put(store, max_attempts=1, max_crashes=1, on_lost=OnLost.HOLD)
    take_one(store, started=True)
    lapse(clock)
    store.leases.take_over()
    assert store.control.unhold(only(job_id), actor="ada") == [job_id]
    take_one(store, started=True)
    job = store.views.get(job_id)
    assert (job.attempts, job.crashes) == (1, 0)
