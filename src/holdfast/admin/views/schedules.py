"""Views of schedules and plans, with secrets masked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Struct

from holdfast.admin.views.payload_secrets import definition_fields, definition_secrets, values_of
from holdfast.client.schedules.api import Schedules
from holdfast.domain.access.masking import MASK, mask_json, mask_text, mask_url
from holdfast.domain.commands.command import masked_payload
from holdfast.domain.jobs.job import JobId
from holdfast.domain.schedules.decision import MAX_COUNTED, format_count
from holdfast.domain.schedules.definition import Condition, Definition, Schedule, Timing, checked_condition
from holdfast.domain.schedules.description import explain, lint, next_plans
from holdfast.domain.schedules.schedule_filter import ScheduleFilter
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
    """The decision on plans: one plan that was *fired* as a job, or a range that was *skipped*, with the reason.

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


class SchedulesPage(Struct, frozen=True):
    """Some schedules, and where the next page begins."""

    schedules: list[ScheduleView]
    next: str | None


def schedule_page(
    store: Store,
    *,
    state: str | None = None,
    kind: str | None = None,
    name: str | None = None,
    after: str = "",
    limit: int = 50,
    plans: int = NEXT_PLANS,
    now: datetime | None = None,
) -> SchedulesPage:
    """Schedules by name, after a name: those in a *state*, that fire a *kind*, with a text in their *name*.

    *now* is the :func:`store_time`, if the caller has it.
    """
    rows, now = store.schedules.page(_filter(state, kind, name), after=after, limit=limit), now or store_time(store)
    views = [_schedule_view(store, row, now, plans=plans) for row in rows]
    return SchedulesPage(views, rows[-1].name if len(rows) == limit else None)


def all_schedules(
    store: Store, *, state: str | None = None, kind: str | None = None, name: str | None = None, after: str = ""
) -> Iterator[ScheduleView]:
    """The same, all of them, read page by page."""
    now = store_time(store)
    return (_schedule_view(store, row, now) for row in store.schedules.all(_filter(state, kind, name), after=after))


def _filter(state: str | None, kind: str | None, name: str | None) -> ScheduleFilter:
    return ScheduleFilter(None if state is None else checked_condition(state), kind, name)


def schedule_view(store: Store, name: str, *, plans: int = NEXT_PLANS, now: datetime | None = None) -> ScheduleView:
    """One schedule, with some of its next *plans*."""
    return _schedule_view(store, store.schedules.get(name), now or store_time(store), plans=plans)


def store_time(store: Store) -> datetime:
    """The time of the store's clock, which decides when plans are due."""
    return store.schedules.now()


def plan_views(
    store: Store, name: str, *, limit: int = 50, scope: str | None = None, state: str | None = None
) -> list[PlanView]:
    """The fired and the skipped plans of a schedule, newest first: all, or those of a scope or a state."""
    return [_plan_view(each) for each in _reader(store).history(name, limit=limit, scope=scope, state=state)]


def plan_reason(store: Store, name: str, time: datetime, *, scope: str) -> str:
    """Whether a plan was fired, or will be, and why not."""
    return masked_schedule_text(store, name, _reader(store).why(name, time, scope=scope))


def _reader(store: Store) -> Schedules:
    return Schedules(lambda: store, {}, actor="reader")


def _schedule_view(store: Store, schedule: Schedule, now: datetime, *, plans: int = NEXT_PLANS) -> ScheduleView:
    """Build the view of a schedule at the store's time *now*. One that cannot be read is shown as failing."""
    secrets = definition_fields(store, schedule.definition)
    values = values_of("", schedule.definition, secrets)
    try:
        definition = schedule.defined
        definition.rule()
    except HoldfastError as error:
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
        warnings=[*_late(schedule, now), *_past_end(definition, now), *lint(definition, now)],
    )


def _past_end(definition: Definition, now: datetime) -> list[str]:
    if definition.end is None or definition.end > now:
        return []
    return [f"Its end has passed, at {definition.end.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC: it plans no more jobs."]


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


def masked_schedule_text(store: Store, name: str, text: str) -> str:
    """A note or an error of a schedule, without secrets; hidden if the schedule was deleted meanwhile."""
    try:
        definition = store.schedules.get(name).definition
    except NotFound:
        return MASK
    return mask_text(text, definition_secrets(store, definition))


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
        yield f"Due since {since}, and no scheduler fires it: is a worker of its application running?"


def instants(times: Iterable[datetime], tz: str) -> list[Instant]:
    """Return plan times with their local spelling."""
    zone = ZoneInfo(tz)
    return [Instant(time, time.astimezone(zone).isoformat()) for time in times]


def _plan_view(each: FiredPlan | SkippedPlans) -> PlanView:
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
