"""When a rule fires: instants in UTC, from an expression and a time zone, or from an interval on a grid.

A time of the wall clock that a change of the clocks skips fires once, right after the gap; one that comes twice fires
once, on the first pass. Rhythms (a wildcard in minutes or hours) follow elapsed time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Protocol
from zoneinfo import ZoneInfo

from holdfast.domain.schedules.cron import HORIZON, Cron
from holdfast.errors import InvalidExpression, InvalidInput, NeverFires, UnknownZone

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Zones change their rules: what fires is judged by those of our time.
PRESENT = datetime(2025, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
MICROSECOND = timedelta(microseconds=1)


#: Moments of schedules lie in these years: beyond, there is no room left to calculate.
FIRST_YEAR, LAST_YEAR = 1900, 8999


def checked_timestamp(timestamp: datetime) -> datetime:
    """Return *moment* in UTC if it can be one of a schedule.

    Raises:
        InvalidInput: It has no time zone, or lies too far away.
    """
    if not isinstance(timestamp, datetime) or timestamp.tzinfo is None:
        raise InvalidInput(
            f"{timestamp!r} is no moment", hint="Use an aware datetime: datetime(2030, 1, 1, tzinfo=UTC)."
        )
    if not FIRST_YEAR <= timestamp.year <= LAST_YEAR:
        raise InvalidInput(f"the year {timestamp.year} is too far away", hint=f"Take {FIRST_YEAR} to {LAST_YEAR}.")
    return timestamp.astimezone(UTC)


class Rule(Protocol):
    """Something that fires now and then."""

    def next_after(self, instant: datetime) -> datetime: ...

    def previous_before(self, instant: datetime) -> datetime: ...


def between(rule: Rule, first: datetime, last: datetime) -> Iterator[datetime]:
    """All instants after *first*, up to and with *last*."""
    instant = rule.next_after(first)
    while instant <= last:
        yield instant
        instant = rule.next_after(instant)


class Interval:
    """Every so often since the epoch, moved by a phase: all replicas agree, whenever they were started."""

    def __init__(self, every: timedelta, phase: timedelta = timedelta(0)) -> None:
        if every < SECOND or every % SECOND:
            hint = "Write it like: every 90s."
            raise InvalidExpression("an interval takes at least a second, in whole seconds", hint=hint, position=0)
        if not timedelta(0) <= phase < every or phase % SECOND:
            raise InvalidInput(f"a phase lies between 0 and the interval of {every}, in whole seconds, not {phase}")
        self.every = every
        self.phase = phase

    def next_after(self, instant: datetime) -> datetime:
        origin = EPOCH + self.phase
        return origin + ((instant - origin) // self.every + 1) * self.every

    def previous_before(self, instant: datetime) -> datetime:
        origin = EPOCH + self.phase
        return origin - ((origin - instant) // self.every + 1) * self.every


class Calendar:
    """A cron expression in a time zone."""

    def __init__(self, expression: str, zone: str = "UTC") -> None:
        self.cron = Cron(expression)
        self.zone = zone_of(zone)
        #: A span without a change of the clocks, in UTC, and its offset: most questions are about the present.
        self._calm = _calm(self.zone, PRESENT)
        self.next_after(PRESENT)  # or it never does

    def next_after(self, instant: datetime) -> datetime:
        """The first instant after *instant*."""
        if instant.tzinfo is not UTC:
            instant = instant.astimezone(UTC)
        begin, end, offset = self._calm
        if begin <= instant < end:
            # Not a moment of UTC, but what the clocks show: a new zone for each would take most of the time.
            found = self.cron.after(instant + offset) - offset
            if found < end:
                return found
        else:
            self._calm = _calm(self.zone, instant)
        return self._next_time(instant) if self.cron.fixed else self._next_beat(instant)

    def previous_before(self, instant: datetime) -> datetime:
        """The last instant before *instant*."""
        if instant.tzinfo is not UTC:
            instant = instant.astimezone(UTC)
        begin, end, offset = self._calm
        if begin < instant < end:
            found = self.cron.before(_whole(instant + offset)) - offset
            if found >= begin:
                return found
        return self._last_time(instant) if self.cron.fixed else self._last_beat(instant)

    # -- times of the wall clock -----------------------------------------------------------

    def _next_time(self, instant: datetime) -> datetime:
        wall = instant.astimezone(self.zone).replace(tzinfo=None, fold=0)
        while True:
            wall = self.cron.after(wall)
            found = self._instant_of(wall)
            if found > instant:
                return found

    def _last_time(self, instant: datetime) -> datetime:
        local = instant.astimezone(self.zone)
        # In a second pass, later times of the wall clock have been there already.
        wall = local.replace(tzinfo=None, fold=0) + (DAY if local.fold else SECOND)
        while True:
            wall = self.cron.before(wall)
            found = self._instant_of(wall)
            if found < instant:
                return found

    def _instant_of(self, wall: datetime) -> datetime:
        """The instant of a time of the wall clock: the first pass, or the end of the gap that skips it."""
        local = wall.replace(tzinfo=self.zone)
        before, after = _offset(local), _offset(local.replace(fold=1))
        if before >= after:
            return (wall - before).replace(tzinfo=UTC)
        return next_change(self.zone, (wall - after).replace(tzinfo=UTC))

    # -- rhythms ---------------------------------------------------------------------------

    def _next_beat(self, instant: datetime) -> datetime:
        """Between two changes of the clocks the wall clock moves as time does."""
        local = instant.astimezone(self.zone)
        offset, wall = _offset(local), local.replace(tzinfo=None, fold=0)
        horizon = instant.year + HORIZON
        while instant.year < horizon:
            found = (self.cron.after(wall) - offset).replace(tzinfo=UTC)
            change = next_change(self.zone, instant)
            if found < change:
                return found
            instant, offset = change, _offset(change.astimezone(self.zone))
            wall = (change + offset).replace(tzinfo=None) - SECOND
        raise self._never()

    def _last_beat(self, instant: datetime) -> datetime:
        horizon = instant.year - HORIZON
        while instant.year > horizon:
            change = last_change(self.zone, instant)
            offset = _offset((instant - MICROSECOND).astimezone(self.zone))
            wall = _whole((instant + offset).replace(tzinfo=None))
            found = (self.cron.before(wall) - offset).replace(tzinfo=UTC)
            if found >= change:
                return found
            instant = change
        raise self._never()

    def _never(self) -> NeverFires:
        """In this zone, the clocks skip it whenever its day comes."""
        return NeverFires(f"{self.cron.expression!r} never fires in {self.zone.key}: the clocks skip it")


@lru_cache(maxsize=1024)
def zone_of(name: str) -> ZoneInfo:
    """A time zone by its IANA name.

    Raises:
        UnknownZone: There is none.
    """
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UnknownZone(f"there is no time zone {name[:100]!r}", zone=name) from None


def next_change(zone: ZoneInfo, instant: datetime) -> datetime:
    """The first change of the clocks after *instant*, or a moment far away."""
    for year in range(instant.year, instant.year + HORIZON):
        found = changes(zone, year)
        place = bisect_right(found, instant)
        if place < len(found):
            return found[place]
    return datetime(instant.year + HORIZON, 1, 1, tzinfo=UTC)


def last_change(zone: ZoneInfo, instant: datetime) -> datetime:
    """The last change of the clocks before *instant*, or a moment far away."""
    for year in range(instant.year, instant.year - HORIZON, -1):
        found = changes(zone, year)
        place = bisect_left(found, instant)
        if place:
            return found[place - 1]
    return datetime(instant.year - HORIZON, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=8192)
def changes(zone: ZoneInfo, year: int) -> list[datetime]:
    """The instants of a year at which the clocks change, to the second."""
    found = []
    low = datetime(year, 1, 1, tzinfo=UTC) - SECOND
    end = datetime(year + 1, 1, 1, tzinfo=UTC) - SECOND
    before = _offset(low.astimezone(zone))
    while low < end:
        high = min(low + DAY, end)
        after = _offset(high.astimezone(zone))
        if after != before:
            found.append(_border(zone, low, high))
        low, before = high, after
    return found


def _calm(zone: ZoneInfo, instant: datetime) -> tuple[datetime, datetime, timedelta]:
    """The span around *instant* in which the clocks do not change, from a day after the last change on."""
    begin, end = last_change(zone, instant + SECOND) + DAY, next_change(zone, instant)
    return begin, end, _offset(instant.astimezone(zone))


def _border(zone: ZoneInfo, low: datetime, high: datetime) -> datetime:
    """The instant between *low* and *high* from which the offset is that of *high*."""
    after = _offset(high.astimezone(zone))
    while high - low > SECOND:
        middle = (low + (high - low) / 2).replace(microsecond=0)
        if _offset(middle.astimezone(zone)) == after:
            high = middle
        else:
            low = middle
    return high


def _whole(wall: datetime) -> datetime:
    """The next whole second."""
    return wall.replace(microsecond=0) + SECOND if wall.microsecond else wall


def _offset(local: datetime) -> timedelta:
    offset = local.utcoffset()
    assert offset is not None
    return offset
