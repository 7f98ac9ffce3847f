"""The commands for the definition of a schedule: ``schedule add``, ``schedule edit`` and ``schedule show``."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import click
import msgspec
from msgspec import structs

from holdfast.admin.views.masking import Masks
from holdfast.admin.views.schedules import ScheduleView, schedule_view
from holdfast.cli.command import command, with_options
from holdfast.cli.jobs.enqueue import decoded_payload, read_payload
from holdfast.cli.session import CliSession
from holdfast.cli.text import parse_when, stamp
from holdfast.domain.schedules.definition import CatchUp, Definition, Schedule, format_exact_duration
from holdfast.domain.schedules.plan import Overlap
from holdfast.errors import InvalidInput

OPTIONS = (
    click.option("--tz", metavar="ZONE", help="The IANA zone of a cron expression. [UTC]"),
    click.option("--phase", metavar="TIME", help="Move an interval: every 1h with a phase of 5m is at minute 5."),
    click.option(
        "--catch-up",
        type=click.Choice([str(choice) for choice in CatchUp]),
        help="Which plans fire that were due while nobody planned. [latest]",
    ),
    click.option("--window", metavar="TIME", help="How far back catch-up every reaches. [24h]"),
    click.option(
        "--overlap",
        type=click.Choice([str(choice) for choice in Overlap]),
        help="What a plan does while an earlier one runs. [skip; with catch-up every: queue_all]",
    ),
    click.option(
        "--max-backlog", type=click.IntRange(1), help="With queue_all: the most plans of a scope in line. [10000]"
    ),
    click.option("--delay", metavar="TIME", help="Fire so long after the plan's time, for data to settle. [0]"),
    click.option("--jitter", metavar="TIME", help="Spread the jobs over this time. [0]"),
    click.option("--start", metavar="WHEN", help="No plan before this moment (RFC 3339, or now)."),
    click.option("--end", metavar="WHEN", help="No plan after this moment."),
    click.option("--runs", type=click.IntRange(1), help="Be over after so many plans."),
    click.option("-p", "--payload", metavar="JSON|@FILE|-", help="The handler's other parameters."),
    click.option("-q", "--queue", help="Another queue than the kind's."),
    click.option("--priority", type=int, help="Higher is sooner."),
    click.option("--scope", "scopes", multiple=True, help="Fire once in each scope; repeatable."),
    click.option("--scopes-from", metavar="NAME", help="Ask the application's function of this name for scopes."),
    click.option("--ping", metavar="URL", help="Call this when a plan has succeeded, if ping_hosts allow it."),
)


@command("add", answers=ScheduleView, changes=True)
@click.argument("name")
@click.argument("kind")
@click.argument("expression")
@with_options(*OPTIONS)
def add(session: CliSession, *, name: str, kind: str, expression: str, **options: Any) -> None:
    """Make a schedule: NAME enqueues a job of KIND when EXPRESSION says.

    EXPRESSION is a cron expression (five fields, or six with seconds first), @daily and the like, or an interval.
    It starts from now. With a --start in the past, --catch-up decides which plans since then fire.

    \b
    Examples:
      holdfast schedule add nightly rebuild '30 2 * * *' --tz Europe/Berlin
      holdfast schedule add rollup rollup '*/5 * * * *' --catch-up every --delay 30s
      holdfast schedule add poll fetch 'every 90s' -p '{"source": 7}'
    """
    print_schedule(session, session.actions.schedules.create(name, kind, expression, **_set_options(options)))


@command("edit", answers=ScheduleView, changes=True)
@click.argument("name")
@click.option("--expression", metavar="EXPRESSION", help="Another rule: it goes on from now and replays nothing.")
@click.option("--kind", help="Another kind of job.")
@with_options(*OPTIONS)
def edit(session: CliSession, *, name: str, expression: str | None, kind: str | None, **options: Any) -> None:
    """Change what is said of a schedule and keep the rest.

    What code declares changes it again only when the code's own declaration changes.

    \b
    Examples:
      holdfast schedule edit nightly --expression '0 3 * * *'
      holdfast schedule edit rollup --delay 1m
    """
    changes = _set_options(options)
    if not changes and expression is None and kind is None:
        raise InvalidInput("nothing to change", hint="Give --expression, --kind or another option.")
    changed = session.actions.schedules.update(name, kind=kind, expression=expression, **changes)
    print_schedule(session, changed)


@command("show", answers=ScheduleView)
@click.argument("name")
def show(session: CliSession, *, name: str) -> None:
    """Show one schedule: its rule in words, its next plans, and what is wrong with it."""
    print_schedule(session, session.actions.schedules.api.get(name))


def _set_options(options: dict[str, Any]) -> Any:
    chosen = {name: value for name, value in options.items() if value is not None and value != ()}
    if "scopes_from" in chosen:
        if "scopes" in chosen:
            raise InvalidInput("--scope and --scopes-from exclude each other")
        chosen["scopes"] = chosen.pop("scopes_from")
    if "payload" in chosen:
        chosen["payload"] = decoded_payload(read_payload(chosen["payload"]))
    if "scopes" in chosen and not chosen["scopes"]:
        raise InvalidInput("a function for scopes has a name")
    for name in ("start", "end"):
        if name in chosen:
            chosen[name] = parse_when(chosen[name], ages=False)
    return chosen


def print_schedule(session: CliSession, schedule: Schedule) -> None:
    view = schedule_view(schedule, session.store.schedules.now(), secrets=Masks(session.store).of_schedule(schedule))
    session.output.value(view, lambda: _schedule_lines(view))


def _schedule_lines(view: ScheduleView) -> Iterator[str]:
    yield f"schedule {view.name}  {view.condition}  {view.expression}"
    yield f"  {'when':9} {view.words}"
    yield f"  {'kind':9} {view.kind}"
    for name, value in _options_in_use(view.definition) if view.definition else ():
        yield f"  {name:9} {value}"
    decided = stamp(view.decided_until)
    optional = {"fired": f"{view.fired:,}", "decided": decided, "note": view.note, "error": view.error}
    for name, text in optional.items():
        if text:
            yield f"  {name:9} {text}"
    if view.in_code:
        yield f"  {'declared':9} in code, version {view.version}"
    for instant in view.next:
        yield f"  {'next':9} {stamp(instant.utc)}  {instant.local}"
    yield from (f"  {'note well':9} {warning}" for warning in view.warnings)


def _options_in_use(definition: dict[str, Any]) -> Iterator[tuple[str, str]]:
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
