"""Schedules as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import structs

from holdfast.admin.views.masking import Masks
from holdfast.admin.views.schedules import ScheduleView, schedule_view
from holdfast.cli.session import CliSession
from holdfast.cli.text import age, stamp, table
from holdfast.domain.schedules.definition import Definition, Schedule, format_exact_duration
from holdfast.output.printer import Line


def print_schedule(session: CliSession, schedule: Schedule) -> None:
    """Print the view of one schedule."""
    view = schedule_view(schedule, session.store.schedules.now(), secrets=Masks(session.store).of_schedule(schedule))
    session.output.value(view, lambda: _schedule_lines(view))


def schedule_table(schedules: Iterable[ScheduleView]) -> Iterator[Line]:
    return table(("NAME", "STATE", "EXPRESSION", "KIND", "NEXT", "FIRED", "NOTE"), (_row(each) for each in schedules))


def _row(view: ScheduleView) -> list[str]:
    when = age(view.next[0].utc) if view.next else ""
    note = view.error or view.note or next((text for text in view.warnings if text.startswith("Due since")), "")
    zone = (view.definition or {"when": {}})["when"].get("tz", "")
    expression = f"{view.expression} {zone}".strip()
    return [view.name, view.condition, expression, view.kind, when, f"{view.fired:,}", note]


def _schedule_lines(view: ScheduleView) -> Iterator[str]:
    yield f"schedule {view.name}  {view.condition}  {view.expression}"
    yield f"  {'when':9} {view.words}"
    yield f"  {'kind':9} {view.kind}"
    for name, value in _set_options(view.definition) if view.definition else ():
        yield f"  {name:9} {value}"
    optional = {
        "fired": f"{view.fired:,}",
        "decided": stamp(view.decided_until),
        "note": view.note,
        "error": view.error,
    }
    for name, text in optional.items():
        if text:
            yield f"  {name:9} {text}"
    if view.in_code:
        yield f"  {'declared':9} in code, version {view.version}"
    for instant in view.next:
        yield f"  {'next':9} {stamp(instant.utc)}  {instant.local}"
    yield from (f"  {'note well':9} {warning}" for warning in view.warnings)


def _set_options(definition: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the options that differ from their defaults, and the overlap."""
    fields = {**definition["when"], **definition}
    known = msgspec.convert(fields, Definition)
    for name, value in {**structs.asdict(known), "overlap": known.effective_overlap}.items():
        if (name == "overlap" or name in fields) and name not in ("cron", "every", "tz", "kind"):
            yield name.replace("_", " "), _format_value(value)


def _format_value(value: Any) -> str:
    match value:
        case timedelta():
            return format_exact_duration(value)
        case datetime():
            return stamp(value)
        case tuple():
            return ", ".join(value)
        case dict():
            return msgspec.json.encode(value).decode()
        case _:
            return str(value)
