"""Schedules and plans as programs and people see them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Struct

from holdfast.domain.access.masking import mask_text, mask_url, mask_value
from holdfast.domain.jobs.job import JobId
from holdfast.domain.schedules.definition import Condition, Schedule
from holdfast.domain.schedules.description import explain, lint, upcoming
from holdfast.errors import HoldfastError
from holdfast.store.schedules.firing import Fired
from holdfast.store.schedules.plans import SkippedPlans

#: How many of the next plans are shown.
NEXT = 3
#: A healthy planner takes no longer to look at what is due.
LATE = timedelta(seconds=60)


class Instant(Struct, frozen=True):
    """A plan's time, in UTC and by the clock of its zone."""

    utc: datetime
    local: str


class ScheduleView(Struct, frozen=True):
    """A schedule: how it is, in words, its next plans, and what about it may surprise."""

    name: str
    condition: Condition
    kind: str
    expression: str
    words: str
    next: list[Instant]
    decided_until: datetime | None
    fired: int
    note: str | None
    error: str | None
    definition: Any
    in_code: bool
    version: int
    changed_at: datetime
    changed_by: str
    warnings: list[str]


class PlanView(Struct, frozen=True):
    """What became of plans: one that was *fired* as a job, or a stretch that was *skipped*, with the reason."""

    decision: str
    first: datetime
    last: datetime
    count: int
    scope: str | None
    reason: str
    decided_at: datetime
    job_id: JobId | None = None
    state: str | None = None
    actor: str | None = None


def schedule_view(
    schedule: Schedule, now: datetime, *, plans: int = NEXT, secrets: Collection[str] = ()
) -> ScheduleView:
    """What is known of a schedule, by the store's time; one that cannot be read is told as failing."""
    try:
        definition = schedule.defined
    except (msgspec.DecodeError, HoldfastError) as error:
        return _unreadable(schedule, str(error))
    idle = schedule.condition in (Condition.PAUSED, Condition.OVER)
    found = [] if idle else upcoming(definition.when, max(now, schedule.cursor or now), plans)
    told = msgspec.to_builtins(definition)
    if "payload" in told:
        told["payload"] = mask_value(told["payload"], secrets)
    if definition.ping is not None:
        told["ping"] = mask_url(definition.ping)
    return ScheduleView(
        name=schedule.name,
        condition=schedule.condition,
        kind=definition.kind,
        expression=definition.when.expression,
        words=explain(definition.when),
        next=instants(found, definition.when.tz),
        decided_until=schedule.cursor,
        fired=schedule.fired,
        note=None if schedule.note is None else mask_text(schedule.note),
        error=None if schedule.error is None else mask_text(schedule.error),
        definition=told,
        in_code=schedule.declared is not None,
        version=schedule.version,
        changed_at=schedule.changed_at,
        changed_by=schedule.actor,
        warnings=[*_late(schedule, now), *lint(definition.when, now)],
    )


def _late(schedule: Schedule, now: datetime) -> Iterator[str]:
    if schedule.condition is Condition.ACTIVE and schedule.next_at is not None and schedule.next_at < now - LATE:
        since = schedule.next_at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        yield f"Due since {since}, and nobody plans it: is a worker of its application running?"


def _unreadable(schedule: Schedule, error: str) -> ScheduleView:
    return ScheduleView(
        name=schedule.name,
        condition=Condition.FAILING,
        kind="",
        expression="",
        words="its definition cannot be read",
        next=[],
        decided_until=schedule.cursor,
        fired=schedule.fired,
        note=None if schedule.note is None else mask_text(schedule.note),
        error=schedule.error or error,
        definition=None,
        in_code=schedule.declared is not None,
        version=schedule.version,
        changed_at=schedule.changed_at,
        changed_by=schedule.actor,
        warnings=[],
    )


def instants(moments: Iterable[datetime], tz: str) -> list[Instant]:
    zone = ZoneInfo(tz)
    return [Instant(timestamp, timestamp.astimezone(zone).isoformat()) for timestamp in moments]


def entry(each: Fired | SkippedPlans) -> PlanView:
    """What became of one plan, or of a stretch of them."""
    if isinstance(each, Fired):
        return PlanView(
            decision="fired",
            first=each.time,
            last=each.time,
            count=1,
            scope=each.scope,
            reason=each.origin,
            decided_at=each.decided_at,
            job_id=each.job_id,
            state=each.state,
            actor=each.actor,
        )
    return PlanView(
        decision="skipped",
        first=each.first,
        last=each.last,
        count=each.count,
        scope=each.scope or None,
        reason=each.reason,
        decided_at=each.decided_at,
    )
