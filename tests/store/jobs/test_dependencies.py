"""Dependencies: a job starts after others."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.domain.jobs.dependencies import After, IfNot, When
from holdfast.domain.jobs.job import JobId, State
from holdfast.domain.jobs.new_job import NewJob, Unique
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.verdict import Done, Failed
from holdfast.errors import DependencyNotFound
from holdfast.store.jobs import dependencies
from tests.support.jobs import BOOM, only, put, state, states, take, take_one

FATAL = Failed(error="boom", permanent=True)


def end(store, outcome=None, kind="mail"):
    """Run the next job to its end."""
    store.leases.settle(take_one(store, kinds=(kind,)), outcome or Done())


def test_a_job_starts_when_all_its_needs_are_done(store):
    """Not when only some are."""
    dependencies = [put(store), put(store)]
    later = put(store, kind="later", after=After(ids=tuple(dependencies)))
    assert state(store, later) is State.WAITING
    end(store)
    assert state(store, later) is State.WAITING
    end(store)
    assert state(store, later) is State.READY


def test_a_waiting_job_is_not_claimed(store):
    """A job never starts before its needs."""
    put(store, kind="later", after=After(ids=(put(store),)))
    assert take(store, kinds=("later",), started=True) == []


@pytest.mark.parametrize("outcome", [Done(), FATAL])
def test_ended_is_enough_when_asked_for(store, outcome):
    """Whatever became of the need."""
    later = put(store, kind="later", after=After(ids=(put(store),), when=When.FINISHED))
    end(store, outcome)
    assert state(store, later) is State.READY


def test_a_job_can_wait_for_a_failure(store):
    """It runs if one fails, and is cancelled when all are done."""
    first = put(store, kind="later", after=After(ids=(put(store),), when=When.FAILED))
    end(store, FATAL)
    second = put(store, kind="later", after=After(ids=(put(store),), when=When.FAILED))
    end(store)
    assert state(store, first) is State.READY
    assert state(store, second) is State.CANCELLED


def test_a_failed_need_cancels_the_whole_chain_with_the_reason(store):
    """The news runs down to the last dependent."""
    need = put(store)
    middle = put(store, kind="later", after=After(ids=(need,)))
    last = put(store, kind="later", after=After(ids=(middle,)))
    end(store, FATAL)
    assert states(store) == {need: State.DEAD, middle: State.CANCELLED, last: State.CANCELLED}
    assert store.views.get(middle).error == f"dependency {need} is dead"
    assert store.views.get(last).error == f"dependency {middle} is cancelled"
    assert store.views.events(last)[-1].actor == "holdfast:dependencies"


def test_a_failed_need_can_hold_instead(store):
    """A person decides, and may let it run all the same."""
    later = put(store, kind="later", after=After(ids=(put(store),), if_not=IfNot.HOLD))
    end(store, FATAL)
    job = store.views.get(later)
    assert (job.state, job.note) == (State.HELD, "dependency 1 is dead")
    store.control.unhold(only(later), actor="ada")
    assert state(store, later) is State.READY


def test_a_need_that_has_ended_already_is_judged_at_once(store):
    """Done: ready. Dead: cancelled."""
    done = put(store)
    end(store)
    dead = put(store)
    end(store, FATAL)
    assert state(store, put(store, kind="later", after=After(ids=(done,)))) is State.READY
    assert state(store, put(store, kind="later", after=After(ids=(dead,)))) is State.CANCELLED


def test_a_retried_failure_is_no_failure_yet(store):
    """Only the end of a need counts."""
    later = put(store, kind="later", after=After(ids=(put(store),)))
    end(store, Failed(error="x"))
    assert state(store, later) is State.WAITING


def test_needs_are_found_by_key_and_label(store):
    """Both are looked up at once, labels also by pattern."""
    keyed = put(store, unique=Unique("k"))
    labelled = [put(store, label=label) for label in ("run-1", "run-2", "other")]
    later = put(store, kind="later", after=After(keys=(("mail", "k"),), labels=("run-*",)))
    assert {need.dependency_id for need in store.views.dependencies(later)} == {keyed, *labelled[:2]}


def test_a_label_means_those_below_it(store):
    """E8: a job after a sweep waits for every job of the sweep."""
    sweep = [put(store, label=f"sw/n={n}") for n in range(2)]
    put(store, label="sweep")
    later = put(store, kind="later", after=After(labels=("sw",)))
    assert {need.dependency_id for need in store.views.dependencies(later)} == set(sweep)


@pytest.mark.parametrize(
    "after", [After(ids=(JobId(99),)), After(keys=(("mail", "no"),)), After(labels=("no",)), After(labels=("RUN",))]
)
def test_a_need_that_matches_nothing_is_an_error(store, after):
    """And nothing is enqueued."""
    put(store, label="run")
    with pytest.raises(DependencyNotFound):
        put(store, kind="later", after=after)
    assert len(states(store)) == 1


def test_a_label_means_the_newest_job_of_each_key(store):
    """E5.4: a failure that a later job with its key has replaced does not fail the dependents."""
    failed = put(store, label="run", unique=Unique("k"))
    store.control.cancel(Selector(ids=(failed,)), actor="ada")
    other = put(store, label="other", unique=Unique("k"))
    store.control.cancel(Selector(ids=(other,)), actor="ada")
    newest, alone = put(store, label="run", unique=Unique("k")), put(store, label="run")
    for label in ("run", "r*n"):
        later = put(store, kind="later", after=After(labels=(label,)))
        needs = {need.dependency_id for need in store.views.dependencies(later)}
        assert (needs, store.views.state(later)) == ({newest, alone}, State.WAITING), "E5 is broken"
    (kept,) = store.views.dependencies(put(store, kind="later", after=After(labels=("other",))))
    assert kept.dependency_id == other


def test_a_label_means_the_jobs_of_that_moment(store):
    """Jobs that get the label later are not waited for."""
    put(store, label="run")
    later = put(store, kind="later", after=After(labels=("run",)))
    put(store, label="run")
    end(store)
    assert state(store, later) is State.READY


def test_a_delay_counts_too(store, clock):
    """A job whose needs are done still waits for its time."""
    later = put(store, kind="later", after=After(ids=(put(store),)), delay=timedelta(hours=1))
    end(store)
    assert state(store, later) is State.SCHEDULED


def test_a_held_job_with_needs_waits_for_both(store):
    """A person lets it go; then its needs count."""
    need = put(store)
    later = put(store, kind="later", after=After(ids=(need,)), hold=True)
    store.control.unhold(only(later), actor="ada")
    assert state(store, later) is State.WAITING
    end(store)
    assert state(store, later) is State.READY


def test_the_sweep_is_the_truth(store, database):
    """Whatever news was lost, a sweep over the waiting jobs finds it."""
    need = put(store)
    waiting = [put(store, kind="later", after=After(ids=(need,))) for _ in range(3)]
    database.execute("UPDATE holdfast.live SET has_dependents = false")
    end(store)
    assert state(store, waiting[0]) is State.WAITING
    cursor = store.leases.check_waiting(limit=2)
    assert [states(store)[job_id] for job_id in waiting] == [State.READY, State.READY, State.WAITING]
    assert cursor == waiting[1]
    assert store.leases.check_waiting(after=cursor, limit=2) is None
    assert state(store, waiting[2]) is State.READY


def test_a_cancelled_need_releases_its_dependents_by_their_rule(store):
    """A person's cancel counts like a failure."""
    need = put(store)
    strict = put(store, kind="later", after=After(ids=(need,)))
    lenient = put(store, kind="later", after=After(ids=(need,), when=When.FINISHED))
    store.control.cancel(only(need), actor="ada")
    assert state(store, strict) is State.CANCELLED
    assert state(store, lenient) is State.READY


def test_needs_work_in_bulk(store):
    """Each request of a call has its own."""
    need = put(store)
    requests = [NewJob(kind="later", after=After(ids=(need,))) for _ in range(3)]
    ids = [answer.id for answer in store.jobs.enqueue_many(requests)]
    end(store)
    assert all(state(store, job_id) is State.READY for job_id in ids)


def test_thousands_may_need_one(store):
    """Their needs are looked up once, and all start when it is done."""
    need = put(store)
    requests = [NewJob(kind="later", after=After(ids=(need,))) for _ in range(2000)]
    store.jobs.enqueue_many(requests)
    end(store)
    assert len(take(store, 5000, kinds=("later",))) == 2000


def test_a_chain_of_hundreds_is_cancelled_to_its_end(store):
    """However long it is."""
    last = put(store)
    for _ in range(300):
        last = put(store, kind="later", after=After(ids=(last,)))
    store.control.cancel(only(1), actor="ada")
    assert state(store, last) is State.CANCELLED


def test_a_retried_need_is_waited_for_again(store):
    """A dependent that ended in a failure stays cancelled; a new one waits for the revived need."""
    need = put(store)
    end(store, FATAL)
    store.control.retry(only(need), actor="ada")
    later = put(store, kind="later", after=After(ids=(need,)))
    assert state(store, later) is State.WAITING
    end(store)
    assert state(store, later) is State.READY


def test_waking_is_told_in_the_history(store):
    """With the system as its actor."""
    later = put(store, kind="later", after=After(ids=(put(store),)))
    end(store)
    assert [(event.name, event.actor) for event in store.views.events(later)][1:] == [
        ("woken", "holdfast:dependencies")
    ]


def test_a_need_that_is_named_twice_is_one(store):
    first = put(store)
    second = put(store, after=After(ids=(first, first)))
    assert [need.dependency_id for need in store.views.dependencies(second)] == [first]


def test_a_long_chain_is_cancelled_in_several_transactions(store, monkeypatch):
    """S16: one for all of it would pass the time limit of a call, again and again, and the root would never finish."""
    monkeypatch.setattr(dependencies, "MAX_LEVELS", 3)
    chain = [put(store, max_attempts=1)]
    for _ in range(10):
        chain.append(put(store, after=After(ids=(chain[-1],))))
    store.leases.settle(take_one(store), BOOM)
    states = [state(store, job_id) for job_id in chain]
    assert states[0] is State.DEAD
    assert states[-1] is State.WAITING
    while store.leases.complete_effects().left:
        pass
    assert {state(store, job_id) for job_id in chain[1:]} == {State.CANCELLED}
