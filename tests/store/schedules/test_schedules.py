"""Schedules: one test per promise of store/schedules/schedules.py."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec import structs

from holdfast.domain.jobs.selector import Selector
from holdfast.domain.schedules.decision import RETRY_DELAYS
from holdfast.domain.schedules.definition import CatchUp, Condition, Declaration, DeclarationResult, Definition
from holdfast.domain.schedules.schedule_filter import ScheduleFilter
from holdfast.errors import DuplicateSchedule, InvalidInput, NoSuchSchedule
from holdfast.store.engine.operation import query
from tests.store.schedules.test_plans import MINUTE, due, fire, step, take
from tests.support.backends import START

FIVE = Definition(kind="mail", cron="*/5 * * * *")
SEVEN = Definition(kind="mail", cron="*/7 * * * *")
EVERY = Definition(kind="mail", cron="*/5 * * * *", catch_up=CatchUp.EVERY)


def make(store, name="five", definition=FIVE):
    return store.schedules.create(name, definition, actor="ada")


def decided(store, name, until):
    """A schedule whose plans are decided up to *until*."""
    take(store, step(make(store, name), cursor=until))
    return store.schedules.get(name)


def skips(store, name="five"):
    return [(skip.count, str(skip.reason)) for skip in store.plans.skips(name)]


def test_a_new_schedule_starts_from_its_creation(store, clock):
    """V4: a plan at the moment of its creation is due at once; an earlier one never is."""
    made = make(store)
    assert (made.next_at, made.condition, made.actor) == (START, Condition.ACTIVE, "ada")
    assert list(due(store)) == ["five"]
    yearly = make(store, "yearly", Definition(kind="mail", cron="0 0 1 6 *"))
    assert yearly.next_at == START.replace(month=6, hour=0), "V4 is broken: a new schedule fires a past plan"
    clock.advance(minutes=1)
    assert make(store, "later").next_at == START + 5 * MINUTE


def test_a_start_in_the_past_asks_for_more(store):
    """V4: the schedule begins there, and catch_up decides."""
    past = structs.replace(FIVE, start=START - timedelta(hours=1))
    assert make(store, definition=past).next_at == START - timedelta(hours=1)


def test_a_name_is_unique(store):
    make(store)
    with pytest.raises(DuplicateSchedule):
        make(store, definition=SEVEN)
    assert store.schedules.get("five").defined == FIVE


@pytest.mark.parametrize("name", ["", " x", "x" * 201, "a\0b"])
def test_a_name_is_a_name(store, name):
    with pytest.raises(InvalidInput):
        make(store, name)


def test_an_unknown_schedule_is_refused(store):
    for method in (
        store.schedules.get,
        store.schedules.delete,
        lambda name: store.schedules.pause(name, actor="ada"),
        lambda name: store.schedules.resume(name, actor="ada"),
        lambda name: store.schedules.update(name, lambda _: FIVE, actor="ada"),
    ):
        with pytest.raises(NoSuchSchedule):
            method("nobody")


def test_all_are_listed_by_name(store):
    for name in ("b", "c", "a"):
        make(store, name)
    assert [schedule.name for schedule in store.schedules.all()] == ["a", "b", "c"]


def test_a_deleted_schedule_leaves_its_jobs_alone(store):
    make(store)
    take(store, step(due(store)["five"], fire(0)))
    store.schedules.delete("five")
    assert len(store.views.page(Selector()).jobs) == 1


def test_a_schedule_that_is_created_again_repeats_no_plan(store):
    """V3, V4: the record of fired plans outlives the schedule."""
    take(store, step(make(store), fire(0)))
    store.schedules.delete("five")
    again = make(store, definition=structs.replace(EVERY, start=START - timedelta(hours=1)))
    assert take(store, step(again, fire(-5), fire(0))).fired == 1, "V3 is broken: a plan was repeated"
    assert len(store.views.page(Selector()).jobs) == 2


def test_a_decision_about_a_deleted_schedule_does_not_fit_its_successor(store):
    """V3: a planner that has read the old schedule fires nothing of it."""
    seen = make(store)
    store.schedules.delete("five")
    make(store, definition=SEVEN)
    assert take(store, step(seen, fire(0))).moved == [], "V3 is broken: a decision was applied to another schedule"
    assert store.plans.history("five") == []


# -- lists --------------------------------------------------------------------------------------


def test_schedules_are_listed_by_condition_kind_and_name(store, clock):
    """V3: page by page, after a name."""
    for name in ("a1", "a2", "b1", "b2"):
        make(store, name)
    make(store, "other", structs.replace(FIVE, kind="post"))
    make(store, "past", structs.replace(FIVE, start=START - 2 * MINUTE, end=START - MINUTE))
    store.schedules.pause("a1", actor="ada")
    store.schedules.record_failure(due(store)["b1"], "boom")

    def names(limit=10, after="", **values):
        return [each.name for each in store.schedules.page(ScheduleFilter(**values), limit=limit, after=after)]

    assert names(condition=Condition.PAUSED) == ["a1"]
    assert names(condition=Condition.FAILING) == ["b1"]
    assert names(condition=Condition.OVER) == ["past"]
    assert names(condition=Condition.ACTIVE) == ["a2", "b2", "other"]
    assert (names(kind="post"), names(text="2")) == (["other"], ["a2", "b2"])
    assert names(kind="mail", condition=Condition.ACTIVE, text="b") == ["b2"]
    assert (names(limit=2), names(limit=2, after="a2")) == (["a1", "a2"], ["b1", "b2"])
    for each in store.schedules.all():
        assert each.name in names(condition=each.condition)


# -- changes by people --------------------------------------------------------------------------


def test_another_rule_goes_on_from_now(store, clock):
    """The past is recorded under the old rule, and not replayed under the new one."""
    decided(store, "five", START)
    clock.advance(minutes=21)
    changed = store.schedules.update("five", lambda _: SEVEN, actor="bob")
    assert (changed.cursor, changed.next_at) == (START + 21 * MINUTE, START + 28 * MINUTE)
    assert (skips(store), changed.actor) == ([(4, "edited")], "bob")


def test_catching_up_otherwise_is_another_rule(store, clock):
    """A schedule that is changed to catch up does not start with the past."""
    decided(store, "five", START)
    clock.advance(minutes=21)
    assert store.schedules.update("five", lambda _: EVERY, actor="bob").cursor == START + 21 * MINUTE


def test_a_change_beside_the_rule_leaves_the_cursor_alone(store, clock):
    decided(store, "five", START)
    clock.advance(minutes=21)
    other = Definition(kind="post", cron=FIVE.cron, payload={"to": 1}, priority=3)
    changed = store.schedules.update("five", lambda _: other, actor="bob")
    assert (changed.cursor, changed.next_at, changed.defined) == (START, START + 5 * MINUTE, other)


def test_a_definition_of_newer_code_is_refused_with_a_reason(store, database):
    """After a rollback: an internal error said nothing. A person can delete it."""
    make(store)
    newer = '{"kind": "mail", "cron": "@daily", "overlap": "new"}'
    database.execute(f"UPDATE holdfast.schedule SET definition = '{newer}'")
    store.schedules.pause("five", actor="ada")
    with pytest.raises(InvalidInput, match="the definition of 'five' cannot be read"):
        store.schedules.resume("five", actor="ada")
    store.schedules.delete("five")


LATE = structs.replace(FIVE, delay=12 * MINUTE)


def late(store, clock):
    """A schedule with a delay of 12 minutes, decided up to minute 5, at minute 21: 10 and 15 wait for their delay."""
    take(store, step(make(store, definition=LATE), cursor=START + 5 * MINUTE))
    clock.advance(minutes=21)


def test_another_rule_keeps_plans_that_wait_for_their_delay(store, clock):
    """V3: those that the new rule has as well. The others are recorded as skipped."""
    late(store, clock)
    ten = structs.replace(LATE, cron="*/10 * * * *")
    changed = store.schedules.update("five", lambda _: ten, actor="bob")
    assert (changed.cursor < START + 10 * MINUTE, changed.next_at) == (True, START + 22 * MINUTE)
    assert [(skip.first, skip.count) for skip in store.plans.skips("five")] == [(START + 15 * MINUTE, 1)]


def test_another_rule_without_such_plans_goes_on_from_now(store, clock):
    late(store, clock)
    other = structs.replace(LATE, cron="3 * * * *")
    changed = store.schedules.update("five", lambda _: other, actor="bob")
    assert (changed.cursor, changed.next_at) == (START + 21 * MINUTE, START + 75 * MINUTE)
    assert skips(store) == [(3, "edited")]


def test_a_shorter_delay_with_another_rule_replays_nothing(store, clock):
    """S8: the new rule has plans of its own in the time that the old delay covers. They are past, and do not fire."""
    late(store, clock)
    minutely = Definition(kind="mail", cron="* * * * *", catch_up=CatchUp.EVERY)
    changed = store.schedules.update("five", lambda _: minutely, actor="bob")
    assert (changed.cursor, changed.next_at) == (START + 21 * MINUTE, START + 22 * MINUTE), "S8 is broken"
    assert skips(store) == [(3, "edited")]


def test_a_pause_keeps_plans_that_wait_for_their_delay(store, clock):
    """V3: a plan that became due in the pause is skipped; one that is not due yet fires in its time."""
    late(store, clock)
    store.schedules.pause("five", actor="ada")
    clock.advance(minutes=2)
    resumed = store.schedules.resume("five", actor="ada")
    assert resumed.next_at == START + 27 * MINUTE, "V3 is broken: a pause lost a plan that waited for its delay"
    assert [(skip.first, skip.last) for skip in store.plans.skips("five")] == [(START + 10 * MINUTE,) * 2]


def test_one_that_was_over_goes_on_from_now(store, clock):
    """An increase of the runs applies to the future."""
    decided(store, "five", START)
    store.schedules.update("five", lambda _: with_runs(1), actor="ada")
    take(store, step(store.schedules.get("five"), fire(5), runs=1))
    assert store.schedules.get("five").condition is Condition.OVER
    clock.advance(hours=10)
    changed = store.schedules.update("five", lambda _: with_runs(9), actor="ada")
    assert (changed.cursor, changed.next_at) == (START + 600 * MINUTE, START + 605 * MINUTE)


def with_runs(runs):
    return Definition(kind="mail", cron="*/5 * * * *", runs=runs)


def test_two_changes_at_once_are_both_kept(store, make_store):
    """Each change applies to the definition under the row lock."""
    make(store)
    store.schedules.update("five", lambda known: structs.replace(known, priority=3), actor="ada")
    make_store().schedules.update("five", lambda known: structs.replace(known, queue="slow"), actor="bob")
    definition = store.schedules.get("five").defined
    assert (definition.priority, definition.queue) == (3, "slow")


def test_a_pause_is_noted_and_nothing_is_due(store, clock):
    decided(store, "five", START)
    paused = store.schedules.pause("five", actor="ada", note="the moon")
    assert (paused.condition, paused.note, paused.next_at) == (Condition.PAUSED, "the moon", None)
    clock.advance(hours=1)
    assert due(store) == {}


def test_plans_due_in_a_pause_are_skipped(store, clock):
    decided(store, "five", START)
    store.schedules.pause("five", actor="ada")
    clock.advance(minutes=21)
    resumed = store.schedules.resume("five", actor="ada")
    assert (resumed.cursor, resumed.next_at) == (START + 21 * MINUTE, START + 25 * MINUTE)
    assert (skips(store), resumed.note) == ([(4, "paused")], None)


def test_resume_of_an_active_schedule_changes_nothing(store, clock):
    """Due plans stay due."""
    before = decided(store, "five", START)
    clock.advance(minutes=21)
    assert store.schedules.resume("five", actor="bob") == before


def test_who_paused_and_resumed_is_known(store):
    make(store)
    assert store.schedules.pause("five", actor="bob").actor == "bob"
    assert store.schedules.resume("five", actor="eve").actor == "eve"


def test_a_change_keeps_a_pause(store):
    decided(store, "five", START)
    store.schedules.pause("five", actor="ada", note="the moon")
    changed = store.schedules.update("five", lambda _: SEVEN, actor="bob")
    assert (changed.condition, changed.note, changed.next_at) == (Condition.PAUSED, "the moon", None)


def test_a_person_brings_a_cursor_back_that_is_ahead_of_the_clock(store):
    """After the clock was years ahead, resume continues by the present clock."""
    decided(store, "five", START + timedelta(days=1000))
    assert store.schedules.resume("five", actor="ada").next_at == START + 5 * MINUTE


def test_every_change_voids_earlier_decisions(store):
    make(store)
    for change in (
        lambda: store.schedules.pause("five", actor="ada"),
        lambda: store.schedules.resume("five", actor="ada"),
        lambda: store.schedules.update("five", lambda _: SEVEN, actor="ada"),
    ):
        before = store.schedules.get("five")
        change()
        assert take(store, step(before, fire(0))).moved == []
    assert store.plans.history("five") == []


#: The zone was removed from the database of time zones.
GONE = '{"cron":"*/5 * * * *","kind":"mail","tz":"Europe/Atlantis"}'


def redefine(store, definition):
    """A schedule with a definition that this code cannot plan any more."""
    make(store)
    values = {"name": "five", "declared": "{}", "application": None, "version": 0, "provider": None}
    store.backend.run(query("define_schedule", definition=definition, **values))


def test_a_person_replaces_a_time_zone_that_is_gone(store, clock):
    redefine(store, GONE)
    clock.advance(minutes=7)
    changed = store.schedules.update("five", lambda known: structs.replace(known, tz="UTC"), actor="ada")
    assert changed.next_at == START + 10 * MINUTE


@pytest.mark.parametrize("definition", [GONE, '{"kind":1}'])
def test_code_replaces_a_definition_that_cannot_be_planned(store, clock, definition):
    """A worker starts although the store has a zone that is gone, or what code of another version wrote."""
    redefine(store, definition)
    clock.advance(minutes=7)
    assert declare(store) is DeclarationResult.CHANGED
    assert store.schedules.get("five").next_at == START + 10 * MINUTE


# -- declarations ------------------------------------------------------------------------------


def declare(store, definition=FIVE, version=1):
    return store.schedules.declare([Declaration("five", definition, version)], actor="holdfast:client")["five"]


def test_a_declaration_is_stored_once(store):
    assert [declare(store), declare(store)] == [DeclarationResult.MADE, DeclarationResult.SAME]
    before = store.schedules.get("five")
    assert declare(store) is DeclarationResult.SAME
    assert store.schedules.get("five") == before


def test_other_code_changes_it(store):
    declare(store)
    assert declare(store, SEVEN) is DeclarationResult.CHANGED
    assert store.schedules.get("five").defined == SEVEN


def test_older_code_never_replaces_newer(store):
    """A replica with older code restarts in the middle of a deploy."""
    declare(store, SEVEN, version=2)
    assert declare(store, FIVE, version=1) is DeclarationResult.OLDER
    assert store.schedules.get("five").defined == SEVEN


def test_a_persons_change_stays_until_the_code_changes(store):
    declare(store)
    store.schedules.update("five", lambda _: SEVEN, actor="ada")
    assert declare(store) is DeclarationResult.SAME
    assert store.schedules.get("five").defined == SEVEN
    assert declare(store, EVERY) is DeclarationResult.CHANGED
    assert store.schedules.get("five").defined == EVERY


def test_code_does_not_change_a_schedule_that_a_person_created(store):
    make(store)
    assert declare(store, SEVEN) is DeclarationResult.TAKEN
    assert store.schedules.get("five").defined == FIVE


# -- due schedules -----------------------------------------------------------------------------


def test_due_returns_due_schedules_or_the_time_to_the_next(store, clock):
    decided(store, "five", START)
    due_now = store.schedules.due(providers=[], limit=10)
    assert (due_now.schedules, due_now.next_in, due_now.now) == ([], 5 * MINUTE, START)
    clock.advance(minutes=5)
    assert [each.name for each in store.schedules.due(providers=[], limit=10).schedules] == ["five"]


def test_scopes_that_nobody_here_can_find_out_are_left_to_others(store):
    make(store, "tenants", Definition(kind="mail", cron=FIVE.cron, provider="tenants"))
    assert due(store) == {}
    assert store.schedules.due(providers=[], limit=10).next_in is None
    assert list(due(store, "tenants")) == ["tenants"]


def test_schedules_that_wait_for_their_provider_hide_no_others(store):
    """V2: each provider has its own window, and so have schedules without one; busy ones are left out."""
    for n in range(4):
        make(store, f"a{n}", structs.replace(FIVE, provider="slow"))
    make(store, "b", structs.replace(FIVE, provider="quick"))
    make(store, "c")
    found = store.schedules.due(providers=["quick", "slow"], busy={"slow": ["a0", "a1"]}, limit=1, provider_limit=1)
    assert [each.name for each in found.schedules] == ["c"]
    assert sorted(each.name for each in found.scoped) == ["a2", "b"]
    take(store, step(store.schedules.get("c"), cursor=START))
    waiting = {"slow": ["a0", "a1", "a2", "a3"], "quick": ["b"]}
    assert store.schedules.due(providers=["quick", "slow"], busy=waiting, limit=1).next_in == 5 * MINUTE
    # A schedule that waits for another provider than its own is due.
    assert store.schedules.due(providers=["quick"], busy={"slow": ["b"]}, limit=1).next_in == timedelta(0)


def test_a_schedule_that_cannot_be_planned_rests_longer_each_time(store, clock):
    make(store)
    for rest in (*RETRY_DELAYS, RETRY_DELAYS[-1]):
        assert store.schedules.record_failure(due(store)["five"], "boom")
        assert store.schedules.due(providers=[], limit=10).next_in == rest
        clock.advance(rest)
    failing = store.schedules.get("five")
    assert (failing.condition, failing.error, failing.failures) == (Condition.FAILING, "boom", 6)
    take(store, step(due(store)["five"]))
    assert store.schedules.get("five").condition is Condition.ACTIVE


def test_a_schedule_that_changed_meanwhile_records_no_failure(store):
    make(store)
    seen = due(store)["five"]
    store.schedules.update("five", lambda _: SEVEN, actor="ada")
    assert not store.schedules.record_failure(seen, "boom")
    assert store.schedules.get("five").failures == 0


def test_a_failure_voids_no_decision(store):
    """A planner whose provider fails must not keep others, whose provider is slow, from planning the schedule."""
    make(store)
    seen = due(store)["five"]
    assert store.schedules.record_failure(seen, "boom")
    assert not store.schedules.record_failure(seen, "boom"), "two planners that fail at the same time count once"
    assert take(store, step(seen, fire(0))).moved == ["five"], "S5 is broken: a failure elsewhere voids a decision"
    known = store.schedules.get("five")
    assert (known.failures, known.error) == (0, None)


def test_the_lag_is_that_of_the_oldest_plan(store, clock):
    """A schedule that waits after a failure lags as well."""
    assert store.schedules.lag() == timedelta(0)
    make(store)
    clock.advance(minutes=2)
    assert store.schedules.lag() == 2 * MINUTE
    store.schedules.record_failure(due(store)["five"], "boom")
    assert store.schedules.lag() == 2 * MINUTE
    decided(store, "six", START + 2 * MINUTE)
    assert [each.name for each in store.schedules.troubled(late=MINUTE)] == ["five"]


def test_an_unplanned_schedule_is_troubled(store, clock):
    make(store)
    assert store.schedules.troubled(late=MINUTE) == []
    clock.advance(minutes=2)
    (troubled,) = store.schedules.troubled(late=MINUTE)
    assert (troubled.name, troubled.late, troubled.error) == ("five", True, None)
