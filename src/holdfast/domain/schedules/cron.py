"""Cron expressions, compiled: which seconds, minutes, hours and days of the calendar they name.

Five fields (minute, hour, day of the month, month, day of the week) or six with seconds first; names, ranges, steps,
``L`` (the last day, ``5L`` the last Friday), ``#`` (``1#2`` the second Monday), and ``@daily`` and the like. Time zones
are :mod:`holdfast.domain.schedules.rule`' business.
"""

from __future__ import annotations

import calendar
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from datetime import date, datetime
from typing import NamedTuple

from holdfast.errors import InvalidExpression, NeverFires

MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
#: Within so many years every date of the calendar comes on every day of the week.
HORIZON = 41


class _Field(NamedTuple):
    name: str
    first: int
    last: int
    names: Sequence[str] = ()


SECOND = _Field("second", 0, 59)
FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, MONTHS),
    _Field("day of the week", 0, 7, DAYS),
)
_PART = re.compile(r"(\*|[a-z]+|\d+)(?:-([a-z]+|\d+))?(?:/(\d+))?")
_NTH = re.compile(r"([a-z]+|\d+)#(\d)")
_LAST = re.compile(r"([a-z]+|\d+)l")


class Days(NamedTuple):
    """Days of a month: by number, by day of the week (0 is Sunday), the nth or the last of these, the last of all."""

    numbers: frozenset[int]
    weekdays: frozenset[int]
    nth: frozenset[tuple[int, int]]
    last_weekdays: frozenset[int]
    last: bool
    #: Both kinds are named: one of them is enough. Otherwise both must hold.
    either: bool


class Cron:
    """A compiled expression. Moments are times of the wall clock; what they have for a zone is passed through."""

    def __init__(self, expression: str) -> None:
        self.expression = expression
        words = _words(expression)
        self.seconds = _values(SECOND, words[0]) if len(words) == 6 else (0,)
        fields = words[-5:]
        self.minutes = _values(FIELDS[0], fields[0])
        self.hours = _values(FIELDS[1], fields[1])
        self.months = _values(FIELDS[3], fields[3])
        self.days = _days(fields[2], fields[4])
        #: Neither minute nor hour is a wildcard: it means a time of the wall clock, not a rhythm.
        self.fixed = not fields[0].text.startswith("*") and not fields[1].text.startswith("*")
        self._next_second, self._next_minute = _followers(self.seconds, 60), _followers(self.minutes, 60)
        self._next_hour, self._next_month = _followers(self.hours, 24), _followers(self.months, 13)
        self._has_minute = [minute in self.minutes for minute in range(60)]
        self._has_hour = [hour in self.hours for hour in range(24)]
        self._has_month = [month in self.months for month in range(13)]
        #: The days of a month, by its length and the day of the week that it begins with.
        self._shapes = {
            (first, length): self._find_days(first, length) for first in range(7) for length in (28, 29, 30, 31)
        }
        self._known: dict[tuple[int, int], tuple[int, ...]] = {}
        if not self._ever():
            raise NeverFires(f"{expression[:100]!r} never fires: there is no such day")

    def days_of(self, year: int, month: int) -> tuple[int, ...]:
        """The days of a month that it names, in their order."""
        found = self._known.get((year, month))
        if found is None:
            length = LENGTHS[month] if month != 2 or not calendar.isleap(year) else 29
            found = self._known[year, month] = self._shapes[date(year, month, 1).weekday(), length]
        return found

    def after(self, timestamp: datetime) -> datetime:
        """The first time of the wall clock after *moment*."""
        year, month, day, hour, minute = (
            timestamp.year,
            timestamp.month,
            timestamp.day,
            timestamp.hour,
            timestamp.minute,
        )
        if self._has_month[month] and day in self.days_of(year, month):
            if self._has_hour[hour]:
                if self._has_minute[minute] and (second := self._next_second[timestamp.second]) is not None:
                    return datetime(year, month, day, hour, minute, second, 0, timestamp.tzinfo)
                if (later := self._next_minute[minute]) is not None:
                    return datetime(year, month, day, hour, later, self.seconds[0], 0, timestamp.tzinfo)
            if (later := self._next_hour[hour]) is not None:
                return datetime(year, month, day, later, self.minutes[0], self.seconds[0], 0, timestamp.tzinfo)
        year, month, day = self._day_after(year, month, day)
        return datetime(year, month, day, self.hours[0], self.minutes[0], self.seconds[0], 0, timestamp.tzinfo)

    def before(self, timestamp: datetime) -> datetime:
        """The last time of the wall clock before *moment*, to the second."""
        year, month, day = timestamp.year, timestamp.month, timestamp.day
        time = None
        if self._has_month[month] and day in self.days_of(year, month):
            time = self._time_before(timestamp.hour, timestamp.minute, timestamp.second)
        if time is None:
            year, month, day = self._day_before(year, month, day)
            time = (self.hours[-1], self.minutes[-1], self.seconds[-1])
        return datetime(year, month, day, *time, tzinfo=timestamp.tzinfo)

    # -- the time of the day ---------------------------------------------------------------

    def _time_before(self, hour: int, minute: int, second: int) -> tuple[int, int, int] | None:
        if hour in self.hours:
            if minute in self.minutes:
                place = bisect_left(self.seconds, second)
                if place:
                    return hour, minute, self.seconds[place - 1]
            place = bisect_left(self.minutes, minute)
            if place:
                return hour, self.minutes[place - 1], self.seconds[-1]
        place = bisect_left(self.hours, hour)
        return (self.hours[place - 1], self.minutes[-1], self.seconds[-1]) if place else None

    # -- the day of the calendar -----------------------------------------------------------

    def _day_after(self, year: int, month: int, day: int) -> tuple[int, int, int]:
        if month in self.months:
            days = self.days_of(year, month)
            place = bisect_right(days, day)
            if place < len(days):
                return year, month, days[place]
        horizon = year + HORIZON
        while year <= horizon:
            later = self._next_month[month]
            year, month = (year + 1, self.months[0]) if later is None else (year, later)
            if days := self.days_of(year, month):
                return year, month, days[0]
        raise NeverFires(f"{self.expression!r} does not fire in the next {HORIZON} years")

    def _day_before(self, year: int, month: int, day: int) -> tuple[int, int, int]:
        if month in self.months:
            days = self.days_of(year, month)
            place = bisect_left(days, day)
            if place:
                return year, month, days[place - 1]
        for _ in range(HORIZON * 12):
            year, month = (year, month - 1) if month > 1 else (year - 1, 12)
            if month in self.months and (days := self.days_of(year, month)):
                return year, month, days[-1]
        raise NeverFires(f"{self.expression!r} has not fired for {HORIZON} years")

    def _find_days(self, first: int, length: int) -> tuple[int, ...]:
        return tuple(day for day in range(1, length + 1) if self._names(day, (first + day) % 7, length))

    def _names(self, day: int, weekday: int, length: int) -> bool:
        days = self.days
        by_number = day in days.numbers or (days.last and day == length)
        by_weekday = (
            weekday in days.weekdays
            or (weekday, (day + 6) // 7) in days.nth
            or (weekday in days.last_weekdays and day + 7 > length)
        )
        return by_number or by_weekday if days.either else by_number and by_weekday

    def _ever(self) -> bool:
        years = (2000 + n for n in range(HORIZON))
        return any(self.days_of(year, month) for year in years for month in self.months)


def _followers(values: Sequence[int], size: int) -> list[int | None]:
    """For each number, the first of *values* that is greater."""
    return [next((value for value in values if value > number), None) for number in range(size)]


# -- parsing -------------------------------------------------------------------------------


class _Word(NamedTuple):
    """A field as it was written, and at which character it begins."""

    text: str
    place: int


def _words(expression: str) -> list[_Word]:
    lowered = expression.strip().lower()
    spelt = MACROS.get(lowered, lowered)
    if spelt.startswith("@"):
        known = ", ".join(MACROS)
        raise InvalidExpression(f"{expression[:100]!r} is no schedule", hint=f"There are {known}.", position=0)
    words = [_Word(found.group(), found.start()) for found in re.finditer(r"\S+", spelt)]
    if len(words) not in (5, 6):
        raise InvalidExpression(
            f"{expression[:100]!r} has {len(words)} fields, not 5 or 6",
            hint="Write minute, hour, day, month and weekday: 30 6 * * mon-fri. With six, seconds come first.",
            position=0,
        )
    return words


def _values(field: _Field, word: _Word) -> tuple[int, ...]:
    """The values of a field, in their order."""
    found: set[int] = set()
    for part, place in _parts(word):
        found |= _range(field, part, place)
    return tuple(sorted(found))


def _parts(word: _Word) -> list[tuple[str, int]]:
    parts, place = [], word.place
    for part in word.text.split(","):
        parts.append((part, place))
        place += len(part) + 1
    return parts


def _range(field: _Field, part: str, place: int) -> set[int]:
    found = _PART.fullmatch(part)
    if found is None:
        raise _wrong(field, part, place)
    begin, end, step = found.groups()
    low = field.first if begin == "*" else _number(field, begin, place)
    high = field.last if begin == "*" or (step and end is None) else low if end is None else _number(field, end, place)
    if begin == "*" and field.last == 7:
        high = 6
    if end is not None and begin == "*":
        raise _wrong(field, part, place)
    every = 1 if step is None else int(step)
    if every == 0:
        raise InvalidExpression(f"a step of 0 in {part!r}", hint="A step is 1 or more.", position=place)
    if low > high:
        raise InvalidExpression(
            f"{part!r} runs backwards", hint=f"Write the smaller {field.name} first, or two ranges.", position=place
        )
    return {value % 7 if field.last == 7 else value for value in range(low, high + 1, every)}


def _number(field: _Field, text: str, place: int) -> int:
    if text in field.names:
        return field.names.index(text) + field.first
    if not text.isdecimal() or not field.first <= int(text) <= field.last:
        raise _wrong(field, text, place)
    return int(text)


def _wrong(field: _Field, text: str, place: int) -> InvalidExpression:
    names = f", or {field.names[0]} to {field.names[-1]}" if field.names else ""
    return InvalidExpression(
        f"{text[:100]!r} is no {field.name}", hint=f"It is {field.first} to {field.last}{names}.", position=place
    )


def _days(by_number: _Word, by_weekday: _Word) -> Days:
    numbers: set[int] = set()
    weekdays: set[int] = set()
    nth: set[tuple[int, int]] = set()
    lasts: set[int] = set()
    last = False
    for part, place in _parts(by_number):
        if part == "l":
            last = True
        else:
            numbers |= _range(FIELDS[2], part, place)
    for part, place in _parts(by_weekday):
        if found := _NTH.fullmatch(part):
            if not 1 <= int(found[2]) <= 5:
                raise InvalidExpression(f"no month has a {part!r}", hint="1#1 is the first Monday.", position=place)
            nth.add((_number(FIELDS[4], found[1], place) % 7, int(found[2])))
        elif found := _LAST.fullmatch(part):
            lasts.add(_number(FIELDS[4], found[1], place) % 7)
        else:
            weekdays |= _range(FIELDS[4], part, place)
    either = not by_number.text.startswith("*") and not by_weekday.text.startswith("*")
    return Days(frozenset(numbers), frozenset(weekdays), frozenset(nth), frozenset(lasts), last, either)
