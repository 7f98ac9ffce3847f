"""The ledger of plans: one test per promise of store/schedules/plans.py."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec import structs

from holdfast.domain.jobs.dependencies import After, When
from holdfast.domain.jobs.job import JobId, State
from holdfast.domain.jobs.new_job import KeyScope, NewJob, Unique
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.verdict import Done
from holdfast.domain.retention import Retention
from holdfast.domain.schedules.decision import Skipped, SkipReason
from holdfast.domain.schedules.definition import Definition
from holdfast.domain.schedules.plan import Origin, Overlap, Plan
from holdfast.errors import NoSuchSchedule
from holdfast.store.jobs.settlement import Settlement
from holdfast.store.schedules.fired_plans import Advance, PlanToFire
from tests.support.backends import START
from tests.support.jobs import BOOM, prune
from tests.support.jobs import take as claim

MINUTE = timedelta(minutes=1)


def due(store, *providers):
    """The due schedules by name."""
    found = store.schedules.due(providers=providers, limit=100)
    return {each.name: each for each in (*found.schedules, *found.scoped)}


def fire(minutes, *, scope="global", name="five", **request):
    return PlanToFire(Plan(name, START + minutes * MINUTE, scope), NewJob(kind="mail", **request))


def step(schedule, *fires, overlap=Overlap.ALLOW, cursor=None, skip=(), next_at=None, runs=None):
    """A planner's decision about the current state of the schedule."""
    known = cursor or max([each.plan.time for each in fires], default=START)
    return Advance(
        name=schedule.name,
        token=schedule.token,
        cursor=known,
        next_at=next_at or known + 5 * MINUTE,
        overlap=overlap,
        fire=fires,
        skip=skip,
        runs=runs,
    )


def take(store, *steps):
    return store.plans.advance(steps)


@pytest.fixture
def five(store):
    definition = Definition(kind="mail", cron="*/5 * * * *", overlap=Overlap.SKIP)
    return store.schedules.create("five", definition, actor="ada")


def go_on(store, *fires, **options):
    """Advance the schedule from its current state."""
    return take(store, step(store.schedules.get("five"), *fires, **options))


def states(store):
    """The states of fired plans by the minute of their time."""
    return {(plan.time - START) // MINUTE: str(plan.state) for plan in store.plans.history("five")}


def settle(store, outcome):
    (lease,) = claim(store)
    store.leases.settle_many([Settlement(lease, outcome)])


def test_a_step_fires_and_moves_the_cursor(store, five):
    decided = take(store, step(five, fire(0), fire(5)))
    assert (decided.moved, decided.fired, decided.skipped) == (["five"], 2, {})
    after = store.schedules.get("five")
    assert (after.cursor, after.next_at, after.fired) == (START + 5 * MINUTE, START + 10 * MINUTE, 2)
    assert states(store) == {0: "ready", 5: "ready"}


def test_of_two_planners_one_decides(store, make_store, five):
    """The second decision is based on the state before the first."""
    assert take(store, step(five, fire(0))).fired == 1
    again = take(make_store(), step(five, fire(0), fire(5)))
    assert (again.moved, again.fired) == ([], 0)
    assert states(store) == {0: "ready"}


def test_a_fired_plan_is_not_fired_again(store, five):
    """A person fired one plan before; the other plans of the decision still fire."""
    store.plans.fire("five", [fire(5)], origin=Origin.BACKFILL, actor="ada")
    assert take(store, step(five, fire(0), fire(5), fire(10))).fired == 2
    assert sorted(states(store)) == [0, 5, 10]


def test_a_step_that_fails_leaves_nothing(store, five):
    with pytest.raises(Exception, match="kind"):
        take(store, step(five, fire(0), PlanToFire(Plan("five", START + MINUTE), NewJob(kind=""))))
    assert (states(store), store.schedules.get("five").token) == ({}, five.token)
    assert store.views.page(Selector()).jobs == []


def test_each_scope_has_its_own_plans(store, five):
    take(store, step(five, fire(0, scope="a"), fire(0, scope="b")))
    assert [(plan.scope, plan.time) for plan in store.plans.history("five")] == [("b", START), ("a", START)]


def test_skipped_stretches_are_written_down(store, five):
    stretch = Skipped(START, START + 10 * MINUTE, 3, SkipReason.CATCH_UP)
    assert take(store, step(five, fire(15), skip=[stretch])).skipped == {SkipReason.CATCH_UP: 3}
    (skip,) = store.plans.skips("five")
    assert (skip.first, skip.last, skip.count, skip.reason) == (START, START + 10 * MINUTE, 3, SkipReason.CATCH_UP)


def test_find_skip_returns_the_newest_decision(store, clock, five):
    go_on(store, skip=[Skipped(START, START + 10 * MINUTE, 3, SkipReason.LATE)])
    clock.advance(minutes=1)
    go_on(store, skip=[Skipped(START, START + 20 * MINUTE, 5, SkipReason.PAUSED)])
    assert store.plans.find_skip(fire(5).plan).reason is SkipReason.PAUSED


def test_find_returns_a_fired_plan(store, five):
    stretch = Skipped(START + 5 * MINUTE, START + 10 * MINUTE, 2, SkipReason.WINDOW)
    take(store, step(five, fire(0), skip=[stretch]))
    assert store.plans.find(fire(0).plan).origin is Origin.DUE
    assert store.plans.find_skip(fire(5).plan).reason is SkipReason.WINDOW
    assert store.plans.find_skip(fire(5, scope="any").plan).reason is SkipReason.WINDOW
    assert (store.plans.find(fire(5).plan), store.plans.find_skip(fire(0).plan)) == (None, None)
    assert store.plans.known([fire(0).plan, fire(5).plan]) == {fire(0).plan}


def test_a_kind_with_a_unique_key_may_have_the_job_already(store, five):
    known = store.jobs.enqueue(NewJob(kind="mail", unique=Unique("one"))).id
    take(store, step(five, fire(0, unique=Unique("one"))))
    assert store.plans.find(fire(0).plan).job_id == known


def test_a_job_that_was_there_already_is_nobodys_plan(store, five):
    """Plans neither wait for it, nor cancel it, nor release it."""
    need = store.jobs.enqueue(NewJob(kind="other", hold=True)).id
    known = store.jobs.enqueue(NewJob(kind="mail", unique=Unique("one"), after=After(ids=(need,)))).id
    go_on(store, fire(0, unique=Unique("one")), fire(5), fire(10), overlap=Overlap.QUEUE_ALL)
    assert states(store) == {0: "waiting", 5: "ready", 10: "waiting"}
    assert store.plans.release() == 0
    assert store.views.get(known).state is State.WAITING
    go_on(store, fire(15), overlap=Overlap.CANCEL_RUNNING)
    assert store.views.get(known).state is State.WAITING


def test_the_same_key_again_and_again_holds_up_no_line(store, five):
    for minutes in ((0, 5), (10, 15)):
        fires = [fire(minute, unique=Unique("one", KeyScope.FOREVER, None)) for minute in minutes]
        assert go_on(store, *fires, overlap=Overlap.QUEUE_ALL).fired == 2
    assert len({plan.job_id for plan in store.plans.history("five")}) == 1


def test_runs_count_the_times_that_were_fired(store, five):
    """Plans that overlap skipped, or that a person fired before, do not count."""
    go_on(store, fire(0), fire(5), overlap=Overlap.SKIP, runs=3)
    assert store.schedules.get("five").fired == 1
    go_on(store, fire(10, scope="a"), fire(10, scope="b"), runs=3)
    assert store.schedules.get("five").fired == 2
    go_on(store, fire(15), runs=3)
    assert (store.schedules.get("five").fired, store.schedules.get("five").next_at) == (3, None)


# -- overlap -----------------------------------------------------------------------------------


def test_while_one_runs_the_next_is_skipped(store, five):
    go_on(store, fire(0), overlap=Overlap.SKIP)
    decided = go_on(store, fire(5), overlap=Overlap.SKIP)
    assert (decided.fired, decided.skipped) == (0, {SkipReason.OVERLAP: 1})
    settle(store, Done())
    assert go_on(store, fire(10), overlap=Overlap.SKIP).fired == 1
    assert states(store) == {0: "done", 10: "ready"}


def test_a_plan_that_a_person_retries_is_met(store, five):
    """Its job runs again: the next plan of the scope does not start beside it."""
    go_on(store, fire(0), overlap=Overlap.SKIP)
    (first,) = store.control.cancel(Selector(), actor="ada")
    go_on(store, fire(5), overlap=Overlap.SKIP)
    settle(store, Done())
    store.control.retry(Selector(ids=(first,)), actor="ada")
    go_on(store, fire(10), overlap=Overlap.SKIP)
    assert states(store) == {0: "ready", 5: "done"}, "S6 is broken: two plans of a scope run side by side"
    settle(store, Done())
    go_on(store, fire(15), overlap=Overlap.SKIP)
    assert states(store) == {0: "done", 5: "done", 15: "ready"}


def test_scopes_do_not_meet(store, five):
    go_on(store, fire(0, scope="a"), overlap=Overlap.SKIP)
    assert go_on(store, fire(5, scope="a"), fire(5, scope="b"), overlap=Overlap.SKIP).fired == 1


def test_a_plan_that_waits_for_its_retry_is_out_of_the_way(store, five):
    """SPEC S6; it is retried although newer plans have succeeded (SPEC 8.9)."""
    go_on(store, fire(0), overlap=Overlap.SKIP)
    settle(store, BOOM)
    assert go_on(store, fire(5), overlap=Overlap.SKIP).fired == 1
    settle(store, Done())
    assert states(store) == {0: "scheduled", 5: "done"}


def test_queued_plans_run_one_after_the_other(store, five):
    go_on(store, fire(0), fire(5), fire(10), overlap=Overlap.QUEUE_ALL)
    seen = []
    while "ready" in states(store).values():
        seen.append(states(store))
        settle(store, Done())
    assert seen == [
        {0: "ready", 5: "waiting", 10: "waiting"},
        {0: "done", 5: "ready", 10: "waiting"},
        {0: "done", 5: "done", 10: "ready"},
    ]


def test_one_is_queued_and_no_more(store, five):
    go_on(store, fire(0), overlap=Overlap.QUEUE_ONE)
    go_on(store, fire(5), overlap=Overlap.QUEUE_ONE)
    assert go_on(store, fire(10), overlap=Overlap.QUEUE_ONE).skipped == {SkipReason.OVERLAP: 1}
    assert states(store) == {0: "ready", 5: "waiting"}


def by_minute(store, minute):
    return Selector(ids=(store.plans.find(fire(minute).plan).job_id,))


def test_a_line_closes_up_when_one_leaves_it(store, five):
    """If the middle plan is cancelled or held, the next one still waits for the first."""
    go_on(store, *(fire(minute) for minute in (0, 5, 10, 15, 20)), overlap=Overlap.QUEUE_ALL)
    claim(store)
    store.control.cancel(Selector(ids=(*by_minute(store, 5).ids, *by_minute(store, 10).ids)), actor="ada")
    assert states(store) == {0: "running", 5: "cancelled", 10: "cancelled", 15: "waiting", 20: "waiting"}
    store.control.hold(by_minute(store, 15), actor="ada")
    assert store.plans.release() == 1
    assert states(store)[20] == "waiting"
    job = store.views.get(by_minute(store, 0).ids[0])
    assert {need.dependency_id for need in store.views.dependencies(by_minute(store, 20).ids[0])} >= {job.id}


def test_a_dependent_of_a_cancelled_job_of_no_plan_starts(store):
    """Only lines of plans close up; dependencies that a person sets with `after` stay."""
    first = store.jobs.enqueue(NewJob(kind="mail")).id
    second = store.jobs.enqueue(NewJob(kind="mail", after=After(ids=(first,), when=When.FINISHED))).id
    third = store.jobs.enqueue(NewJob(kind="mail", after=After(ids=(second,), when=When.FINISHED))).id
    store.control.cancel(Selector(ids=(second,)), actor="ada")
    assert store.views.get(third).state is State.READY


def test_a_queue_does_not_wait_for_a_retry(store, five):
    """Plans that wait for one that waits for its retry or for a person are released."""
    go_on(store, fire(0), fire(5), fire(10), overlap=Overlap.QUEUE_ALL)
    settle(store, BOOM)
    assert store.plans.release() == 1
    assert states(store) == {0: "scheduled", 5: "ready", 10: "waiting"}
    store.control.hold(Selector(kinds=("mail",), states=(State.READY,)), actor="ada")
    assert store.plans.release() == 1
    assert states(store) == {0: "scheduled", 5: "held", 10: "ready"}
    assert store.plans.release() == 0


def test_the_running_one_is_cancelled_and_waited_for(store, five):
    go_on(store, fire(0), overlap=Overlap.CANCEL_RUNNING)
    claim(store)
    go_on(store, fire(5), overlap=Overlap.CANCEL_RUNNING)
    old, new = (store.plans.find(fire(minute).plan).job_id for minute in (0, 5))
    assert (str(store.views.get(old).requested), store.views.get(new).state) == ("cancel", State.WAITING)


def test_with_several_due_plans_the_newest_waits_for_the_run_that_it_cancels(store, five):
    """V3: only the newest of them fires, and it does not start beside the cancelled run."""
    go_on(store, fire(0), fire(0, scope="other"), overlap=Overlap.CANCEL_RUNNING)
    claim(store, limit=2)
    times = [*(fire(minute, scope="other") for minute in (5, 10)), *(fire(minute) for minute in (5, 10, 15))]
    decided = go_on(store, *times, overlap=Overlap.CANCEL_RUNNING)
    assert (decided.fired, decided.skipped) == (2, {SkipReason.OVERLAP: 3})
    for old, new in ((fire(0), fire(15)), (fire(0, scope="other"), fire(10, scope="other"))):
        old_id, new_id = (store.plans.find(each.plan).job_id for each in (old, new))
        assert str(store.views.get(old_id).requested) == "cancel"
        assert store.views.get(new_id).state is State.WAITING, "V3 is broken: it starts beside the run that it cancels"
        assert [each.dependency_id for each in store.views.dependencies(new_id)] == [old_id]
    spans = sorted((skip.scope, skip.count) for skip in store.plans.skips("five"))
    assert spans == [("global", 2), ("other", 1)]


def test_a_line_has_a_maximum(store, five):
    """V3: plans beyond max_backlog are skipped, as one span with its reason; the line goes on when there is room."""
    fires = [fire(minute) for minute in range(0, 50, 5)]
    decided = take(store, structs.replace(step(five, *fires, overlap=Overlap.QUEUE_ALL), max_backlog=3))
    assert (decided.fired, decided.skipped) == (4, {SkipReason.BACKLOG: 6}), "V3 is broken: a line has no end"
    (skip,) = store.plans.skips("five")
    assert (skip.first, skip.last, skip.count) == (START + 20 * MINUTE, START + 45 * MINUTE, 6)
    settle(store, Done())
    step_on = step(store.schedules.get("five"), fire(50), fire(55), overlap=Overlap.QUEUE_ALL)
    assert take(store, structs.replace(step_on, max_backlog=3)).fired == 1


def test_the_newest_plan_of_a_line_waits_for_the_one_before(store, five):
    """V3: of a line only the newest plan is read, unless its job has left the line."""
    go_on(store, *(fire(minute) for minute in (0, 5, 10)), overlap=Overlap.QUEUE_ALL)
    go_on(store, fire(15), overlap=Overlap.QUEUE_ALL)
    assert waits_for(store, 15) == [10]
    store.control.hold(by_minute(store, 15), actor="ada")
    go_on(store, fire(20), overlap=Overlap.QUEUE_ALL)
    assert waits_for(store, 20) == [10]
    store.control.cancel(by_minute(store, 20), actor="ada")
    go_on(store, fire(25), overlap=Overlap.QUEUE_ALL)
    assert waits_for(store, 25) == [10]
    for _ in range(4):
        settle(store, Done())
    go_on(store, fire(30), overlap=Overlap.QUEUE_ALL)
    assert states(store)[30] == "ready"


def waits_for(store, minute):
    """The minutes of the plans that a plan waits for."""
    minutes = {plan.job_id: (plan.time - START) // MINUTE for plan in store.plans.history("five")}
    return [minutes[each.dependency_id] for each in store.views.dependencies(by_minute(store, minute).ids[0])]


def test_one_that_has_not_begun_is_cancelled_at_once(store, five):
    go_on(store, fire(0), overlap=Overlap.CANCEL_RUNNING)
    go_on(store, fire(5), overlap=Overlap.CANCEL_RUNNING)
    assert states(store) == {0: "cancelled", 5: "ready"}


# -- requests of people ------------------------------------------------------------------------


def test_a_triggered_plan_starts_at_once_and_is_met(store, five):
    """The next due plan waits for it or is skipped, as with any earlier plan."""
    (fired,) = store.plans.fire("five", [fire(1)], origin=Origin.TRIGGER, actor="ada")
    assert (fired.origin, fired.actor, states(store)) == (Origin.TRIGGER, "ada", {1: "ready"})
    assert go_on(store, fire(5), overlap=Overlap.SKIP).skipped == {SkipReason.OVERLAP: 1}


def test_a_backfill_runs_in_a_line_and_holds_up_nothing(store, five):
    store.plans.fire("five", [fire(-10), fire(-5)], origin=Origin.BACKFILL, actor="ada")
    assert states(store) == {-10: "ready", -5: "waiting"}
    assert go_on(store, fire(0), overlap=Overlap.SKIP).fired == 1


def test_a_fired_plan_is_not_backfilled(store, five):
    take(store, step(five, fire(0)))
    fired = store.plans.fire("five", [fire(-5), fire(0)], origin=Origin.BACKFILL, actor="ada")
    assert [plan.time for plan in fired] == [START - 5 * MINUTE]


def test_nothing_is_fired_for_a_schedule_that_is_gone(store):
    with pytest.raises(NoSuchSchedule):
        store.plans.fire("five", [fire(0)], origin=Origin.TRIGGER, actor="ada")


def test_a_follower_waits_for_success(store, five):
    first = PlanToFire(Plan("five", START), NewJob(kind="mail"), then=NewJob(kind="ping"))
    take(store, step(five, first))
    (follower,) = store.views.page(Selector(kinds=("ping",))).jobs
    assert follower.state is State.WAITING
    settle(store, Done())
    assert store.views.get(follower.id).state is State.READY


def test_live_jobs_keep_nothing_else_from_being_forgotten(store, clock, five):
    take(store, step(five, *(fire(minute) for minute in (0, 5, 10)), overlap=Overlap.QUEUE_ALL))
    settle(store, Done())
    store.control.hold(by_minute(store, 5), actor="ada")
    clock.advance(days=91)
    store.plans.release()
    settle(store, Done())
    assert prune(store, "plans", limit=1) + prune(store, "plans", limit=1) == 2
    assert states(store) == {5: "held"}


def test_plans_leave_their_lines_page_by_page(store, database, five):
    """S6: a planner checks a page of a long line at a time, and continues there."""
    take(store, step(five, *(fire(minute) for minute in range(0, 30, 5)), overlap=Overlap.QUEUE_ALL))
    for _ in range(3):
        settle(store, Done())
    store.control.hold(by_minute(store, 25), actor="ada")
    left, after = [], JobId(0)
    while after is not None:
        after = store.plans.unqueue(after=after, limit=2)
        left += database.execute("SELECT count(*) FROM holdfast.plan WHERE queued")
    assert left == [(3,), (2,), (2,)], "the plan of minute 15 is ready; 20 waits, and 25 is held"


def test_old_decisions_are_forgotten(store, clock, five):
    """The rows of live jobs stay."""
    take(store, step(five, fire(0), fire(5), skip=[Skipped(START, START, 1, SkipReason.LATE)]))
    settle(store, Done())
    assert prune(store, "plans", "skipped plans") == 0
    clock.advance(days=91)
    assert prune(store, "plans", "skipped plans", retention=Retention(plans=timedelta(0))) == 0
    assert prune(store, "plans", "skipped plans") == 2
    assert (states(store), store.plans.skips("five")) == ({5: "ready"}, [])


def test_the_history_of_a_scope_and_of_a_state(store, five):
    """OPS 4.38: of the newest plans; a span that was skipped in all scopes concerns each."""
    fires = [fire(5 * n, scope=scope) for n in range(3) for scope in "ab"]
    take(store, step(five, *fires, skip=[Skipped(START, START, 1, SkipReason.PAUSED, scope) for scope in ("", "b")]))
    (first,) = store.plans.history("five", scope="b", limit=1)
    store.control.cancel(Selector(ids=(first.job_id,)), actor="ada")
    assert [plan.scope for plan in store.plans.history("five", scope="b")] == ["b"] * 3
    assert [plan.job_id for plan in store.plans.history("five", state="cancelled")] == [first.job_id]
    assert store.plans.history("five", scope="a", state="cancelled") == []
    assert [skip.scope for skip in store.plans.skips("five", scope="a")] == [""]
    assert sorted(skip.scope for skip in store.plans.skips("five", scope="b")) == ["", "b"]


def test_the_history_is_the_newest_first(store, five):
    take(store, step(five, *(fire(minute) for minute in range(0, 50, 5))))
    times = [plan.time for plan in store.plans.history("five", limit=3)]
    assert times == [START + minute * MINUTE for minute in (45, 40, 35)]
