"""Schedules and plans as commands show them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Struct, structs

from holdfast.cli.render import age, stamp, table
from holdfast.cli.session import Session
from holdfast.domain.definition import Condition, Definition, Schedule
from holdfast.domain.explain import explain, lint, upcoming
from holdfast.domain.schedule import say_exactly
from holdfast.errors import HoldfastError
from holdfast.output import Line

if TYPE_CHECKING:
    from holdfast.schedules import Schedules

#: How many of the next plans are shown.
NEXT = 3
#: A healthy planner takes no longer to look at what is due.
LATE = timedelta(seconds=60)


class Instant(Struct, frozen=True):
    """A plan's time, in UTC and by the clock of its zone."""

    utc: datetime
    local: str


class ScheduleFacts(Struct, frozen=True):
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


def schedules_of(session: Session, app: str | None = None) -> Schedules:
    """The schedules of the store, by whoever is at the keyboard; with an application, its functions are known."""
    from holdfast.schedules import Schedules

    if app is None:
        return Schedules(lambda: session.store, {}, actor=session.actor)
    from holdfast.cli.apps import load_app

    loaded = load_app(app, url=session.asked_url or session.url)
    return Schedules(lambda: loaded.store, loaded.providers, actor=session.actor)


def tell_schedule(session: Session, schedule: Schedule) -> None:
    facts = schedule_facts(schedule, session.store.schedules.now())
    session.output.value(facts, lambda: schedule_lines(facts))


def schedule_facts(schedule: Schedule, now: datetime) -> ScheduleFacts:
    """What is known of a schedule, by the store's time; one that cannot be read is told as failing."""
    try:
        definition = schedule.defined
    except (msgspec.DecodeError, HoldfastError) as error:
        return _unreadable(schedule, str(error))
    idle = schedule.condition in (Condition.PAUSED, Condition.OVER)
    plans = [] if idle else upcoming(definition.when, max(now, schedule.cursor or now), NEXT)
    return ScheduleFacts(
        name=schedule.name,
        condition=schedule.condition,
        kind=definition.kind,
        expression=definition.when.expression,
        words=explain(definition.when),
        next=instants(plans, definition.when.tz),
        decided_until=schedule.cursor,
        fired=schedule.fired,
        note=schedule.note,
        error=schedule.error,
        definition=msgspec.to_builtins(definition),
        in_code=schedule.declared is not None,
        version=schedule.version,
        changed_at=schedule.changed_at,
        changed_by=schedule.actor,
        warnings=[*_late(schedule, now), *lint(definition.when, now)],
    )


def _late(schedule: Schedule, now: datetime) -> Iterator[str]:
    if schedule.condition is Condition.ACTIVE and schedule.next_at is not None and schedule.next_at < now - LATE:
        yield f"Due since {stamp(schedule.next_at)}, and nobody plans it: is a worker of its application running?"


def _unreadable(schedule: Schedule, error: str) -> ScheduleFacts:
    return ScheduleFacts(
        name=schedule.name,
        condition=Condition.FAILING,
        kind="",
        expression="",
        words="its definition cannot be read",
        next=[],
        decided_until=schedule.cursor,
        fired=schedule.fired,
        note=schedule.note,
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
    return [Instant(moment, moment.astimezone(zone).isoformat()) for moment in moments]


def schedule_table(schedules: Iterable[ScheduleFacts]) -> Iterator[Line]:
    return table(("NAME", "STATE", "EXPRESSION", "KIND", "NEXT", "FIRED", "NOTE"), (_row(each) for each in schedules))


def _row(facts: ScheduleFacts) -> list[str]:
    when = age(facts.next[0].utc) if facts.next else ""
    note = facts.error or facts.note or next((text for text in facts.warnings if text.startswith("Due since")), "")
    zone = (facts.definition or {"when": {}})["when"].get("tz", "")
    expression = f"{facts.expression} {zone}".strip()
    return [facts.name, facts.condition, expression, facts.kind, when, f"{facts.fired:,}", note]


def schedule_lines(facts: ScheduleFacts) -> Iterator[str]:
    """All there is to say about one schedule."""
    yield f"schedule {facts.name}  {facts.condition}  {facts.expression}"
    yield f"  {'when':9} {facts.words}"
    yield f"  {'kind':9} {facts.kind}"
    for name, value in _said(facts.definition) if facts.definition else ():
        yield f"  {name:9} {value}"
    told = {
        "fired": f"{facts.fired:,}",
        "decided": stamp(facts.decided_until),
        "note": facts.note,
        "error": facts.error,
    }
    for name, text in told.items():
        if text:
            yield f"  {name:9} {text}"
    if facts.in_code:
        yield f"  {'declared':9} in code, version {facts.version}"
    for instant in facts.next:
        yield f"  {'next':9} {stamp(instant.utc)}  {instant.local}"
    yield from (f"  {'note well':9} {warning}" for warning in facts.warnings)


def _said(definition: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What the definition says beyond its rule."""
    known = msgspec.convert(definition, Definition)
    values = {**structs.asdict(known.when), **structs.asdict(known), "overlap": known.when.overlaps}
    for name, value in values.items():
        said = name == "overlap" or name in definition["when"] or name in definition
        if said and name not in ("cron", "every", "tz", "when", "kind"):
            yield name.replace("_", " "), _word_for(value)


def _word_for(value: Any) -> str:
    match value:
        case timedelta():
            return say_exactly(value)
        case datetime():
            return stamp(value)
        case tuple():
            return ", ".join(value)
        case dict():
            return msgspec.json.encode(value).decode()
        case _:
            return str(value)
