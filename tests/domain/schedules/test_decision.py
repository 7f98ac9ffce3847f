"""Decisions: which plans fire, independent of ticks, replicas and crashes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.schedules.decision import MAX_COUNTED, backfilled, decide, first_cursor, format_count, next_after
from holdfast.domain.schedules.definition import CatchUp, Timing
from holdfast.domain.schedules.firing_times import between
from holdfast.domain.schedules.plan import Overlap
from holdfast.errors import InvalidExpression, InvalidInput, NeverFires

T0 = datetime(2024, 3, 30, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
FIVE = Timing(cron="*/5 * * * *")


def at(**parts):
    return T0 + timedelta(**parts)


def summary(decision):
    skips = [(skip.count, str(skip.reason)) for skip in decision.skip]
    return [(time - T0) // MINUTE for time in decision.fire], skips


def test_latest_fires_the_newest_and_writes_the_others_down():
    decision = decide(FIVE, FIVE.rule(), at(minutes=10), at(minutes=31))
    assert summary(decision) == ([30], [(3, "catch_up")])
    assert (decision.skip[0].first, decision.skip[0].last) == (at(minutes=15), at(minutes=25))
    assert (decision.cursor, decision.next_at) == (at(minutes=30), at(minutes=35))


def test_every_fires_the_oldest_first_in_parts():
    """Plans beyond the cap wait for the next tick."""
    timing = Timing(cron="*/5 * * * *", catch_up=CatchUp.EVERY)
    one = decide(timing, timing.rule(), at(minutes=0), at(minutes=31), cap=4)
    assert summary(one) == ([5, 10, 15, 20], [])
    two = decide(timing, timing.rule(), one.cursor, at(minutes=31), cap=4)
    assert summary(two) == ([25, 30], [])


def test_every_does_not_reach_beyond_its_window():
    timing = Timing(cron="*/5 * * * *", catch_up=CatchUp.EVERY, window=timedelta(minutes=12))
    assert summary(decide(timing, timing.rule(), at(minutes=0), at(minutes=31))) == ([20, 25, 30], [(3, "window")])


def test_a_window_of_nothing_is_the_newest():
    timing = Timing(cron="*/5 * * * *", catch_up=CatchUp.EVERY, window=timedelta(0))
    assert summary(decide(timing, timing.rule(), at(minutes=0), at(minutes=31))) == ([30], [(5, "catch_up")])


def test_none_fires_the_due_plan_and_no_older_one():
    timing = Timing(cron="*/5 * * * *", catch_up=CatchUp.NONE)
    assert summary(decide(timing, timing.rule(), at(minutes=0), at(minutes=15, seconds=20))) == ([15], [(2, "late")])
    assert summary(decide(timing, timing.rule(), at(minutes=0), at(minutes=18))) == ([], [(3, "late")])


@pytest.mark.parametrize("catch_up", list(CatchUp))
def test_a_new_schedule_starts_from_its_creation(catch_up):
    """V4: a new @yearly does not fire the plan of last January; a plan at the very moment of creation fires."""
    timing = Timing(cron="@yearly", catch_up=catch_up)
    assert summary(decide(timing, timing.rule(), first_cursor(timing, T0), T0)) == ([], [])
    five = Timing(cron="*/5 * * * *", catch_up=catch_up)
    assert summary(decide(five, five.rule(), first_cursor(five, T0), T0)) == ([0], [])


def test_a_start_in_the_past_asks_for_more():
    """V4: catch_up decides which of the plans since the start fire."""
    for catch_up, expected in (
        (CatchUp.EVERY, ([-10, -5, 0], [])),
        (CatchUp.LATEST, ([0], [(2, "catch_up")])),
        (CatchUp.NONE, ([0], [(2, "late")])),
    ):
        timing = Timing(cron="*/5 * * * *", catch_up=catch_up, start=at(minutes=-12))
        assert summary(decide(timing, timing.rule(), first_cursor(timing, T0), T0)) == expected
    later = Timing(cron="*/5 * * * *", start=at(minutes=12))
    assert next_after(later, later.rule(), first_cursor(later, T0)) == at(minutes=15)


@pytest.mark.parametrize("catch_up", list(CatchUp))
def test_a_clock_that_goes_back_replays_nothing(catch_up):
    timing = Timing(cron="*/5 * * * *", catch_up=catch_up)
    decision = decide(timing, timing.rule(), at(minutes=30), at(minutes=3))
    assert (summary(decision), decision.cursor) == (([], []), at(minutes=30))


def test_counts_of_skipped_plans_are_exact_or_known_to_be_more():
    """V3: up to 10,000 a count is exact; a larger one is stored as 10,001."""
    timing = Timing(every=MINUTE)
    for minutes, count in ((10_001, MAX_COUNTED), (10_002, MAX_COUNTED + 1), (50_000, MAX_COUNTED + 1)):
        assert decide(timing, timing.rule(), T0, at(minutes=minutes)).skip[0].count == count
    assert [format_count(count) for count in (1, MAX_COUNTED, MAX_COUNTED + 1)] == ["1", "10,000", "10,000+"]


def test_a_delay_never_changes_the_time_of_a_plan():
    """The delay only postpones the decision."""
    timing = Timing(cron="*/5 * * * *", delay=timedelta(minutes=2))
    assert summary(decide(timing, timing.rule(), at(minutes=0), at(minutes=6))) == ([], [])
    decision = decide(timing, timing.rule(), at(minutes=0), at(minutes=7))
    assert (summary(decision), decision.next_at) == (([5], []), at(minutes=12))


def test_nothing_fires_before_the_start_or_after_the_end():
    timing = Timing(cron="*/5 * * * *", catch_up=CatchUp.EVERY, start=at(minutes=10), end=at(minutes=20))
    decision = decide(timing, timing.rule(), at(minutes=0), at(minutes=60))
    assert (summary(decision), decision.next_at) == (([10, 15, 20], []), None)


def test_an_end_does_not_make_late_plans_due():
    """S3: no planner ran for a day; the age of a plan counts from now, not from the end of the schedule."""
    end, now = at(minutes=20), at(days=1, minutes=15)
    none = Timing(cron="*/5 * * * *", catch_up=CatchUp.NONE, end=end)
    assert summary(decide(none, none.rule(), at(minutes=0), now)) == ([], [(4, "late")])
    every = Timing(cron="*/5 * * * *", catch_up=CatchUp.EVERY, end=end)
    assert summary(decide(every, every.rule(), at(minutes=0), now)) == ([15, 20], [(2, "window")])
    long_over = decide(every, every.rule(), at(minutes=0), at(days=10))
    assert (summary(long_over), long_over.next_at) == (([], [(4, "window")]), None)


instants = st.integers(0, 400).map(lambda minutes: at(minutes=minutes))
RULES = [
    Timing(cron="*/7 * * * *", catch_up=CatchUp.EVERY),
    Timing(cron="30 1,2 * * *", tz="Europe/Berlin", catch_up=CatchUp.EVERY),
    Timing(every=timedelta(minutes=11), phase=timedelta(minutes=3), catch_up=CatchUp.EVERY),
]


@given(st.sampled_from(RULES), st.lists(st.integers(0, 72 * 60), min_size=1).map(sorted), st.integers(1, 5))
def test_every_does_not_depend_on_the_times_of_ticks(timing, minutes, cap):
    """For any ticks and any cap, each plan fires once, in order, up to the last tick."""
    rule, cursor, fired = timing.rule(), T0, []
    for minute in [*minutes, *[72 * 60] * 2000]:
        decision = decide(timing, rule, cursor, at(minutes=minute), cap=cap)
        fired += decision.fire
        assert not decision.skip or minute - (cursor - T0) // MINUTE > 24 * 60
        if decision.cursor == cursor and minute == 72 * 60:
            break
        cursor = decision.cursor
    skipped = 72 * 60 - 24 * 60
    assert fired == sorted(set(fired))
    expected = list(between(rule, T0, at(minutes=72 * 60)))
    assert set(fired) <= set(expected)
    assert {time for time in expected if time > at(minutes=skipped)} <= set(fired)


@given(st.sampled_from([*RULES, FIVE]), st.lists(st.tuples(st.integers(0, 3000), st.booleans()), min_size=1))
def test_every_plan_is_fired_or_skipped_exactly_once(timing, ticks):
    """A planner that crashes before it writes loses nothing: the next one decides the same plans."""
    rule, cursor, fired, skipped = timing.rule(), T0, [], []
    for minute, crashes in ticks:
        decision = decide(timing, rule, cursor, at(minutes=minute), cap=3)
        if crashes:
            continue
        fired += decision.fire
        skipped += [
            time for skip in decision.skip for time in between(rule, skip.first - timedelta(seconds=1), skip.last)
        ]
        assert decision.cursor >= cursor
        cursor = decision.cursor
    assert sorted([*fired, *skipped]) == list(between(rule, T0, cursor))


def test_no_more_is_decided_than_there_are_runs_left():
    timing = Timing(cron="*/5 * * * *", catch_up=CatchUp.EVERY, runs=5)
    assert summary(decide(timing, timing.rule(), at(minutes=0), at(minutes=60), fired=3)) == ([5, 10], [])
    over = decide(timing, timing.rule(), at(minutes=0), at(minutes=60), fired=5)
    assert (over.fire, over.next_at) == ((), None)


def test_a_start_to_come_leaves_the_cursor_where_it_is():
    timing = Timing(cron="*/5 * * * *", start=at(minutes=12))
    decision = decide(timing, timing.rule(), at(minutes=1), at(minutes=7))
    assert (decision.cursor, decision.next_at) == (at(minutes=1), at(minutes=15))


def test_an_expression_is_written_as_people_do():
    assert Timing.from_expression("every 90s").every == timedelta(seconds=90)
    assert Timing.from_expression("Every 1h30m", phase=timedelta(minutes=5)).expression == "every 1h30m"
    assert Timing.from_expression(" @daily ").expression == "@daily"


@pytest.mark.parametrize("expression", ["every", "every now", "every 0s", "every 1500ms", "", "@never", 5])
def test_an_invalid_expression_is_refused(expression):
    with pytest.raises(InvalidExpression):
        Timing.from_expression(expression)


def test_bounds_without_a_plan_never_fire():
    with pytest.raises(NeverFires, match="between its start and its end"):
        Timing.from_expression(
            "0 0 29 2 *", start=datetime(2029, 1, 1, tzinfo=UTC), end=datetime(2031, 1, 1, tzinfo=UTC)
        )


def test_a_zone_belongs_to_a_cron_expression():
    with pytest.raises(InvalidInput, match="zone"):
        Timing.from_expression("every 5m", tz="Europe/Berlin")
    with pytest.raises(InvalidInput, match="delay"):
        Timing.from_expression("every 5m", delay=-MINUTE)


def test_a_phase_belongs_to_an_interval():
    with pytest.raises(InvalidInput, match="phase"):
        Timing.from_expression("@daily", phase=timedelta(minutes=5))


def test_a_backfill_includes_both_ends():
    assert [(time - T0) // MINUTE for time in backfilled(FIVE, at(minutes=5), at(minutes=15))] == [5, 10, 15]
    short = Timing(cron="*/5 * * * *", start=at(minutes=7), end=at(minutes=12))
    assert [(time - T0) // MINUTE for time in backfilled(short, at(minutes=0), at(minutes=60))] == [10]
    with pytest.raises(InvalidInput):
        backfilled(FIVE, at(minutes=5), at(minutes=4))
    with pytest.raises(InvalidInput, match="in parts"):
        backfilled(FIVE, at(minutes=0), at(minutes=60), limit=3)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"cron": "@daily", "every": HOUR},
        {"cron": "@daily", "delay": -HOUR},
        {"cron": "@daily", "start": T0, "end": T0},
        {"cron": "@daily", "start": T0.replace(tzinfo=None)},
        {"cron": "@daily", "runs": 0},
        {"cron": "@daily", "start": datetime.max.replace(tzinfo=UTC)},
        {"cron": "@daily", "end": datetime.min.replace(tzinfo=UTC)},
        {"cron": "@daily", "jitter": timedelta(days=2)},
        {"cron": "@daily", "delay": timedelta(days=200)},
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(values):
    with pytest.raises((InvalidExpression, InvalidInput)):
        Timing(**values)


def test_with_every_no_plan_is_lost_to_another():
    assert Timing(cron="@daily").effective_overlap is Overlap.SKIP
    assert Timing(cron="@daily", catch_up=CatchUp.EVERY).effective_overlap is Overlap.QUEUE_ALL
    assert Timing(cron="@daily", catch_up=CatchUp.EVERY, overlap=Overlap.SKIP).effective_overlap is Overlap.SKIP
