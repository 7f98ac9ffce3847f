"""The commands for the definition of a schedule: ``schedule add``, ``schedule edit`` and ``schedule show``."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import click
import msgspec
from msgspec import structs

from holdfast.admin.views.schedules import ScheduleView, schedule_view
from holdfast.cli.command import command, with_options
from holdfast.cli.jobs.enqueue import decoded_payload, read_payload
from holdfast.cli.session import CliSession
from holdfast.cli.text import parse_when
from holdfast.domain.quantities import local_times, stamp
from holdfast.domain.schedules.definition import CatchUp, Definition, format_exact_duration
from holdfast.domain.schedules.plan import Overlap
from holdfast.errors import InvalidInput

OPTIONS = (
    click.option("--tz", metavar="ZONE", help="IANA time zone of a cron expression. [UTC]"),
    click.option("--phase", metavar="TIME", help="Offset of an interval: every 1h with phase 5m fires at minute 5."),
    click.option(
        "--catch-up",
        type=click.Choice([str(choice) for choice in CatchUp]),
        help="Missed plans to fire after downtime: none, latest or every. [latest]",
    ),
    click.option("--window", metavar="TIME", help="How far back --catch-up every goes. [24h]"),
    click.option(
        "--overlap",
        type=click.Choice([str(choice) for choice in Overlap]),
        help="If the previous plan still runs: skip or queue the new one, cancel the running one, or allow both."
        " [skip; queue_all with --catch-up every]",
    ),
    click.option("--max-backlog", type=click.IntRange(1), help="With queue_all: maximum of waiting plans. [10000]"),
    click.option("--delay", metavar="TIME", help="Delay after the time of the plan, until its data is complete. [0]"),
    click.option("--jitter", metavar="TIME", help="Spread the jobs of all scopes over this time. [0]"),
    click.option("--start", metavar="WHEN", help="No plan before this time (RFC 3339, or now)."),
    click.option("--end", metavar="WHEN", help="No plan after this time (RFC 3339)."),
    click.option("--runs", type=click.IntRange(1), help="Finish the schedule after this many plans."),
    click.option("-p", "--payload", metavar="JSON|@FILE|-", help="Other parameters of the handler."),
    click.option("-q", "--queue", help="Queue, instead of that of the kind."),
    click.option("--priority", type=int, help="Priority; higher runs first."),
    click.option("--scope", "scopes", multiple=True, help="Scope; one job per scope; repeatable."),
    click.option("--scopes-from", metavar="NAME", help="Function of the application that lists the scopes."),
    click.option("--ping", metavar="URL", help="URL to call after a success. The setting ping_hosts must allow it."),
)


@command("add", answers=ScheduleView, changes=True)
@click.argument("name")
@click.argument("kind")
@click.argument("expression")
@with_options(*OPTIONS)
def add(session: CliSession, *, name: str, kind: str, expression: str, **options: Any) -> None:
    """Create a schedule: jobs of KIND at the times of EXPRESSION.

    EXPRESSION is a cron expression (five fields, or six with seconds first), @daily and the like, or an interval.
    It starts now. With a --start in the past, --catch-up decides which plans since then fire.

    Examples:
      holdfast schedule add nightly rebuild '30 2 * * *' --tz Europe/Berlin
      holdfast schedule add rollup rollup '*/5 * * * *' --catch-up every --delay 30s
      holdfast schedule add poll fetch 'every 90s' -p '{"source": 7}'
    """
    session.actions.schedules.create(name, kind, expression, **_set_options(options))
    _print_schedule(session, name)


@command("edit", answers=ScheduleView, changes=True, creates=False)
@click.argument("name")
@click.option(
    "--expression", metavar="EXPRESSION", help="New rule. It applies from now on; earlier plans are not repeated."
)
@click.option("--kind", help="New kind of job.")
@with_options(*OPTIONS)
def edit(session: CliSession, *, name: str, expression: str | None, kind: str | None, **options: Any) -> None:
    """Change some options of a schedule, and keep the others.

    A declaration in code replaces the change only when the declaration itself changes.

    Examples:
      holdfast schedule edit nightly --expression '0 3 * * *'
      holdfast schedule edit rollup --delay 1m
    """
    changes = _set_options(options)
    if not changes and expression is None and kind is None:
        raise InvalidInput("nothing to change", hint="Give --expression, --kind or another option.")
    session.actions.schedules.update(name, kind=kind, expression=expression, **changes)
    _print_schedule(session, name)


@command("show", answers=ScheduleView)
@click.argument("name")
def show(session: CliSession, *, name: str) -> None:
    """Show one schedule: its rule in words, next plans and warnings.

    Examples:
      holdfast schedule show nightly
    """
    _print_schedule(session, name)


def _set_options(options: dict[str, Any]) -> Any:
    chosen = {name: value for name, value in options.items() if value is not None and value != ()}
    if "scopes_from" in chosen:
        if "scopes" in chosen:
            raise InvalidInput("--scope and --scopes-from cannot be combined")
        chosen["scopes"] = chosen.pop("scopes_from")
    if "payload" in chosen:
        chosen["payload"] = decoded_payload(read_payload(chosen["payload"]))
    if "scopes" in chosen and not chosen["scopes"]:
        raise InvalidInput("--scopes-from is empty", hint="Name a function of the application.")
    for name in ("start", "end"):
        if name in chosen:
            chosen[name] = parse_when(chosen[name], ages=False)
    return chosen


def _print_schedule(session: CliSession, name: str) -> None:
    view = schedule_view(session.store, name)
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
    yield from (f"  {'warning':9} {local_times(warning)}" for warning in view.warnings)


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
