"""The command group ``schedule``: list, control and preview schedules."""

from __future__ import annotations

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
from holdfast.admin.views.schedules import (
    Instant,
    PlanView,
    ScheduleView,
    all_schedules,
    instants,
    plan_reason,
    plan_views,
)
from holdfast.cli.action import action_command, action_flags, action_help, print_changed
from holdfast.cli.command import CommandGroup, Items, command, limit_option, with_options
from holdfast.cli.schedules.definition import add, edit, show
from holdfast.cli.session import CliSession
from holdfast.cli.text import Column, Table, age, count_column, parse_when, time_column, with_table
from holdfast.client.schedules.api import SKIPPED
from holdfast.domain.access.audit import Via
from holdfast.domain.jobs.job import State
from holdfast.domain.names import quote_argument
from holdfast.domain.quantities import as_duration, local_times, stamp
from holdfast.domain.schedules.definition import Condition, Timing
from holdfast.domain.schedules.description import explain, lint, upcoming
from holdfast.domain.schedules.plan import GLOBAL

app_option = click.option("--app", metavar="MODULE:APP", help="Application with the function that lists the scopes.")
scope_option = click.option("--scope", "scopes", multiple=True, help="Only this scope; repeatable. [all]")


def _expression(view: ScheduleView) -> str:
    zone = (view.definition or {"when": {}})["when"].get("tz", "")
    return f"{view.expression} {zone}".strip()


def _note(view: ScheduleView) -> str:
    late = next((text for text in view.warnings if text.startswith("Due since")), "")
    return view.error or view.note or local_times(late)


def _plan_time(each: PlanView) -> str:
    time = stamp(each.first)
    if each.first == each.last:
        return time
    last = stamp(each.last)
    return f"{time} … {last[11:] if time[:10] == last[:10] else last}"


def _next(view: ScheduleView) -> datetime | None:
    return view.next[0].utc if view.next else None


SCHEDULES: Table[ScheduleView] = Table(
    (
        Column("NAME", lambda view: view.name),
        Column("STATE", lambda view: view.condition),
        Column("EXPRESSION", _expression),
        Column("KIND", lambda view: view.kind),
        Column("NEXT", lambda view: age(_next(view)), _next),
        time_column("NEXT TIME", _next, wide=True),
        count_column("FIRED", lambda view: view.fired),
        time_column("CHANGED", lambda view: view.changed_at, wide=True),
        Column("CHANGED BY", lambda view: view.changed_by, wide=True),
        Column("WHEN", lambda view: view.words, wide=True),
        Column("NOTE", _note),
    ),
    key="name",
)
PLANS: Table[PlanView] = Table(
    (
        Column("PLAN", _plan_time, lambda plan: plan.first),
        Column("SCOPE", lambda plan: plan.scope or "all"),
        Column("DECISION", lambda plan: f"{plan.decision} {plan.count_text}" if plan.count > 1 else plan.decision),
        Column("JOB", lambda plan: plan.job_id),
        Column("STATE", lambda plan: plan.state),
        time_column("DECIDED", lambda plan: plan.decided_at, wide=True),
        Column("BY", lambda plan: plan.actor, wide=True),
        Column("WHY", lambda plan: plan.reason),
    )
)


class Preview(Struct, frozen=True):
    """When an expression fires: in words, its next times, and warnings about surprises."""

    expression: str
    tz: str
    words: str
    next: list[Instant]
    warnings: list[str]


class WhyAnswer(Struct, frozen=True):
    """What happened, or will happen, to a plan, and why."""

    schedule: str
    time: datetime
    scope: str
    why: str


@click.group("schedule", cls=CommandGroup)
def schedule() -> None:
    """Enqueue jobs at fixed times: add, list, preview, pause, resume, trigger and backfill schedules.

    Examples:
      holdfast schedule preview '30 2 * * *' --tz Europe/Berlin
      holdfast schedule add nightly rebuild '30 2 * * *' --tz Europe/Berlin
      holdfast schedule ls
    """


@command("ls", answers=Items("schedules", ScheduleView))
@click.option("--state", type=click.Choice([str(each) for each in Condition]), help="Only schedules in this state.")
@click.option("-k", "--kind", help="Only schedules of this kind of job.")
@click.option("--name", metavar="TEXT", help="Only schedules whose name contains this text.")
@click.option("--after", default="", metavar="NAME", help="List schedules after this name.")
@limit_option(100, 2**31)
@click.option("--all", "everything", is_flag=True, help="List all matches, without a limit.")
@with_table(SCHEDULES)
def ls(
    session: CliSession, *, after: str, limit: int, everything: bool, table: Table[ScheduleView], **chosen: str | None
) -> None:
    """List schedules by name, and when each fires next.

    Examples:
      holdfast schedule ls --state failing
      holdfast schedule ls --kind rollup --limit 20 --after rollup-42
    """
    matches = all_schedules(session.store, after=after, **chosen)
    listed = list(matches if everything else islice(matches, limit + 1))
    if not everything and len(listed) > limit:
        del listed[limit:]
        session.output.note(f"there are more: --after {quote_argument(listed[-1].name)}, or --all")
    session.output.items("schedules", listed, table.lines)


def _perform(name: str, session: CliSession, *, schedule: str, dry_run: bool, **options: Any) -> Changed:
    return session.actions.schedules.perform(name, schedule, dry_run=dry_run, **options)


_name = click.argument("schedule", metavar="NAME")
pause, resume, rm = (
    action_command(find_action(Target.SCHEDULE, name), partial(_perform, name), _name, options=ScheduleActionOptions)
    for name in ("pause", "resume", "rm")
)


@command("trigger", answers=Changed, changes=True, creates=False)
@with_options(_name, scope_option, app_option, *action_flags(find_action(Target.SCHEDULE, "trigger"), None))
def trigger(session: CliSession, *, schedule: str, scopes: tuple[str, ...], app: str | None, dry_run: bool) -> int:
    done = _actions(session, app).schedules.perform("trigger", schedule, scopes=scopes or None, dry_run=dry_run)
    jobs = ", ".join(str(job) for job in done.jobs)
    note = f"it was fired as {'job' if len(done.jobs) == 1 else 'jobs'} {jobs}" if jobs else None
    return print_changed(session, structs.replace(done, note=note), quiet=jobs)


@command("backfill", answers=Changed, changes=True, creates=False)
@with_options(
    _name,
    click.option(
        "--from", "first", required=True, metavar="WHEN", help="First plan: a time (RFC 3339) or an age such as 2d."
    ),
    click.option(
        "--to", "last", default="now", show_default=True, metavar="WHEN", help="Last plan: a time (RFC 3339) or an age."
    ),
    scope_option,
    app_option,
    *action_flags(find_action(Target.SCHEDULE, "backfill"), None),
)
def backfill(
    session: CliSession, *, schedule: str, first: str, last: str, app: str | None, dry_run: bool, **options: Any
) -> int:
    span = {"first": parse_when(first), "last": None if last == "now" else parse_when(last)}
    schedules = _actions(session, app).schedules
    done = schedules.perform("backfill", schedule, dry_run=dry_run, **span, **options)
    plans = [str(plan) for plan in done.ids]
    head = [] if session.output.quiet else [structs.replace(done, ids=[]).text]
    return print_changed(session, done, lines=[*head, *plans] if len(plans) > 1 else None)


for _command in (trigger, backfill):
    _command.help = action_help(find_action(Target.SCHEDULE, _command.name or ""))


@command("preview", answers=Preview)
@click.argument("expression")
@click.option("--tz", default="UTC", show_default=True, metavar="ZONE", help="IANA time zone, such as Europe/Berlin.")
@click.option("--phase", default="0", show_default=True, metavar="TIME", help="Offset of an interval.")
@click.option(
    "--from", "begin", default="now", show_default=True, metavar="WHEN", help="Plans after this time (RFC 3339)."
)
@click.option("-n", "count", default=5, show_default=True, type=click.IntRange(1, 10_000), help="Number of plans.")
def preview(session: CliSession, *, expression: str, tz: str, phase: str, begin: str, count: int) -> None:
    """Show when an expression fires, in words and as times. Needs no store.

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
@click.option("--scope", help="Only plans of this scope.")
@click.option(
    "--state", type=click.Choice([*map(str, State), SKIPPED]), help="Only plans whose job is in this state, or skipped."
)
@with_table(PLANS)
def history(
    session: CliSession, *, name: str, limit: int, scope: str | None, state: str | None, table: Table[PlanView]
) -> None:
    """List the past plans of a schedule, newest first.

    Each plan fired or was skipped; a skipped plan has its reason. Filters examine the newest 100,000 plans.

    Examples:
      holdfast schedule history rollup -n 100 -o json
      holdfast schedule history rollup --scope ada --state dead
    """
    plans = plan_views(session.store, name, limit=limit, scope=scope, state=state)
    session.output.items("plans", plans, table.lines)


@command("why", answers=WhyAnswer)
@click.argument("name")
@click.argument("time", metavar="TIME")
@click.option("--scope", default=GLOBAL, show_default=True, help="Scope of the plan.")
def why(session: CliSession, *, name: str, time: str, scope: str) -> None:
    """Explain why the plan of TIME (RFC 3339) fired or did not fire.

    Examples:
      holdfast schedule why nightly 2030-01-01T02:30:00+01:00
    """
    timestamp = parse_when(time)
    answer = WhyAnswer(name, timestamp, scope, plan_reason(session.store, name, timestamp, scope=scope))
    session.output.value(answer, lambda: [local_times(answer.why)])


for _command in (ls, show, add, edit, pause, resume, trigger, preview, backfill, history, why, rm):
    schedule.add_command(_command)


def _actions(session: CliSession, app: str | None) -> Actions:
    """Return the actions of the session's user; with an application, including its scope functions."""
    if app is None:
        return session.actions
    from holdfast.cli.session import load_app

    loaded = load_app(app, url=session.url_flag or session.url)
    return Actions(loaded.store, actor=session.actor, via=Via.CLI, providers=loaded.providers)


def _preview_lines(preview: Preview) -> Iterator[str]:
    yield preview.words
    for instant in preview.next:
        yield f"  {stamp(instant.utc)}  {instant.local}"
    yield from (f"note: {warning}" for warning in preview.warnings)
