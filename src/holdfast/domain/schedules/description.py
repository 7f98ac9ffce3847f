"""Schedules in plain words, and what about them may surprise."""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from holdfast.domain.durations import format_duration
from holdfast.domain.schedules.cron import MACROS, Cron
from holdfast.domain.schedules.decision import Spec
from holdfast.domain.schedules.rule import LAST_YEAR, MICROSECOND, Calendar, Rule, next_change, zone_of

#: So many times of a day are told one by one.
FEW = 6
ORDINALS = ("first", "second", "third", "fourth", "fifth")
_ALL_DAYS, _ALL_WEEKDAYS = frozenset(range(1, 32)), frozenset(range(7))


def explain(spec: Spec) -> str:
    """When the schedule fires, in plain words."""
    rule = spec.rule()
    if not isinstance(rule, Calendar):
        phase = f", {format_duration(spec.phase)} after the beat" if spec.phase else ""
        return f"every {_length(spec.every or timedelta(0))}{phase}"
    parts = [_times(rule.cron), _days(rule.cron), _months(rule.cron)]
    return ", ".join(part for part in parts if part) + f" ({spec.tz})"


def lint(spec: Spec, now: datetime) -> list[str]:
    """What about the expression may not be meant: each finding in a sentence or two."""
    rule = spec.rule()
    if not isinstance(rule, Calendar):
        return list(_uneven_interval(spec))
    spelt = rule.cron.expression.lower()
    texts = MACROS.get(spelt, spelt).split()
    return [*_steps(texts), *_fields(texts, rule), *_clocks(rule, now)]


def upcoming(spec: Spec, after: datetime, count: int) -> list[datetime]:
    """The next *count* plans, as far as the schedule has any."""
    rule: Rule = spec.rule()
    found: list[datetime] = []
    instant = after if spec.start is None else max(after, spec.start - MICROSECOND)
    while len(found) < count and instant.year <= LAST_YEAR:
        instant = rule.next_after(instant)
        if spec.end is not None and instant > spec.end:
            break
        found.append(instant)
    return found


# -- words -----------------------------------------------------------------------------------


def _times(cron: Cron) -> str:
    if cron.seconds != (0,):
        return f"{_beat(cron.seconds, 60, 'second')} of {_clock(cron)}"
    return _clock(cron)


def _clock(cron: Cron) -> str:
    minutes, hours = cron.minutes, cron.hours
    if len(minutes) * len(hours) <= FEW:
        return "at " + _and([f"{hour:02}:{minute:02}" for hour in hours for minute in minutes])
    if len(hours) == 24:
        beat = _beat(minutes, 60, "minute")
        return "every hour" if minutes == (0,) else beat if beat.startswith("every") else f"{beat} of every hour"
    if minutes == (0,):
        beat = _beat(hours, 24, "hour")
        return beat if beat.startswith("every") else f"minute 0 of {beat}"
    return f"{_beat(minutes, 60, 'minute')} of {_beat(hours, 24, 'hour')}"


def _beat(values: Sequence[int], size: int, name: str) -> str:
    """``every 5 minutes``, or the values."""
    if len(values) == size:
        return f"every {name}"
    step = values[1] - values[0] if len(values) > 1 else 0
    if step and values == tuple(range(0, size, step)) and size % step == 0:
        return f"every {step} {name}s"
    return f"{name} {_spans(values, str)}"


def _days(cron: Cron) -> str:
    days = cron.days
    by_number, by_weekday = _numbers(cron), _weekdays(cron)
    if by_number and by_weekday:
        return f"on {by_number} {'or' if days.either else 'if it is'} {by_weekday}"
    return f"on {by_number or by_weekday}" if by_number or by_weekday else ""


def _numbers(cron: Cron) -> str:
    days = cron.days
    if days.numbers == _ALL_DAYS:
        return ""
    found = [f"day {_spans(sorted(days.numbers), str)}"] if days.numbers else []
    if days.last:
        found.append("the last day")
    return f"{_and(found)} of the month"


def _weekdays(cron: Cron) -> str:
    days = cron.days
    if days.weekdays == _ALL_WEEKDAYS:
        return ""
    order = sorted((day + 6) % 7 for day in days.weekdays)
    found = [_spans(order, lambda day: calendar.day_name[day])] if order else []
    found += [f"the {ORDINALS[n - 1]} {_weekday(day)} of the month" for day, n in sorted(days.nth)]
    found += [f"the last {_weekday(day)} of the month" for day in sorted(days.last_weekdays)]
    return _and(found)


def _weekday(day: int) -> str:
    return calendar.day_name[(day + 6) % 7]


def _months(cron: Cron) -> str:
    return "" if len(cron.months) == 12 else f"in {_spans(cron.months, lambda month: calendar.month_name[month])}"


def _spans(values: Sequence[int], say: Callable[[int], str]) -> str:
    """Numbers with runs of three and more drawn together: ``1, 5 to 9 and 12``."""
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    words: list[str] = []
    for run in runs:
        words += [f"{say(run[0])} to {say(run[-1])}"] if len(run) > 2 else [say(value) for value in run]
    return _and(words)


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _length(every: timedelta) -> str:
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        count, rest = divmod(int(every.total_seconds()), size)
        if count and not rest:
            return unit if count == 1 else f"{count} {unit}s"
    return format_duration(every)


# -- surprises -------------------------------------------------------------------------------


def _uneven_interval(spec: Spec) -> Iterator[str]:
    every = spec.every or timedelta(0)
    if every > timedelta(hours=1) and timedelta(days=1) % every and every % timedelta(days=1):
        yield (
            f"Every {_length(every)} comes at other times each day: it is counted from 1970, not from midnight. "
            "For the same times each day write a cron expression."
        )


def _steps(texts: Sequence[str]) -> Iterator[str]:
    names = ("second", "minute", "hour", "day", "month", "weekday")[-len(texts) :]
    sizes = {"second": 60, "minute": 60, "hour": 24}
    for name, text in zip(names, texts, strict=True):
        found = re.fullmatch(r"\*/(\d+)", text)
        if found is None or name not in sizes:
            continue
        step, size = int(found[1]), sizes[name]
        if step >= size:
            yield f"*/{step} in the {name}s is {name} 0 alone: there are only {size}. Try: every {step}{name[0]}."
        elif size % step:
            last = size - 1 - (size - 1) % step
            yield f"*/{step} in the {name}s is uneven: from {name} {last} to 0 it is only {size - last}."


def _fields(texts: Sequence[str], rule: Calendar) -> Iterator[str]:
    cron = rule.cron
    minute, hour, day, _, weekday = texts[-5:]
    if len(texts) == 6 and texts[0] == "*":
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


def _clocks(rule: Calendar, now: datetime) -> Iterator[str]:
    """Times of the wall clock that a change of the clocks skips, or brings twice."""
    if len(rule.cron.hours) == 24:
        return  # a rhythm through the whole day
    zone, instant = zone_of(rule.zone.key), now
    skipped: set[str] = set()
    twice: set[str] = set()
    for _ in range(4):
        instant = next_change(zone, instant)
        before = (instant - timedelta(seconds=1)).astimezone(zone)
        after = instant.astimezone(zone)
        shift = (after.utcoffset() or timedelta(0)) - (before.utcoffset() or timedelta(0))
        first = min(after.replace(tzinfo=None), after.replace(tzinfo=None) - shift)
        times = set(_times_between(rule.cron, first, abs(shift)))
        (skipped if shift > timedelta(0) else twice).update(times)
    once = rule.cron.fixed
    if skipped:
        then = "it fires right after the gap" if once else "with a wildcard it does not fire then"
        yield f"When the clocks go forward, they leave out {_some(skipped)}: {then}."
    if twice:
        then = "it fires once, on the first pass" if once else "with a wildcard it fires both times"
        yield f"When the clocks go back, they show {_some(twice)} twice: {then}."


def _some(times: set[str]) -> str:
    found = sorted(times)
    return _and(found) if len(found) <= FEW else f"{_and(found[:FEW])} and more"


def _times_between(cron: Cron, first: datetime, length: timedelta) -> Iterable[str]:
    if length > timedelta(hours=3):
        return
    for hour in cron.hours:
        for minute in cron.minutes:
            wall = first.replace(hour=hour, minute=minute, second=0)
            if first <= wall < first + length:
                yield f"{hour:02}:{minute:02}"
