"""Cron expressions, compiled to the seconds, minutes, hours and days that they name.

An expression has five fields (minute, hour, day of the month, month, day of the week), or six with seconds first.
Fields accept names, ranges, steps, ``L`` (the last day), ``5L`` (the last Friday) and ``1#2`` (the second Monday).
Macros such as ``@daily`` are accepted too. This module knows only the wall clock;
:mod:`holdfast.domain.schedules.firing_times` adds time zones.
"""

from __future__ import annotations

import calendar
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
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
MONTH_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
#: Within this many years, every date of the calendar falls on every day of the week.
HORIZON_YEARS = 41


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
    """The days of a month that an expression names. Weekdays count from 0, Sunday; *nth* holds (weekday, n)."""

    numbers: frozenset[int]
    weekdays: frozenset[int]
    nth: frozenset[tuple[int, int]]
    last_weekdays: frozenset[int]
    last: bool
    #: True if both day fields are restricted: then a day matches when either field names it, otherwise when both do.
    either: bool


class Cron:
    """A compiled expression. Its timestamps show the wall clock; their tzinfo is passed through unchanged."""

    def __init__(self, expression: str) -> None:
        self.expression = expression
        fields = _split_fields(expression)
        self.seconds = _values(SECOND, fields[0]) if len(fields) == 6 else (0,)
        fields = fields[-5:]
        self.minutes = _values(FIELDS[0], fields[0])
        self.hours = _values(FIELDS[1], fields[1])
        self.months = _values(FIELDS[3], fields[3])
        self.days = _days(fields[2], fields[4])
        #: True if neither minute nor hour is a wildcard: it names a time of day, not a rhythm.
        self.fixed = not fields[0][0].startswith("*") and not fields[1][0].startswith("*")
        self._next_second, self._next_minute = _followers(self.seconds, 60), _followers(self.minutes, 60)
        self._next_hour, self._next_month = _followers(self.hours, 24), _followers(self.months, 13)
        self._has_minute = [minute in self.minutes for minute in range(60)]
        self._has_hour = [hour in self.hours for hour in range(24)]
        self._has_month = [month in self.months for month in range(13)]
        #: The matching days of a month, by the weekday of its first day and by its length.
        self._days_by_shape = {
            (first, length): tuple(day for day in range(1, length + 1) if self._matches(day, (first + day) % 7, length))
            for first in range(7)
            for length in (28, 29, 30, 31)
        }
        self._days_by_month: dict[tuple[int, int], tuple[int, ...]] = {}
        if not any(self.days_of(2000 + n, month) for n in range(HORIZON_YEARS) for month in self.months):
            raise NeverFires(f"{expression[:100]!r} never fires: there is no such day")

    def days_of(self, year: int, month: int) -> tuple[int, ...]:
        """Return the matching days of a month, in order."""
        days = self._days_by_month.get((year, month))
        if days is None:
            length = MONTH_LENGTHS[month] if month != 2 or not calendar.isleap(year) else 29
            days = self._days_by_month[year, month] = self._days_by_shape[date(year, month, 1).weekday(), length]
        return days

    def after(self, timestamp: datetime) -> datetime:
        """Return the first matching time after *timestamp*."""
        year, month, day = timestamp.year, timestamp.month, timestamp.day
        hour, minute = timestamp.hour, timestamp.minute
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
        """Return the last matching time before *timestamp*, to the second."""
        year, month, day = timestamp.year, timestamp.month, timestamp.day
        matches = self._has_month[month] and day in self.days_of(year, month)
        time = self._time_before(timestamp.hour, timestamp.minute, timestamp.second) if matches else None
        if time is None:
            year, month, day = self._day_before(year, month, day)
            time = (self.hours[-1], self.minutes[-1], self.seconds[-1])
        return datetime(year, month, day, *time, tzinfo=timestamp.tzinfo)

    def _time_before(self, hour: int, minute: int, second: int) -> tuple[int, int, int] | None:
        if hour in self.hours:
            if minute in self.minutes and (index := bisect_left(self.seconds, second)):
                return hour, minute, self.seconds[index - 1]
            if index := bisect_left(self.minutes, minute):
                return hour, self.minutes[index - 1], self.seconds[-1]
        index = bisect_left(self.hours, hour)
        return (self.hours[index - 1], self.minutes[-1], self.seconds[-1]) if index else None

    def _day_after(self, year: int, month: int, day: int) -> tuple[int, int, int]:
        if month in self.months:
            days = self.days_of(year, month)
            if (index := bisect_right(days, day)) < len(days):
                return year, month, days[index]
        horizon = year + HORIZON_YEARS
        while year <= horizon:
            later = self._next_month[month]
            year, month = (year + 1, self.months[0]) if later is None else (year, later)
            if days := self.days_of(year, month):
                return year, month, days[0]
        raise NeverFires(f"{self.expression!r} does not fire in the next {HORIZON_YEARS} years")

    def _day_before(self, year: int, month: int, day: int) -> tuple[int, int, int]:
        if month in self.months:
            days = self.days_of(year, month)
            if index := bisect_left(days, day):
                return year, month, days[index - 1]
        for _ in range(HORIZON_YEARS * 12):
            year, month = (year, month - 1) if month > 1 else (year - 1, 12)
            if month in self.months and (days := self.days_of(year, month)):
                return year, month, days[-1]
        raise NeverFires(f"{self.expression!r} has not fired for {HORIZON_YEARS} years")

    def _matches(self, day: int, weekday: int, length: int) -> bool:
        days = self.days
        by_number = day in days.numbers or (days.last and day == length)
        by_weekday = weekday in days.weekdays or (weekday, (day + 6) // 7) in days.nth
        by_weekday = by_weekday or (weekday in days.last_weekdays and day + 7 > length)
        return by_number or by_weekday if days.either else by_number and by_weekday


def _followers(values: Sequence[int], size: int) -> list[int | None]:
    """Return, for each number below *size*, the first greater one of *values*."""
    return [next((value for value in values if value > number), None) for number in range(size)]


def _split_fields(expression: str) -> list[re.Match[str]]:
    lowered = expression.strip().lower()
    expanded = MACROS.get(lowered, lowered)
    if expanded.startswith("@"):
        hint = f"There are {', '.join(MACROS)}."
        raise InvalidExpression(f"{expression[:100]!r} is not a valid schedule", hint=hint, position=0)
    fields = list(re.finditer(r"\S+", expanded))
    if len(fields) not in (5, 6):
        hint = "Write minute, hour, day, month and weekday: 30 6 * * mon-fri. With six, seconds come first."
        raise InvalidExpression(f"{expression[:100]!r} has {len(fields)} fields, not 5 or 6", hint=hint, position=0)
    return fields


def _values(field: _Field, written: re.Match[str]) -> tuple[int, ...]:
    return tuple(sorted({value for part, position in _parts(written) for value in _range(field, part, position)}))


def _parts(written: re.Match[str]) -> Iterator[tuple[str, int]]:
    """Yield the comma-separated parts of a field, each with its position."""
    position = written.start()
    for part in written[0].split(","):
        yield part, position
        position += len(part) + 1


def _range(field: _Field, part: str, position: int) -> set[int]:
    """Return the values of one part of a field; both 0 and 7 are Sunday."""
    match = _PART.fullmatch(part)
    if match is None or (match[1] == "*" and match[2] is not None):
        raise _invalid(field, part, position)
    begin, end, step = match.groups()
    low = field.first if begin == "*" else _number(field, begin, position)
    if begin == "*":
        high = 6 if field.last == 7 else field.last
    elif end is None:
        high = field.last if step else low
    else:
        high = _number(field, end, position)
    stride = 1 if step is None else int(step)
    if stride == 0:
        raise InvalidExpression(f"a step of 0 in {part!r}", hint="A step is 1 or more.", position=position)
    if low > high:
        hint = f"Write the smaller {field.name} first, or two ranges."
        raise InvalidExpression(f"{part!r} runs backwards", hint=hint, position=position)
    return {value % 7 if field.last == 7 else value for value in range(low, high + 1, stride)}


def _number(field: _Field, text: str, position: int) -> int:
    if text in field.names:
        return field.names.index(text) + field.first
    if not text.isdecimal() or not field.first <= int(text) <= field.last:
        raise _invalid(field, text, position)
    return int(text)


def _invalid(field: _Field, text: str, position: int) -> InvalidExpression:
    names = f", or {field.names[0]} to {field.names[-1]}" if field.names else ""
    hint = f"It is {field.first} to {field.last}{names}."
    return InvalidExpression(f"{text[:100]!r} is not a valid {field.name}", hint=hint, position=position)


def _days(by_number: re.Match[str], by_weekday: re.Match[str]) -> Days:
    days = [each for each in _parts(by_number) if each[0] != "l"]
    numbers = {day for part, position in days for day in _range(FIELDS[2], part, position)}
    weekdays: set[int] = set()
    last_weekdays: set[int] = set()
    nth: set[tuple[int, int]] = set()
    for part, position in _parts(by_weekday):
        if match := _NTH.fullmatch(part):
            if not 1 <= int(match[2]) <= 5:
                raise InvalidExpression(f"no month has a {part!r}", hint="1#1 is the first Monday.", position=position)
            nth.add((_number(FIELDS[4], match[1], position) % 7, int(match[2])))
        elif match := _LAST.fullmatch(part):
            last_weekdays.add(_number(FIELDS[4], match[1], position) % 7)
        else:
            weekdays |= _range(FIELDS[4], part, position)
    last = "l" in by_number[0].split(",")
    either = not by_number[0].startswith("*") and not by_weekday[0].startswith("*")
    return Days(frozenset(numbers), frozenset(weekdays), frozenset(nth), frozenset(last_weekdays), last, either)
