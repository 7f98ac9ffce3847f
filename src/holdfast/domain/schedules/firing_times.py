"""Firing times: the instants, in UTC, at which a cron expression in a time zone or an interval fires.

A time of day that a clock change skips fires once, right after the gap. One that comes twice fires once, on the first
pass. Rhythms (a wildcard in minutes or hours) follow elapsed time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from holdfast.domain.schedules.cron import HORIZON_YEARS, Cron
from holdfast.errors import InvalidExpression, InvalidInput, NeverFires, UnknownZone

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Zones change over the decades; a new rule is tested against the offsets of this time.
PRESENT = datetime(2025, 1, 1, tzinfo=UTC)
MICROSECOND, SECOND, DAY = timedelta(microseconds=1), timedelta(seconds=1), timedelta(days=1)


def between(rule: Rule, first: datetime, last: datetime) -> Iterator[datetime]:
    """Yield all instants after *first*, up to and including *last*."""
    instant = rule.next_after(first)
    while instant <= last:
        yield instant
        instant = rule.next_after(instant)


class Interval:
    """Multiples of an interval since the epoch, moved by a phase: all replicas agree on them."""

    def __init__(self, every: timedelta, phase: timedelta = timedelta(0)) -> None:
        if every < SECOND or every % SECOND:
            hint = "Write it like: every 90s."
            raise InvalidExpression("an interval takes at least a second, in whole seconds", hint=hint, position=0)
        if not timedelta(0) <= phase < every or phase % SECOND:
            raise InvalidInput(f"a phase lies between 0 and the interval of {every}, in whole seconds, not {phase}")
        self._every, self._origin = every, EPOCH + phase

    def next_after(self, instant: datetime) -> datetime:
        return self._origin + ((instant - self._origin) // self._every + 1) * self._every

    def previous_before(self, instant: datetime) -> datetime:
        return self._origin - ((self._origin - instant) // self._every + 1) * self._every


class Calendar:
    """A cron expression in a time zone."""

    def __init__(self, expression: str, zone: str = "UTC") -> None:
        self.cron = Cron(expression)
        self.zone = zone_of(zone)
        #: A span without clock changes, and its offset: most calls are about the present.
        self._steady = steady_span(self.zone, PRESENT)
        self.next_after(PRESENT)  # raises NeverFires

    def next_after(self, instant: datetime) -> datetime:
        """Return the first instant after *instant*."""
        if instant.tzinfo is not UTC:
            instant = instant.astimezone(UTC)
        begin, end, offset = self._steady
        if begin <= instant < end:
            # Shifted timestamps keep the label UTC: converting the zone would take most of the time.
            following = self.cron.after(instant + offset) - offset
            if following < end:
                return following
        else:
            self._steady = steady_span(self.zone, instant)
        return self._next_time(instant) if self.cron.fixed else self._next_beat(instant)

    def previous_before(self, instant: datetime) -> datetime:
        """Return the last instant before *instant*."""
        if instant.tzinfo is not UTC:
            instant = instant.astimezone(UTC)
        begin, end, offset = self._steady
        if begin < instant < end:
            previous = self.cron.before(_round_up(instant + offset)) - offset
            if previous >= begin:
                return previous
        return self._last_time(instant) if self.cron.fixed else self._last_beat(instant)

    def _next_time(self, instant: datetime) -> datetime:
        wall = instant.astimezone(self.zone).replace(tzinfo=None, fold=0)
        while True:
            wall = self.cron.after(wall)
            following = self._instant_of(wall)
            if following > instant:
                return following

    def _last_time(self, instant: datetime) -> datetime:
        local = instant.astimezone(self.zone)
        # On the second pass, the first pass has already shown later times of the wall clock.
        wall = local.replace(tzinfo=None, fold=0) + (DAY if local.fold else SECOND)
        while True:
            wall = self.cron.before(wall)
            previous = self._instant_of(wall)
            if previous < instant:
                return previous

    def _instant_of(self, wall: datetime) -> datetime:
        """Return the instant of a wall-clock time: its first pass, or the end of the gap that skips it."""
        local = wall.replace(tzinfo=self.zone)
        before, after = utc_offset(local), utc_offset(local.replace(fold=1))
        if before >= after:
            return (wall - before).replace(tzinfo=UTC)
        return next_change(self.zone, (wall - after).replace(tzinfo=UTC))

    def _next_beat(self, instant: datetime) -> datetime:
        """Search span by span: between two clock changes, the wall clock moves as time does."""
        local = instant.astimezone(self.zone)
        offset, wall = utc_offset(local), local.replace(tzinfo=None, fold=0)
        horizon = instant.year + HORIZON_YEARS
        while instant.year < horizon:
            following = (self.cron.after(wall) - offset).replace(tzinfo=UTC)
            change = next_change(self.zone, instant)
            if following < change:
                return following
            instant, offset = change, utc_offset(change.astimezone(self.zone))
            wall = (change + offset).replace(tzinfo=None) - SECOND
        raise self._never_fires()

    def _last_beat(self, instant: datetime) -> datetime:
        horizon = instant.year - HORIZON_YEARS
        while instant.year > horizon:
            change = last_change(self.zone, instant)
            offset = utc_offset((instant - MICROSECOND).astimezone(self.zone))
            wall = _round_up((instant + offset).replace(tzinfo=None))
            previous = (self.cron.before(wall) - offset).replace(tzinfo=UTC)
            if previous >= change:
                return previous
            instant = change
        raise self._never_fires()

    def _never_fires(self) -> NeverFires:
        return NeverFires(f"{self.cron.expression!r} never fires in {self.zone.key}: the clocks skip it")


class SharedCalendar(Calendar):
    """A calendar that keeps its last answers: many schedules have the same rule and are due at the same time."""

    def __init__(self, expression: str, zone: str = "UTC") -> None:
        self._known = lru_cache(maxsize=8)(super().next_after)
        super().__init__(expression, zone)

    def next_after(self, instant: datetime) -> datetime:
        """Return the first instant after *instant*. In UTC, equal timestamps are the same instant."""
        return self._known(instant if instant.tzinfo is UTC else instant.astimezone(UTC))


Rule = Interval | Calendar


def _round_up(wall: datetime) -> datetime:
    return wall.replace(microsecond=0) + SECOND if wall.microsecond else wall


# -- clock changes ---------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def zone_of(name: str) -> ZoneInfo:
    """Return the time zone with this IANA name."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UnknownZone(f"there is no time zone {name[:100]!r}", zone=name) from None


def next_change(zone: ZoneInfo, instant: datetime) -> datetime:
    """Return the first clock change after *instant*, or an instant beyond the horizon if there is none."""
    for year in range(instant.year, instant.year + HORIZON_YEARS):
        changes = clock_changes(zone, year)
        if (index := bisect_right(changes, instant)) < len(changes):
            return changes[index]
    return datetime(instant.year + HORIZON_YEARS, 1, 1, tzinfo=UTC)


def last_change(zone: ZoneInfo, instant: datetime) -> datetime:
    """Return the last clock change before *instant*, or an instant beyond the horizon if there is none."""
    for year in range(instant.year, instant.year - HORIZON_YEARS, -1):
        changes = clock_changes(zone, year)
        if index := bisect_left(changes, instant):
            return changes[index - 1]
    return datetime(instant.year - HORIZON_YEARS, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=8192)
def clock_changes(zone: ZoneInfo, year: int) -> list[datetime]:
    """Return the instants of a year at which the clocks change, to the second."""
    changes = []
    low = datetime(year, 1, 1, tzinfo=UTC) - SECOND
    end = datetime(year + 1, 1, 1, tzinfo=UTC) - SECOND
    before = utc_offset(low.astimezone(zone))
    while low < end:
        high = min(low + DAY, end)
        after = utc_offset(high.astimezone(zone))
        if after != before:
            changes.append(_change_between(zone, low, high))
        low, before = high, after
    return changes


def steady_span(zone: ZoneInfo, instant: datetime) -> tuple[datetime, datetime, timedelta]:
    """Return a span around *instant* without clock changes, and its offset. It begins a day after the last change."""
    begin, end = last_change(zone, instant + SECOND) + DAY, next_change(zone, instant)
    return begin, end, utc_offset(instant.astimezone(zone))


def utc_offset(local: datetime) -> timedelta:
    """Return the UTC offset of an aware timestamp."""
    offset = local.utcoffset()
    assert offset is not None
    return offset


def _change_between(zone: ZoneInfo, low: datetime, high: datetime) -> datetime:
    """Return the first instant after *low* that has the offset of *high*."""
    after = utc_offset(high.astimezone(zone))
    while high - low > SECOND:
        middle = (low + (high - low) / 2).replace(microsecond=0)
        if utc_offset(middle.astimezone(zone)) == after:
            high = middle
        else:
            low = middle
    return high
