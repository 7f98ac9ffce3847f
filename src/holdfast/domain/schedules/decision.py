"""Decisions: which plans of a schedule fire, which are skipped and why, and where its cursor moves."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import dropwhile, groupby, islice

from msgspec import Struct

from holdfast.domain.schedules.definition import CatchUp, Condition, Definition, Schedule, Timing
from holdfast.domain.schedules.firing_times import MICROSECOND, Rule, between
from holdfast.errors import HoldfastError, InvalidInput

#: The most plan times of one schedule that are decided at once; the next tick continues.
MAX_TIMES = 2000
#: With ``catch_up=none``, a plan that is older than this does not fire.
LATE_AFTER = timedelta(seconds=60)
#: Skipped plans are counted up to here. A larger count is stored as one more, and means "more than this".
MAX_COUNTED = 10_000
#: The delays before a schedule that failed is planned again; the last one repeats.
RETRY_DELAYS = tuple(timedelta(seconds=seconds) for seconds in (5, 15, 60, 300, 900))


class SkipReason(StrEnum):
    """Why plans were not fired."""

    CATCH_UP = "catch_up"
    WINDOW = "window"
    LATE = "late"
    OVERLAP = "overlap"
    BACKLOG = "backlog"
    PAUSED = "paused"
    EDITED = "edited"
    SCOPE = "scope"


class Skipped(Struct, frozen=True, gc=False):
    """A span of plans that were not fired, both ends included. An empty scope stands for all scopes."""

    first: datetime
    last: datetime
    count: int
    reason: SkipReason
    scope: str = ""


class ScheduleDecision(Struct, frozen=True, gc=False):
    """The plans to fire, oldest first, the spans to skip, and the new cursor."""

    fire: Sequence[datetime]
    skip: Sequence[Skipped]
    cursor: datetime
    next_at: datetime | None


def first_cursor(timing: Timing, now: datetime) -> datetime:
    """Return the cursor of a new schedule: its first plan is at its creation or later, or after a start in the past."""
    return (now if timing.start is None else min(now, timing.start)) - MICROSECOND


def decide(
    timing: Timing, rule: Rule, cursor: datetime, now: datetime, *, fired: int = 0, cap: int = MAX_TIMES
) -> ScheduleDecision:
    """Decide on the plans after *cursor* that are due. Delay and jitter never change a plan's own time.

    The cursor never moves back, so a clock that is set back replays nothing. *fired* plans count towards the runs of
    the schedule.
    """
    left = cap if timing.runs is None else min(cap, timing.runs - fired)
    if left <= 0:
        return ScheduleDecision((), (), cursor, None)
    due = now - timing.delay
    since = cursor if timing.start is None else max(cursor, timing.start - MICROSECOND)
    until = due if timing.end is None else min(due, timing.end)
    if until <= since:
        return ScheduleDecision((), (), cursor, next_after(timing, rule, cursor))
    if (first := rule.next_after(since)) > until:
        return ScheduleDecision((), (), since, _due_at(timing, first))
    if timing.catch_up is CatchUp.EVERY and timing.window:
        fire, skip, reached = _choose_every(timing, rule, since, until, due=due, cap=left)
        return ScheduleDecision(fire, skip, reached, _due_at(timing, rule.next_after(reached)))
    following = rule.next_after(first)
    if following > until and (timing.catch_up is not CatchUp.NONE or first >= due - LATE_AFTER):
        return ScheduleDecision((first,), (), first, _due_at(timing, following))  # by far the most frequent
    fire, skip, reached = _choose_newest(timing, rule, since, until, due=due)
    return ScheduleDecision(fire, skip, reached, _due_at(timing, rule.next_after(reached)))


def next_after(timing: Timing, rule: Rule, cursor: datetime) -> datetime | None:
    """Return when the next plan after *cursor* is due, including its delay; None: there is none."""
    return _due_at(timing, rule.next_after(cursor if timing.start is None else max(cursor, timing.start - MICROSECOND)))


def _due_at(timing: Timing, time: datetime) -> datetime | None:
    """Return when the plan of *time* is due; None: the schedule ends before it."""
    return None if timing.end is not None and time > timing.end else time + timing.delay


def _choose_every(
    timing: Timing, rule: Rule, known: datetime, until: datetime, *, due: datetime, cap: int
) -> tuple[list[datetime], list[Skipped], datetime]:
    """Choose the plans after *known* up to *until*. Their age counts from *due*, which may be after the end."""
    oldest = max(known, min(until, due - timing.window - MICROSECOND))
    fire = list(islice(between(rule, oldest, until), cap))
    return fire, _skipped_span(rule, known, oldest, SkipReason.WINDOW), fire[-1] if fire else oldest


def _choose_newest(
    timing: Timing, rule: Rule, known: datetime, until: datetime, *, due: datetime
) -> tuple[list[datetime], list[Skipped], datetime]:
    """Choose the last plan up to *until*, unless it is late."""
    newest = rule.previous_before(until + MICROSECOND)
    late = timing.catch_up is CatchUp.NONE and newest < due - LATE_AFTER
    reason = SkipReason.LATE if timing.catch_up is CatchUp.NONE else SkipReason.CATCH_UP
    last = newest if late else rule.previous_before(newest)
    return [] if late else [newest], _skipped_span(rule, known, last, reason), newest


def _skipped_span(rule: Rule, known: datetime, last: datetime, reason: SkipReason) -> list[Skipped]:
    """Return the plans after *known*, up to *last*, as at most one span."""
    if last <= known or (first := rule.next_after(known)) > last:
        return []
    last = rule.previous_before(last + MICROSECOND)
    return [Skipped(first, last, sum(1 for _ in islice(between(rule, known, last), MAX_COUNTED + 1)), reason)]


def format_count(count: int) -> str:
    """Format the number of skipped plans for people: ``10,000+`` if there are more."""
    return f"{min(count, MAX_COUNTED):,}{'+' if count > MAX_COUNTED else ''}"


def backfilled(timing: Timing, first: datetime, last: datetime, *, limit: int = MAX_COUNTED) -> list[datetime]:
    """Return the plans of a span of the past, both ends included."""
    if last < first:
        raise InvalidInput("a backfill ends after it begins")
    since, until = _clip(timing, first, last)
    times = list(islice(between(timing.rule(), since - MICROSECOND, until), limit + 1))
    if len(times) > limit:
        raise InvalidInput(f"a backfill of more than {limit:,} plans", hint="Do it in parts.")
    return times


def _clip(timing: Timing, first: datetime, last: datetime) -> tuple[datetime, datetime]:
    """Return the part of a span between the start and the end of the schedule."""
    since = first if timing.start is None else max(first, timing.start)
    return since, last if timing.end is None else min(last, timing.end)


# -- changes by people -----------------------------------------------------------------------


class CursorMove(Struct, frozen=True):
    """Where a schedule continues after a person changed it, and the plans that this skips."""

    cursor: datetime
    next_at: datetime | None
    skipped: Sequence[Skipped] = ()


#: A change of any of these fields makes another rule: its past is not replayed.
_RULE_FIELDS = ("cron", "tz", "every", "phase", "start", "end", "catch_up", "window")


def move_after_edit(schedule: Schedule, definition: Definition, now: datetime) -> CursorMove:
    """Return where a schedule continues with a new definition: from now, if its rule changed or it was over."""
    try:
        old = schedule.defined
        old.rule()
    except HoldfastError:  # its time zone is gone, or code of another version wrote it
        return CursorMove(now, _next_at(definition, now, schedule.fired))
    same = all(getattr(old, name) == getattr(definition, name) for name in _RULE_FIELDS)
    if same and schedule.condition is not Condition.OVER:
        return CursorMove(schedule.cursor, _next_at(definition, schedule.cursor, schedule.fired))
    return _move_to_now(schedule, definition, now, SkipReason.EDITED)


def move_after_resume(schedule: Schedule, now: datetime) -> CursorMove | None:
    """Return where a paused schedule continues: from now. None: it is not paused.

    A cursor that is ahead of the clock moves back to it.
    """
    if not schedule.paused and schedule.cursor <= now:
        return None
    return _move_to_now(schedule, schedule.defined, now, SkipReason.PAUSED)


def _move_to_now(schedule: Schedule, new: Timing, now: datetime, reason: SkipReason) -> CursorMove:
    """Skip the plans that are due by now. A plan that waits for its delay stays, if the new rule has it as well.

    It does not stay if a plan that only the new rule has is due by now, and later: that one would fire too.
    """
    old = schedule.defined
    if schedule.cursor > now:
        return CursorMove(now, _next_at(new, now, schedule.fired))
    rule = old.rule()
    since, until = _clip(old, schedule.cursor + MICROSECOND, now)
    begun = max(since, now - old.delay + MICROSECOND)
    waiting = list(islice(between(rule, begun - MICROSECOND, until), MAX_COUNTED))
    past, known = new.rule().previous_before(_clip(new, since, now - new.delay)[1] + MICROSECOND), set(waiting)
    while past in known:
        past = new.rule().previous_before(past)
    kept = list(dropwhile(lambda time: time < past or not _has_plan(new, time), waiting))
    if not kept:
        skipped = _skipped_span(rule, since - MICROSECOND, until, reason)
        return CursorMove(now, _next_at(new, now, schedule.fired), skipped)
    cursor = kept[0] - MICROSECOND
    skipped = _skipped_span(rule, since - MICROSECOND, cursor, reason)
    skipped += _gaps(kept, new, reason)
    return CursorMove(cursor, _next_at(new, cursor, schedule.fired), skipped)


def _has_plan(timing: Timing, time: datetime) -> bool:
    first, last = _clip(timing, time, time)
    return first <= last and timing.rule().next_after(time - MICROSECOND) == time


def _gaps(times: Sequence[datetime], timing: Timing, reason: SkipReason) -> list[Skipped]:
    """Return the spans of *times* that are not plans of *timing*."""
    spans = [list(span) for has, span in groupby(times, lambda time: _has_plan(timing, time)) if not has]
    return [Skipped(span[0], span[-1], len(span), reason) for span in spans]


def _next_at(timing: Timing, cursor: datetime, fired: int) -> datetime | None:
    if timing.runs is not None and fired >= timing.runs:
        return None
    return next_after(timing, timing.rule(), cursor)


def retry_delay(failures: int) -> timedelta:
    """Return how long a schedule waits after its planning failed for the nth time."""
    return RETRY_DELAYS[min(failures, len(RETRY_DELAYS)) - 1]
