"""The command group ``schedule``: list, control and preview schedules."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Any

import click
from msgspec import Struct, structs

from holdfast.admin.actions.actions import Actions
from holdfast.admin.actions.changed import Changed
from holdfast.admin.actions.options import ScheduleActionOptions
from holdfast.admin.actions.table import Target, find_action
from holdfast.admin.views.masking import Masks
from holdfast.admin.views.schedules import (
    Instant,
    PlanView,
    ScheduleView,
    instants,
    masked_schedule_text,
    plan_view,
    schedule_view,
)
from holdfast.cli.action import action_command, action_flags, print_changed
from holdfast.cli.command import CommandGroup, Items, command, with_options
from holdfast.cli.schedules.definition import add, edit, show
from holdfast.cli.session import CliSession
from holdfast.cli.text import age, parse_when, stamp, table
from holdfast.domain.access.roles import Via
from holdfast.domain.names import quote_argument
from holdfast.domain.quantities import as_duration
from holdfast.domain.schedules.definition import Condition, Timing
from holdfast.domain.schedules.description import explain, lint, upcoming
from holdfast.domain.schedules.plan import GLOBAL

app_option = click.option("--app", metavar="MODULE:APP", help="The application whose function knows the scopes.")
scope_option = click.option("--scope", "scopes", multiple=True, help="Only in this scope; repeatable. [all]")
SCHEDULE_COLUMNS = ("NAME", "STATE", "EXPRESSION", "KIND", "NEXT", "FIRED", "NOTE")
PLAN_COLUMNS = ("PLAN", "SCOPE", "DECISION", "JOB", "STATE", "WHY")


class Preview(Struct, frozen=True):
    """When an expression fires: in words, the next moments, and what about it may surprise."""

    expression: str
    tz: str
    words: str
    next: list[Instant]
    warnings: list[str]


class WhyAnswer(Struct, frozen=True):
    """What became of a plan, or will, and why."""

    schedule: str
    time: datetime
    scope: str
    why: str


@click.group("schedule", cls=CommandGroup)
def schedule() -> None:
    """Fire jobs by the clock: add schedules, look at their plans, pause, resume, trigger and backfill them."""


@command("ls", answers=Items("schedules", ScheduleView))
@click.option("--state", "condition", type=click.Choice([str(each) for each in Condition]), help="Only in this state.")
@click.option("-k", "--kind", help="Only those that fire this kind of job.")
@click.option("--name", "text", metavar="TEXT", help="Only those whose name contains this text.")
@click.option("--after", default="", metavar="NAME", help="Begin after this name.")
@click.option(
    "-n", "--limit", default=100, show_default=True, type=click.IntRange(1, 2**31), help="Maximum number of rows."
)
@click.option("--all", "everything", is_flag=True, help="All that match, however many.")
def ls(session: CliSession, *, after: str, limit: int, everything: bool, **chosen: str | None) -> None:
    """List schedules by name, and when each fires next.

    \b
    Examples:
      holdfast schedule ls --state failing
      holdfast schedule ls --kind rollup --limit 20 --after rollup-42
    """
    schedules, masks = session.actions.schedules.api, Masks(session.store)
    now, matches = schedules.now(), schedules.all(after=after, **chosen)
    listed = list(matches if everything else islice(matches, limit + 1))
    if not everything and len(listed) > limit:
        del listed[limit:]
        session.output.note(f"there are more: --after {quote_argument(listed[-1].name)}, or --all")
    views = (schedule_view(each, now, secrets=masks.of_schedule(each)) for each in listed)
    session.output.items("schedules", views, lambda rows: table(SCHEDULE_COLUMNS, map(_schedule_row, rows)))


def _perform(name: str, session: CliSession, *, schedule: str, dry_run: bool, **options: Any) -> Changed:
    return session.actions.schedules.perform(name, schedule, dry_run=dry_run, **options)


_name = click.argument("schedule", metavar="NAME")
pause, resume, rm = (
    action_command(find_action(Target.SCHEDULE, name), partial(_perform, name), _name, options=ScheduleActionOptions)
    for name in ("pause", "resume", "rm")
)


@command("trigger", answers=Changed, changes=True)
@with_options(_name, scope_option, app_option, *action_flags(find_action(Target.SCHEDULE, "trigger"), None))
def trigger(session: CliSession, *, schedule: str, scopes: tuple[str, ...], app: str | None, dry_run: bool) -> int:
    done = _actions(session, app).schedules.perform("trigger", schedule, scopes=scopes or None, dry_run=dry_run)
    jobs = ", ".join(str(job) for job in done.jobs)
    note = f"it was fired as {'job' if len(done.jobs) == 1 else 'jobs'} {jobs}" if jobs else None
    return print_changed(session, structs.replace(done, note=note), quiet=jobs)


@command("backfill", answers=Changed, changes=True)
@with_options(
    _name,
    click.option("--from", "first", required=True, metavar="WHEN", help="The first plan: a time (RFC 3339) or an age."),
    click.option("--to", "last", default="now", show_default=True, metavar="WHEN", help="The last plan."),
    scope_option,
    app_option,
    *action_flags(find_action(Target.SCHEDULE, "backfill"), None),
)
def backfill(
    session: CliSession, *, schedule: str, first: str, last: str, app: str | None, dry_run: bool, **options: Any
) -> int:
    span = {"first": parse_when(first), "last": None if last == "now" else parse_when(last)}
    schedules = _actions(session, app).schedules
    return print_changed(session, schedules.perform("backfill", schedule, dry_run=dry_run, **span, **options))


for _command in (trigger, backfill):
    _command.help = inspect.cleandoc(find_action(Target.SCHEDULE, _command.name or "").help)


@command("preview", answers=Preview)
@click.argument("expression")
@click.option("--tz", default="UTC", show_default=True, metavar="ZONE", help="The IANA zone.")
@click.option("--phase", default="0", show_default=True, metavar="TIME", help="Move an interval.")
@click.option("--from", "begin", default="now", show_default=True, metavar="WHEN", help="Plans after this moment.")
@click.option("-n", "count", default=5, show_default=True, type=click.IntRange(1, 10_000), help="So many plans.")
def preview(session: CliSession, *, expression: str, tz: str, phase: str, begin: str, count: int) -> None:
    """Show when an expression fires, in words and by the clock. Needs no store.

    \b
    Examples:
      holdfast schedule preview '30 2 * * *' --tz Europe/Berlin
      holdfast schedule preview 'every 90m' -n 10
      holdfast schedule preview '0 9 * * 1#1' --from 2030-01-01T00:00:00Z
    """
    timing = Timing.from_expression(expression, tz=tz, phase=as_duration(phase))
    times = instants(upcoming(timing, parse_when(begin), count), tz)
    answer = Preview(expression, tz, explain(timing), times, lint(timing, datetime.now(UTC)))
    session.output.value(answer, lambda: _preview_lines(answer))


@command("history", answers=Items("plans", PlanView))
@click.argument("name")
@click.option(
    "-n", "--limit", default=20, show_default=True, type=click.IntRange(1, 10_000), help="Maximum number of rows."
)
def history(session: CliSession, *, name: str, limit: int) -> None:
    """List what was fired and what was skipped, and why; the newest first."""
    plans = [plan_view(each) for each in session.actions.schedules.api.history(name, limit=limit)]
    session.output.items("plans", plans, lambda rows: table(PLAN_COLUMNS, map(_plan_row, rows)))


@command("why", answers=WhyAnswer)
@click.argument("name")
@click.argument("time", metavar="TIME")
@click.option("--scope", default=GLOBAL, show_default=True, help="The scope of the plan.")
def why(session: CliSession, *, name: str, time: str, scope: str) -> None:
    """Say what became of the plan of TIME (RFC 3339), or will, and why.

    \b
    Example:
      holdfast schedule why nightly 2030-01-01T02:30:00+01:00
    """
    timestamp = parse_when(time)
    text = session.actions.schedules.api.why(name, timestamp, scope=scope)
    answer = WhyAnswer(name, timestamp, scope, masked_schedule_text(session.store, name, text))
    session.output.value(answer, lambda: [answer.why])


for _command in (ls, show, add, edit, pause, resume, trigger, preview, backfill, history, why, rm):
    schedule.add_command(_command)


def _actions(session: CliSession, app: str | None) -> Actions:
    """Return the actions of the session's user; with an application, including its scope functions."""
    if app is None:
        return session.actions
    from holdfast.cli.session import load_app

    loaded = load_app(app, url=session.url_flag or session.url)
    return Actions(loaded.store, actor=session.actor, via=Via.CLI, providers=loaded.providers)


def _schedule_row(view: ScheduleView) -> list[str]:
    when = age(view.next[0].utc) if view.next else ""
    note = view.error or view.note or next((text for text in view.warnings if text.startswith("Due since")), "")
    zone = (view.definition or {"when": {}})["when"].get("tz", "")
    expression = f"{view.expression} {zone}".strip()
    return [view.name, view.condition, expression, view.kind, when, f"{view.fired:,}", note]


def _preview_lines(preview: Preview) -> Iterator[str]:
    yield preview.words
    for instant in preview.next:
        yield f"  {stamp(instant.utc)}  {instant.local}"
    yield from (f"note: {warning}" for warning in preview.warnings)


def _plan_row(each: PlanView) -> list[str]:
    time = stamp(each.first)
    if each.first != each.last:
        last = stamp(each.last)
        time += f" … {last[11:] if each.first.date() == each.last.date() else last}"
    count = f"{each.decision} {each.count_text}" if each.count > 1 else each.decision
    return [time, each.scope or "all", count, str(each.job_id or ""), each.state or "", each.reason]
