"""Descriptions of schedules in plain English, and warnings about surprising expressions."""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from holdfast.domain.quantities import LAST_YEAR, format_duration
from holdfast.domain.schedules.cron import MACROS, Cron, Days
from holdfast.domain.schedules.definition import Schedule, Timing
from holdfast.domain.schedules.firing_times import MICROSECOND, Calendar, next_change, utc_offset

#: Up to this many times of a day are listed one by one.
MAX_LISTED = 6
ORDINALS = ("first", "second", "third", "fourth", "fifth")
_ALL_DAYS, _ALL_WEEKDAYS = frozenset(range(1, 32)), frozenset(range(7))


def explain(timing: Timing) -> str:
    """Describe when the schedule fires, in plain English."""
    rule = timing.rule()
    if not isinstance(rule, Calendar):
        phase = f", {format_duration(timing.phase)} after the beat" if timing.phase else ""
        return f"every {_length(timing.every or timedelta(0))}{phase}"
    parts = [_times(rule.cron), _days(rule.cron.days), _months(rule.cron)]
    return ", ".join(part for part in parts if part) + f" ({timing.tz})"


def lint(timing: Timing, now: datetime) -> list[str]:
    """Return warnings about an expression that may not do what its author meant."""
    rule = timing.rule()
    if not isinstance(rule, Calendar):
        return list(_uneven_interval(timing))
    expression = rule.cron.expression.lower()
    fields = MACROS.get(expression, expression).split()
    return [*_uneven_steps(fields), *_suspicious_fields(fields, rule.cron), *_clock_changes(rule, now)]


def upcoming(timing: Timing, after: datetime, count: int, *, fired: int = 0) -> list[datetime]:
    """Return the next *count* plans, or fewer if the schedule ends before. *fired* plans count towards its runs."""
    rule = timing.rule()
    times: list[datetime] = []
    instant = after if timing.start is None else max(after, timing.start - MICROSECOND)
    left = count if timing.runs is None else min(count, timing.runs - fired)
    while len(times) < left and instant.year <= LAST_YEAR:
        instant = rule.next_after(instant)
        if timing.end is not None and instant > timing.end:
            break
        times.append(instant)
    return times


def next_plans(schedule: Schedule, now: datetime, count: int) -> list[datetime]:
    """Return the next *count* undecided plans of a schedule, or fewer if its end or its runs do not allow more.

    A plan that waits for its delay is among them, although its time has passed.
    """
    definition = schedule.defined
    after = max(schedule.cursor, now - definition.delay)
    return upcoming(definition, after, count, fired=schedule.fired)


def _times(cron: Cron) -> str:
    times = _minutes_and_hours(cron)
    return times if cron.seconds == (0,) else f"{_beat(cron.seconds, 60, 'second')} of {times}"


def _minutes_and_hours(cron: Cron) -> str:
    minutes, hours = cron.minutes, cron.hours
    if len(minutes) * len(hours) <= MAX_LISTED:
        return "at " + _and([f"{hour:02}:{minute:02}" for hour in hours for minute in minutes])
    if len(hours) == 24:
        beat = _beat(minutes, 60, "minute")
        return "every hour" if minutes == (0,) else beat if beat.startswith("every") else f"{beat} of every hour"
    if minutes == (0,):
        beat = _beat(hours, 24, "hour")
        return beat if beat.startswith("every") else f"minute 0 of {beat}"
    return f"{_beat(minutes, 60, 'minute')} of {_beat(hours, 24, 'hour')}"


def _beat(values: Sequence[int], size: int, name: str) -> str:
    """Describe a rhythm: ``every 5 minutes``; or list the values."""
    if len(values) == size:
        return f"every {name}"
    step = values[1] - values[0] if len(values) > 1 else 0
    if step and values == tuple(range(0, size, step)) and size % step == 0:
        return f"every {step} {name}s"
    return f"{name} {_spans(values, str)}"


def _days(days: Days) -> str:
    by_number, by_weekday = _numbers(days), _weekdays(days)
    if by_number and by_weekday:
        return f"on {by_number} {'or' if days.either else 'if it is'} {by_weekday}"
    return f"on {by_number or by_weekday}" if by_number or by_weekday else ""


def _numbers(days: Days) -> str:
    if days.numbers == _ALL_DAYS:
        return ""
    names = [f"day {_spans(sorted(days.numbers), str)}"] if days.numbers else []
    if days.last:
        names.append("the last day")
    return f"{_and(names)} of the month"


def _weekdays(days: Days) -> str:
    if days.weekdays == _ALL_WEEKDAYS:
        return ""
    order = sorted((day + 6) % 7 for day in days.weekdays)
    names = [_spans(order, lambda day: calendar.day_name[day])] if order else []
    names += [f"the {ORDINALS[n - 1]} {_weekday(day)} of the month" for day, n in sorted(days.nth)]
    names += [f"the last {_weekday(day)} of the month" for day in sorted(days.last_weekdays)]
    return _and(names)


def _weekday(day: int) -> str:
    return calendar.day_name[(day + 6) % 7]


def _months(cron: Cron) -> str:
    return "" if len(cron.months) == 12 else f"in {_spans(cron.months, lambda month: calendar.month_name[month])}"


def _spans(values: Sequence[int], name: Callable[[int], str]) -> str:
    """List numbers, with runs of three and more joined: ``1, 5 to 9 and 12``."""
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    spans = ([f"{name(run[0])} to {name(run[-1])}"] if len(run) > 2 else map(name, run) for run in runs)
    return _and([each for span in spans for each in span])


def _and(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _length(every: timedelta) -> str:
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        count, rest = divmod(int(every.total_seconds()), size)
        if count and not rest:
            return unit if count == 1 else f"{count} {unit}s"
    return format_duration(every)


def _uneven_interval(timing: Timing) -> Iterator[str]:
    every = timing.every or timedelta(0)
    if every > timedelta(hours=1) and timedelta(days=1) % every and every % timedelta(days=1):
        yield (
            f"Every {_length(every)} comes at other times each day: it is counted from 1970, not from midnight. "
            "For the same times each day write a cron expression."
        )


def _uneven_steps(fields: Sequence[str]) -> Iterator[str]:
    names = ("second", "minute", "hour", "day", "month", "weekday")[-len(fields) :]
    sizes = {"second": 60, "minute": 60, "hour": 24}
    for name, field in zip(names, fields, strict=True):
        match = re.fullmatch(r"\*/(\d+)", field)
        if match is None or name not in sizes:
            continue
        step, size = int(match[1]), sizes[name]
        if step >= size:
            yield f"*/{step} in the {name}s is {name} 0 alone: there are only {size}. Try: every {step}{name[0]}."
        elif size % step:
            last = size - 1 - (size - 1) % step
            yield f"*/{step} in the {name}s is uneven: from {name} {last} to 0 it is only {size - last}."


def _suspicious_fields(fields: Sequence[str], cron: Cron) -> Iterator[str]:
    minute, hour, day, _, weekday = fields[-5:]
    if len(fields) == 6 and fields[0] == "*":
        yield "The first of six fields is seconds: this fires every second."
    if minute == "*" and not hour.startswith("*"):
        yield f"Minute * fires every minute of the hour. For once an hour write 0: 0 {hour} {day} …"
    if cron.days.either:
        yield "Day and weekday are both given: it fires when either of them holds."
    elif "*/" in f"{day} {weekday}" and "*" not in (day, weekday):
        yield "With a step in day or weekday, both must hold."
    yield from _short_months(cron)


def _short_months(cron: Cron) -> Iterator[str]:
    days = cron.days
    if days.weekdays != _ALL_WEEKDAYS or not days.numbers or days.numbers == _ALL_DAYS or min(days.numbers) < 29:
        return
    without = [month for month in cron.months if min(days.numbers) > calendar.monthrange(2024, month)[1]]
    if without:
        names = _spans(without, lambda month: calendar.month_name[month])
        yield f"It does not fire in {names}: there is no day {min(days.numbers)}. The last day of any month is L."
    elif 2 in cron.months and min(days.numbers) == 29:
        yield "29 February comes in leap years only. The last day of any month is L."


def _clock_changes(rule: Calendar, now: datetime) -> Iterator[str]:
    """Warn about times of day that a clock change skips or repeats."""
    if len(rule.cron.hours) == 24:
        return  # a rhythm through the whole day
    zone, instant = rule.zone, now
    skipped: set[str] = set()
    twice: set[str] = set()
    for _ in range(4):
        instant = next_change(zone, instant)
        before, after = (instant - timedelta(seconds=1)).astimezone(zone), instant.astimezone(zone)
        shift = utc_offset(after) - utc_offset(before)
        first = min(after.replace(tzinfo=None), after.replace(tzinfo=None) - shift)
        (skipped if shift > timedelta(0) else twice).update(_times_between(rule.cron, first, abs(shift)))
    if skipped:
        then = "it fires right after the gap" if rule.cron.fixed else "with a wildcard it does not fire then"
        yield f"When the clocks go forward, they skip {_some(skipped)}: {then}."
    if twice:
        then = "it fires once, on the first pass" if rule.cron.fixed else "with a wildcard it fires both times"
        yield f"When the clocks go back, they show {_some(twice)} twice: {then}."


def _some(times: set[str]) -> str:
    listed = sorted(times)
    return _and(listed) if len(listed) <= MAX_LISTED else f"{_and(listed[:MAX_LISTED])} and more"


def _times_between(cron: Cron, first: datetime, length: timedelta) -> Iterable[str]:
    if length <= timedelta(hours=3):
        walls = (first.replace(hour=hour, minute=minute, second=0) for hour in cron.hours for minute in cron.minutes)
        yield from (f"{wall:%H:%M}" for wall in walls if first <= wall < first + length)
