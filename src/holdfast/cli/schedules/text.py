"""Schedules and plans as commands show them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from holdfast.admin.actions.actions import Actions
from holdfast.admin.views.masking import Masks
from holdfast.admin.views.schedules import ScheduleView, schedule_view
from holdfast.cli.session import Session
from holdfast.cli.text import age, stamp, table
from holdfast.domain.access.roles import Via
from holdfast.domain.schedules.decision import say_exactly
from holdfast.domain.schedules.definition import Definition, Schedule
from holdfast.output.printer import Line

if TYPE_CHECKING:
    from holdfast.client.schedules.api import Schedules


def schedules_of(session: Session) -> Schedules:
    """The schedules of the store, by whoever is at the keyboard."""
    return session.actions.schedules.api


def actions_of(session: Session, app: str | None) -> Actions:
    """Where whoever is at the keyboard acts; with an application, its functions for scopes are known."""
    if app is None:
        return session.actions
    from holdfast.cli.app_loader import load_app

    loaded = load_app(app, url=session.asked_url or session.url)
    return Actions(loaded.store, actor=session.actor, via=Via.CLI, providers=loaded.providers)


def tell_schedule(session: Session, schedule: Schedule) -> None:
    facts = schedule_view(schedule, session.store.schedules.now(), secrets=Masks(session.store).of_schedule(schedule))
    session.output.value(facts, lambda: schedule_lines(facts))


def schedule_table(schedules: Iterable[ScheduleView]) -> Iterator[Line]:
    return table(("NAME", "STATE", "EXPRESSION", "KIND", "NEXT", "FIRED", "NOTE"), (_row(each) for each in schedules))


def _row(facts: ScheduleView) -> list[str]:
    when = age(facts.next[0].utc) if facts.next else ""
    note = facts.error or facts.note or next((text for text in facts.warnings if text.startswith("Due since")), "")
    zone = (facts.definition or {"when": {}})["when"].get("tz", "")
    expression = f"{facts.expression} {zone}".strip()
    return [facts.name, facts.condition, expression, facts.kind, when, f"{facts.fired:,}", note]


def schedule_lines(facts: ScheduleView) -> Iterator[str]:
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
