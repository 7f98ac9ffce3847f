"""Rules against a brute-force oracle and cronsim, in zones with unusual clock changes."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.schedules.cron import Cron
from holdfast.domain.schedules.firing_times import Calendar, Interval, SharedCalendar, between, clock_changes
from holdfast.errors import InvalidExpression, InvalidInput, NeverFires, UnknownZone

MINUTE = timedelta(minutes=1)
ZONES = [
    "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Africa/Cairo", "America/Havana", "America/Sao_Paulo",
    "Pacific/Apia", "Africa/Casablanca", "Asia/Gaza", "America/St_Johns", "Asia/Kathmandu", "Asia/Kolkata",
    "Antarctica/Troll", "UTC",
]  # fmt: skip
YEARS = range(2000, 2041)


def field(luck, first, last, *, wild=0.4):
    """A random field of an expression."""
    low, high = sorted(luck.sample(range(first, last + 1), 2))
    return luck.choices(
        [
            "*",
            f"*/{luck.randint(1, last)}",
            str(low),
            f"{low}-{high}",
            f"{low}-{high}/{luck.randint(1, 7)}",
            f"{low},{high}",
        ],
        [wild, 0.1, 0.25, 0.1, 0.05, 0.1],
    )[0]


def expression(luck):
    """A random expression that fires near the hours at which clocks change."""
    hour = field(luck, 0, 23) if luck.random() < 0.5 else field(luck, 0, 4, wild=0.1)
    days = luck.choice([field(luck, 1, 28), "*", "*", "L", "*"])
    weekdays = luck.choice([field(luck, 0, 7), "*", "*", "sun", f"{luck.randint(0, 6)}#{luck.randint(1, 5)}", "0L"])
    return f"{field(luck, 0, 59, wild=0.2)} {hour} {days} {field(luck, 1, 12, wild=0.7)} {weekdays}"


def calendar(luck, zone):
    """A random rule; combinations of days that never occur are left out."""
    while True:
        try:
            return Calendar(expression(luck), zone)
        except NeverFires:
            continue


def oracle(cron, zone, first, last):
    """Search minute by minute, independent of the code under test."""
    instants, fixed = [], cron.fixed
    instant = first.replace(second=0, microsecond=0) + MINUTE
    before = (instant - MINUTE).astimezone(zone)
    while instant <= last:
        local = instant.astimezone(zone)
        fires = matches(cron, local) and not (fixed and local.fold)
        skipped = (local.replace(tzinfo=None) - before.replace(tzinfo=None)) // MINUTE - 1
        if fixed and skipped > 0:
            gap = (before.replace(tzinfo=None) + n * MINUTE for n in range(1, skipped + 1))
            fires = fires or any(matches(cron, wall) for wall in gap)
        if fires:
            instants.append(instant)
        before, instant = local, instant + MINUTE
    return instants


def matches(cron, wall):
    in_day = wall.minute in cron.minutes and wall.hour in cron.hours
    return in_day and wall.month in cron.months and wall.day in cron.days_of(wall.year, wall.month)


def spans(luck, zone):
    """Three days around a clock change, or anywhere in the year."""
    year = luck.choice(YEARS)
    changes = clock_changes(ZoneInfo(zone), year)
    middle = luck.choice(changes) if changes else datetime(year, luck.randint(1, 12), luck.randint(1, 28), tzinfo=UTC)
    return middle - timedelta(hours=36, minutes=luck.randint(0, 59)), middle + timedelta(hours=36)


@pytest.mark.parametrize("zone", ZONES)
def test_no_difference_from_the_oracle(zone):
    """Gaps, folds, half hours and a skipped day; forwards and backwards."""
    luck = random.Random(zone)
    for _ in range(60):
        rule = calendar(luck, zone)
        first, last = spans(luck, zone)
        expected = oracle(rule.cron, rule.zone, first, last)
        assert list(between(rule, first, last)) == expected, (rule.cron.expression, zone, first)
        instant, back = last + timedelta(seconds=1), []
        while expected and (instant := rule.previous_before(instant)) > first:
            back.append(instant)
        assert back[::-1] == expected, (rule.cron.expression, zone, first)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_the_days_of_the_calendar_are_those_of_cronsim(zone):
    """In zones without clock changes, over forty years."""
    luck = random.Random(7)
    for _ in range(200):
        rule, instant = calendar(luck, zone), datetime(luck.choice(YEARS), 1, 1, tzinfo=UTC)
        spelt = rule.cron.expression
        other = CronSim(spelt, instant.astimezone(ZoneInfo(zone)))
        for _ in range(50):
            instant = rule.next_after(instant)
            assert instant == next(other).astimezone(UTC), spelt


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
def test_times_of_the_wall_clock_are_those_of_cronsim(zone):
    """A time of day that a gap skips and a fold repeats."""
    for hour in range(4):
        spelt = f"30 {hour} * * *"
        for year in (2005, 2024):
            rule, instant = Calendar(spelt, zone), datetime(year, 1, 1, tzinfo=UTC)
            other = CronSim(spelt, instant.astimezone(ZoneInfo(zone)))
            for _ in range(366):
                instant = rule.next_after(instant)
                assert instant == next(other).astimezone(UTC), (spelt, instant)


instants = st.datetimes(datetime(2000, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
rules = st.builds(lambda seed, zone: calendar(random.Random(seed), zone), st.integers(), st.sampled_from(ZONES))


@given(rules, instants)
def test_next_and_previous_are_each_others_inverse(rule, instant):
    """Instants increase strictly, and none lies between two neighbours."""
    following = rule.next_after(instant)
    assert following > instant
    assert rule.next_after(following) > following
    assert rule.previous_before(following) <= instant
    assert rule.previous_before(rule.next_after(following)) == following
    assert rule.next_after(rule.previous_before(instant)) >= instant


@given(rules, instants, st.integers(0, 100))
def test_a_span_can_be_cut_anywhere(rule, first, hours):
    """The instants of two halves are those of the whole span."""
    middle, last = first + timedelta(hours=hours), first + timedelta(hours=100)
    assert [*between(rule, first, middle), *between(rule, middle, last)] == list(between(rule, first, last))


def test_seconds_come_first_in_six_fields():
    rule = Calendar("*/20 30 6 * * mon")
    instants = list(between(rule, datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 7, tzinfo=UTC)))
    assert [str(instant.time()) for instant in instants] == ["06:30:00", "06:30:20", "06:30:40"]


@pytest.mark.parametrize(
    ("spelt", "same"),
    [
        ("@daily", "0 0 * * *"), ("@Hourly", "0 * * * *"), ("0 0 * JAN sun", "0 0 * 1 0"), ("0 0 * * 7", "0 0 * * 0"),
        ("0 0 * * 5-7", "0 0 * * fri,sat,sun"), ("5/20 * * * *", "5,25,45 * * * *"),
    ],
)  # fmt: skip
def test_one_thing_can_be_spelt_in_many_ways(spelt, same):
    day = datetime(2023, 12, 28, tzinfo=UTC)
    one, two = Calendar(spelt), Calendar(same)
    assert list(between(one, day, day + timedelta(days=9))) == list(between(two, day, day + timedelta(days=9)))


@pytest.mark.parametrize(
    ("spelt", "position", "message"),
    [
        ("* * * *", 0, "4 fields"), ("60 * * * *", 0, "'60' is not a valid minute"), ("0 6-25 * * *", 2, "'25' is not a valid hour"),
        ("0 0 * * 1,9", 10, "'9' is not a valid day of the week"), ("0 0 10-5 * *", 4, "runs backwards"), ("*/0 * * * *", 0, "step of 0"),
        ("@never", 0, "not a valid schedule"), ("0 0 * foo *", 6, "'foo' is not a valid month"), ("0 0 * * 1#6", 8, "no month has"),
        ("0 0 * * *-3", 8, "is not a valid day of the week"), ("", 0, "0 fields"), ("0 0 32 * *", 4, "'32' is not a valid day of the month"),
        ("1,,2 * * * *", 2, "is not a valid minute"),
    ],
)  # fmt: skip
def test_a_malformed_expression_is_refused_with_its_position(spelt, position, message):
    with pytest.raises(InvalidExpression, match=message) as caught:
        Cron(spelt)
    assert caught.value.context["position"] == position
    assert caught.value.hint


@pytest.mark.parametrize("spelt", ["0 0 30 2 *", "0 0 31 4,6,9,11 *"])
def test_an_expression_that_never_fires_is_refused(spelt):
    with pytest.raises(NeverFires):
        Calendar(spelt)


def test_a_time_that_clock_changes_always_skip_never_fires():
    """In Troll the hour from two to three is missing on the last Sunday of March."""
    with pytest.raises(NeverFires, match="Troll"):
        Calendar("* 2 * 3 0L", "Antarctica/Troll")


def test_rare_days_are_reached():
    """29 February, and a fifth Friday in February."""
    instant = datetime(2001, 1, 1, tzinfo=UTC)
    assert Calendar("0 0 29 2 *").next_after(instant) == datetime(2004, 2, 29, tzinfo=UTC)
    assert Calendar("0 0 * 2 fri#5").next_after(instant) == datetime(2008, 2, 29, tzinfo=UTC)
    assert Calendar("0 0 L 2 *").previous_before(instant) == datetime(2000, 2, 29, tzinfo=UTC)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../etc/passwd", "Europe"])
def test_an_unknown_zone_is_refused(zone):
    with pytest.raises(UnknownZone):
        Calendar("@daily", zone)


@given(st.integers(1, 10**6), st.integers(0, 10**6), instants)
def test_intervals_lie_on_a_grid(every, phase, instant):
    """Intervals count from the epoch, so all replicas agree."""
    rule = Interval(timedelta(seconds=every), timedelta(seconds=phase % every))
    following = rule.next_after(instant)
    assert (int(following.timestamp()) - phase % every) % every == 0
    assert instant < following <= instant + timedelta(seconds=every)
    assert rule.previous_before(following) == following - timedelta(seconds=every)
    assert rule.previous_before(following + timedelta(microseconds=1)) == following


@pytest.mark.parametrize(("every", "phase"), [(0, 0), (0.5, 0), (60, 60), (60, -1), (1.5, 0), (60, 0.5)])
def test_intervals_that_make_no_sense_are_refused(every, phase):
    with pytest.raises(InvalidInput):
        Interval(timedelta(seconds=every), timedelta(seconds=phase))


def test_a_shared_calendar_tells_the_two_passes_of_an_hour_apart():
    """Both passes are equal timestamps of the zone, and different instants."""
    calendar = SharedCalendar("*/30 * * * *", "Europe/Berlin")
    passes = [datetime(2026, 10, 25, 2, 15, tzinfo=ZoneInfo("Europe/Berlin"), fold=fold) for fold in (0, 1)]
    assert [calendar.next_after(each).hour for each in passes] == [0, 1]
    assert [calendar.next_after(each).hour for each in passes] == [0, 1]
