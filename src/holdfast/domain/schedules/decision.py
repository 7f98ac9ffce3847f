"""Schedules: which plans are due, which of them fire, and which are skipped, and why."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from itertools import islice
from typing import Any

from msgspec import Struct

from holdfast.domain.durations import parse_duration
from holdfast.domain.schedules.plan import Overlap
from holdfast.domain.schedules.rule import MICROSECOND, Calendar, Interval, Rule, between, checked_timestamp
from holdfast.errors import InvalidExpression, InvalidInput, NeverFires

WINDOW = timedelta(hours=24)
#: The longest of each.
LONGEST = {"window": timedelta(days=366), "delay": timedelta(days=31), "jitter": timedelta(days=1)}
#: So many plans of one schedule are decided in one go; the rest waits for the next.
CAP = 100
#: Without catching up, a plan that is older than this is not fired: nobody was there when it was due.
LATE = timedelta(seconds=60)
#: Longer stretches of plans are not counted one by one.
COUNTED = 10_000


class CatchUp(StrEnum):
    """What becomes of plans that were due while nobody planned: none, the newest, or every one is fired."""

    NONE = "none"
    LATEST = "latest"
    EVERY = "every"


class Spec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a schedule fires. Either a cron expression in a zone, or an interval on the grid of the epoch.

    After *runs* plans it is over.
    """

    cron: str | None = None
    tz: str = "UTC"
    every: timedelta | None = None
    phase: timedelta = timedelta(0)
    catch_up: CatchUp = CatchUp.LATEST
    window: timedelta = WINDOW
    overlap: Overlap | None = None
    delay: timedelta = timedelta(0)
    jitter: timedelta = timedelta(0)
    start: datetime | None = None
    end: datetime | None = None
    runs: int | None = None

    def __post_init__(self) -> None:
        if (self.cron is None) == (self.every is None):
            raise InvalidExpression("a schedule is a cron expression or an interval", position=0)
        for name, longest in LONGEST.items():
            if not timedelta(0) <= getattr(self, name) <= longest:
                raise InvalidInput(f"a {name} takes at most {longest.days} days, not {getattr(self, name)}")
        for timestamp in (self.start, self.end):
            if timestamp is not None:
                checked_timestamp(timestamp)
        if self.start is not None and self.end is not None and self.end <= self.start:
            raise InvalidInput("a schedule ends after it starts")
        if self.runs is not None and not 1 <= self.runs < 2**31:
            raise InvalidInput(f"a schedule runs at least once, not {self.runs} times")

    @property
    def expression(self) -> str:
        """The rule as people write it."""
        if self.cron is not None:
            return self.cron
        assert self.every is not None
        return f"every {say_exactly(self.every)}"

    @property
    def overlaps(self) -> Overlap:
        """With ``every``, no plan is lost to another that takes long."""
        if self.overlap is not None:
            return self.overlap
        return Overlap.QUEUE_ALL if self.catch_up is CatchUp.EVERY else Overlap.SKIP

    def rule(self) -> Rule:
        """The rule, compiled.

        Raises:
            InvalidExpression: It cannot be read.
            UnknownZone: There is no such time zone.
            NeverFires: It names no day of the calendar.
        """
        return Interval(self.every, self.phase) if self.every is not None else _calendar(self.cron or "", self.tz)


@lru_cache(maxsize=10_000)
def _calendar(expression: str, zone: str) -> Calendar:
    """Compiled once: many schedules share their rule, and each is asked again and again."""
    return Calendar(expression, zone)


def spec_of(expression: str, **options: Any) -> Spec:
    """The spec of an expression as people write it: ``*/5 * * * *``, ``@daily``, or ``every 90s``.

    Raises:
        InvalidExpression: It cannot be read.
        UnknownZone: There is no such time zone.
        NeverFires: It names no day of the calendar.
        InvalidInput: An option makes no sense.
    """
    if not isinstance(expression, str) or not isinstance(options.get("tz", ""), str):
        raise InvalidExpression(f"an expression and its zone are texts, not {expression!r}", position=0)
    word, _, rest = expression.strip().partition(" ")
    every = _every(rest) if word.lower() == "every" else None
    if every is not None and options.get("tz", "UTC") != "UTC":
        raise InvalidInput("a time zone belongs to a cron expression", hint="An interval is counted in UTC.")
    if every is None and options.get("phase"):
        raise InvalidInput("a phase belongs to an interval", hint="Write the expression as: every 5m.")
    spec = Spec(cron=expression.strip(), **options) if every is None else Spec(every=every, **options)
    rule = spec.rule()
    if spec.start is not None and spec.end is not None and rule.next_after(spec.start - MICROSECOND) > spec.end:
        raise NeverFires(f"{expression[:100]!r} has no plan between its start and its end", hint="Take a later end.")
    return spec


def _every(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except InvalidInput as error:
        raise InvalidExpression(error.message, hint="Write it like: every 5m.", position=6) from None


def say_exactly(duration: timedelta) -> str:
    """A duration as it can be read again: ``1h30m``."""
    left, parts = int(duration.total_seconds()), ""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if left >= size:
            parts += f"{left // size}{unit}"
            left %= size
    return parts or "0s"


class SkipReason(StrEnum):
    """Why plans were not fired."""

    CATCH_UP = "catch_up"
    WINDOW = "window"
    LATE = "late"
    OVERLAP = "overlap"
    PAUSED = "paused"
    EDITED = "edited"
    SCOPE = "scope"


class Skipped(Struct, frozen=True):
    """A stretch of plans that were not fired, both ends included; *count* stops at a limit. No scope: in none."""

    first: datetime
    last: datetime
    count: int
    reason: SkipReason
    scope: str = ""


class ScheduleDecision(Struct, frozen=True):
    """What is to be done: plans to fire, the oldest first, stretches to skip, and where the cursor goes."""

    fire: Sequence[datetime]
    skip: Sequence[Skipped]
    cursor: datetime
    next_at: datetime | None


def decide(
    spec: Spec, rule: Rule, cursor: datetime | None, now: datetime, *, fired: int = 0, cap: int = CAP
) -> ScheduleDecision:
    """Decide on the plans after *cursor* that are due; the plan's own time is never changed by delay or jitter.

    Without a cursor there is no history: only the newest due plan counts. The cursor never goes back, so a clock
    that does replays nothing. *fired* have been before: once they are as many as the spec has runs, it is over.
    """
    left = cap if spec.runs is None else min(cap, spec.runs - fired)
    if left <= 0:
        return ScheduleDecision((), (), now if cursor is None else cursor, None)
    due = now - spec.delay
    known = cursor if cursor is not None else rule.previous_before(due + MICROSECOND) - MICROSECOND
    since = known if spec.start is None else max(known, spec.start - MICROSECOND)
    until = due if spec.end is None else min(due, spec.end)
    if until <= since:
        return ScheduleDecision((), (), known, next_after(spec, rule, known))
    fire, skip, reached = _chosen(spec, rule, since, until, left)
    return ScheduleDecision(fire, skip, reached, next_after(spec, rule, reached))


def next_after(spec: Spec, rule: Rule, cursor: datetime) -> datetime | None:
    """When the next plan is to be decided on: its time and its delay; None: there is none any more."""
    found = rule.next_after(cursor if spec.start is None else max(cursor, spec.start - MICROSECOND))
    return None if spec.end is not None and found > spec.end else found + spec.delay


def _chosen(
    spec: Spec, rule: Rule, known: datetime, until: datetime, cap: int
) -> tuple[list[datetime], list[Skipped], datetime]:
    first = rule.next_after(known)
    if first > until:
        return [], [], known
    if spec.catch_up is not CatchUp.EVERY or not spec.window:
        alone = rule.next_after(first) > until
        newest = first if alone else rule.previous_before(until + MICROSECOND)
        late = spec.catch_up is CatchUp.NONE and newest < until - LATE
        reason = SkipReason.LATE if spec.catch_up is CatchUp.NONE else SkipReason.CATCH_UP
        if alone and not late:
            return [newest], [], newest
        last = newest if late else rule.previous_before(newest)
        return [] if late else [newest], _stretch(rule, known, last, reason), newest
    oldest = max(known, until - spec.window - MICROSECOND)
    skip = _stretch(rule, known, rule.previous_before(oldest + MICROSECOND), SkipReason.WINDOW)
    fire = list(islice(between(rule, oldest, until), cap))
    return fire, skip, fire[-1] if fire else oldest


def _stretch(rule: Rule, known: datetime, last: datetime, reason: SkipReason) -> list[Skipped]:
    """The plans after *known*, up to *last*."""
    if last <= known:
        return []
    first = rule.next_after(known)
    if first > last:
        return []
    last = rule.previous_before(last + MICROSECOND)
    return [Skipped(first, last, sum(1 for _ in islice(between(rule, known, last), COUNTED)), reason)]


def passed_over(spec: Spec, cursor: datetime | None, now: datetime, reason: SkipReason) -> list[Skipped]:
    """The plans between the cursor and now that nobody will fire, since a person has changed or paused the rule."""
    if cursor is None:
        return []
    since, until = within(spec, cursor + MICROSECOND, now)
    return _stretch(spec.rule(), since - MICROSECOND, until, reason)


def within(spec: Spec, first: datetime, last: datetime) -> tuple[datetime, datetime]:
    """The part of a stretch in which the schedule has plans."""
    return (
        first if spec.start is None else max(first, spec.start),
        last if spec.end is None else min(last, spec.end),
    )


def backfilled(spec: Spec, first: datetime, last: datetime, *, limit: int = COUNTED) -> list[datetime]:
    """The plans of a stretch of the past, both ends included, for a person who asks for them."""
    if last < first:
        raise InvalidInput("a backfill ends after it begins")
    since, until = within(spec, first, last)
    found = list(islice(between(spec.rule(), since - MICROSECOND, until), limit + 1))
    if len(found) > limit:
        raise InvalidInput(f"a backfill of more than {limit:,} plans", hint="Do it in parts.")
    return found
