"""Views of schedules and plans, with secrets masked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Struct

from holdfast.admin.views.masking import Masks, values_of
from holdfast.domain.access.masking import mask_json, mask_text, mask_url
from holdfast.domain.commands.command import masked_payload
from holdfast.domain.jobs.job import JobId
from holdfast.domain.schedules.decision import MAX_COUNTED, format_count
from holdfast.domain.schedules.definition import Condition, Definition, Schedule, Timing
from holdfast.domain.schedules.description import explain, lint, next_plans
from holdfast.errors import HoldfastError, NotFound
from holdfast.store import Store
from holdfast.store.schedules.fired_plans import FiredPlan
from holdfast.store.schedules.plans import SkippedPlans

#: The number of next plans in a view.
NEXT_PLANS = 3
#: A healthy planner decides on a due plan within this time.
LATE_AFTER = timedelta(seconds=60)


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
    """What became of plans: one that was *fired* as a job, or a stretch that was *skipped*, with the reason.

    *count_is_minimum*: there are more than *count* of them.
    """

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
    count_is_minimum: bool = False

    @property
    def count_text(self) -> str:
        """The number of plans for people: ``10,000+`` if there are more."""
        return format_count(self.count + self.count_is_minimum)


def schedule_view(
    schedule: Schedule, now: datetime, *, plans: int = NEXT_PLANS, secrets: Collection[str] = ()
) -> ScheduleView:
    """Build the view of a schedule at the store's time *now*. One that cannot be decoded is shown as failing."""
    values = values_of("", schedule.definition, secrets)
    try:
        definition = schedule.defined
    except (msgspec.DecodeError, HoldfastError) as error:
        blank: dict[str, Any] = {"kind": "", "expression": "", "next": [], "definition": None, "warnings": []}
        blank |= {"words": "its definition cannot be read", "error": mask_text(schedule.error or str(error), values)}
        return _view(schedule, values, condition=Condition.FAILING, **blank)
    idle = schedule.condition in (Condition.PAUSED, Condition.OVER)
    times = [] if idle else next_plans(schedule, now, plans)
    return _view(
        schedule,
        values,
        condition=schedule.condition,
        kind=definition.kind,
        expression=definition.expression,
        words=explain(definition),
        next=instants(times, definition.tz),
        error=None if schedule.error is None else mask_text(schedule.error, values),
        definition=_masked_definition(definition, secrets),
        warnings=[*_late(schedule, now), *lint(definition, now)],
    )


def _view(schedule: Schedule, values: Collection[str], **fields: Any) -> ScheduleView:
    return ScheduleView(
        name=schedule.name,
        decided_until=schedule.cursor,
        fired=schedule.fired,
        note=None if schedule.note is None else mask_text(schedule.note, values),
        in_code=schedule.declared is not None,
        version=schedule.version,
        changed_at=schedule.changed_at,
        changed_by=schedule.actor,
        **fields,
    )


def schedule_secrets(store: Store, name: str, masks: Masks) -> list[str]:
    """The secret values of a schedule's payload; its notes and errors may contain them."""
    try:
        schedule = store.schedules.get(name)
    except NotFound:
        return []
    return values_of("", schedule.definition, masks.of_schedule(schedule))


def masked_schedule_text(store: Store, name: str, text: str) -> str:
    """A note or an error of a schedule, without secrets."""
    return mask_text(text, schedule_secrets(store, name, Masks(store)))


def _masked_definition(definition: Definition, secrets: Collection[str]) -> dict[str, Any]:
    """Return the definition as JSON values, with its timing under ``when``."""
    fields: dict[str, Any] = msgspec.to_builtins(definition)
    if "payload" in fields:
        payload = masked_payload(definition.kind, msgspec.json.encode(fields["payload"]).decode())
        fields["payload"] = mask_json(payload, secrets)
    if definition.ping is not None:
        fields["ping"] = mask_url(definition.ping)
    timing = {name: fields.pop(name) for name in Timing.__struct_fields__ if name in fields}
    return {"kind": fields.pop("kind"), "when": timing, **fields}


def _late(schedule: Schedule, now: datetime) -> Iterator[str]:
    if schedule.condition is Condition.ACTIVE and schedule.next_at is not None and schedule.next_at < now - LATE_AFTER:
        since = schedule.next_at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        yield f"Due since {since}, and nobody plans it: is a worker of its application running?"


def instants(times: Iterable[datetime], tz: str) -> list[Instant]:
    """Return plan times with their local spelling."""
    zone = ZoneInfo(tz)
    return [Instant(time, time.astimezone(zone).isoformat()) for time in times]


def plan_view(each: FiredPlan | SkippedPlans) -> PlanView:
    """Build the view of a fired plan or of a skipped span."""
    if isinstance(each, FiredPlan):
        job: dict[str, Any] = {"job_id": each.job_id, "state": each.state, "actor": each.actor}
        return PlanView("fired", each.time, each.time, 1, each.scope, each.origin, each.decided_at, **job)
    return PlanView(
        "skipped",
        each.first,
        each.last,
        min(each.count, MAX_COUNTED),
        each.scope or None,
        each.reason,
        each.decided_at,
        count_is_minimum=each.count > MAX_COUNTED,
    )
