"""Schedules: one test per promise of store/schedules/schedules.py."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec import structs

from holdfast.domain.jobs.selector import Selector
from holdfast.domain.schedules.decision import RETRY_DELAYS
from holdfast.domain.schedules.definition import CatchUp, Condition, Declaration, DeclarationResult, Definition
from holdfast.errors import DuplicateSchedule, InvalidInput, NoSuchSchedule
from tests.store.schedules.test_plans import MINUTE, due, fire, step, take
from tests.support.backends import START

FIVE = Definition(kind="mail", cron="*/5 * * * *")
SEVEN = Definition(kind="mail", cron="*/7 * * * *")
EVERY = Definition(kind="mail", cron="*/5 * * * *", catch_up=CatchUp.EVERY)


def make(store, name="five", definition=FIVE):
    return store.schedules.create(name, definition, actor="ada")


def decided(store, name, until):
    """A schedule whose plans are decided up to *until*."""
    make(store, name)
    take(store, step(due(store)[name], cursor=until))
    return store.schedules.get(name)


def skips(store, name="five"):
    return [(skip.count, str(skip.reason)) for skip in store.plans.skips(name)]


def test_a_new_schedule_is_due_at_once(store):
    made = make(store)
    assert (made.cursor, made.next_at, made.condition, made.actor) == (None, START, Condition.ACTIVE, "ada")
    assert list(due(store)) == ["five"]


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
    assert store.plans.history("five") == []
    assert len(store.views.page(Selector()).jobs) == 1


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


def test_another_rule_skips_plans_that_wait_for_their_delay(store, clock):
    """For any delays, the old rule is recorded up to now, and the new one applies afterwards."""
    late = Definition(kind="mail", cron="*/5 * * * *", delay=60 * MINUTE)
    make(store, definition=late)
    take(store, step(due(store)["five"], cursor=START))
    clock.advance(minutes=21)
    changed = store.schedules.update("five", lambda _: SEVEN, actor="bob")
    assert (skips(store), changed.next_at) == ([(4, "edited")], START + 28 * MINUTE)


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


# -- declarations ------------------------------------------------------------------------------


def declare(store, definition=FIVE, version=1):
    return store.schedules.declare([Declaration("five", definition, version)], actor="holdfast:client")["five"]


def test_a_declaration_is_stored_once(store):
    assert [declare(store), declare(store)] == [DeclarationResult.MADE, DeclarationResult.SAME]
    assert store.schedules.get("five").token == 0


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
