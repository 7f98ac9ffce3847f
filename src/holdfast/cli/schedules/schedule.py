"""``schedule``: look at schedules and their plans, steer them, try expressions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import click
from msgspec import Struct

from holdfast.admin.actions.results import BackfilledPlans, Triggered
from holdfast.admin.views.masking import Masks
from holdfast.admin.views.schedules import Instant, PlanView, ScheduleView, entry, instants, schedule_view
from holdfast.cli.command import CommandGroup, Items, command
from holdfast.cli.confirm import confirm
from holdfast.cli.schedules.definition import add, edit
from holdfast.cli.schedules.text import actions_of, schedule_table, schedules_of, tell_schedule
from holdfast.cli.session import Session
from holdfast.cli.text import stamp, table
from holdfast.cli.timestamps import timestamp_of
from holdfast.domain.schedules.decision import spec_of
from holdfast.domain.schedules.description import explain, lint, upcoming
from holdfast.domain.schedules.plan import GLOBAL
from holdfast.domain.text import as_duration
from holdfast.output.printer import Line

app_option = click.option("--app", metavar="MODULE:APP", help="The application whose function knows the scopes.")
scope_option = click.option("--scope", "scopes", multiple=True, help="Only in this scope; repeatable. [all]")


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


class Removed(Struct, frozen=True):
    """The schedule that was forgotten."""

    schedule: str


@click.group("schedule", cls=CommandGroup)
def schedule() -> None:
    """Fire jobs by the clock: add schedules, look at their plans, pause, resume, trigger and backfill them."""


@command("ls", answers=Items("schedules", ScheduleView))
def ls(session: Session) -> None:
    """List schedules by name, and when each fires next."""
    schedules, masks = schedules_of(session), Masks(session.store)
    now = schedules.now()
    found = (schedule_view(each, now, secrets=masks.of_schedule(each)) for each in schedules.all())
    session.output.items("schedules", found, schedule_table)


@command("show", answers=ScheduleView)
@click.argument("name")
def show(session: Session, *, name: str) -> None:
    """Show one schedule: its rule in words, its next plans, and what is wrong with it."""
    tell_schedule(session, schedules_of(session).get(name))


@command("pause", answers=ScheduleView, changes=True)
@click.argument("name")
@click.option("--note", metavar="TEXT", help="Why, for those who look later.")
def pause(session: Session, *, name: str, note: str | None) -> None:
    """Plan nothing more; what was fired goes on."""
    session.actions.schedules.perform("pause", name, note=note)
    tell_schedule(session, schedules_of(session).get(name))


@command("resume", answers=ScheduleView, changes=True)
@click.argument("name")
def resume(session: Session, *, name: str) -> None:
    """Let it go on from now. What was due meanwhile is skipped: holdfast schedule backfill fires it."""
    session.actions.schedules.perform("resume", name)
    tell_schedule(session, schedules_of(session).get(name))


@command("rm", answers=Removed, changes=True)
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
def rm(session: Session, *, name: str, yes: bool) -> None:
    """Forget a schedule with its ledger; its jobs stay. One that code declares comes back with the next worker."""
    schedules_of(session).get(name)
    confirm(session, f"forget the schedule {name!r} with its ledger", yes=yes)
    session.actions.schedules.perform("rm", name)
    session.output.value(Removed(name), lambda: [f"rm {name}"])


@command("trigger", answers=Triggered, changes=True)
@click.argument("name")
@scope_option
@app_option
def trigger(session: Session, *, name: str, scopes: tuple[str, ...], app: str | None) -> None:
    """Fire it now, beside its plans; also while it is paused."""
    done = actions_of(session, app).schedules.trigger(name, scopes=scopes or None)
    told = ", ".join(str(job) for job in done.jobs)
    session.output.value(done, lambda: [told if session.output.quiet else f"fired as job {told}"])


@command("backfill", answers=BackfilledPlans, changes=True)
@click.argument("name")
@click.option("--from", "first", required=True, metavar="WHEN", help="The first plan: a moment (RFC 3339) or an age.")
@click.option("--to", "last", default="now", show_default=True, metavar="WHEN", help="The last plan.")
@scope_option
@app_option
@click.option("--dry-run", is_flag=True, help="Say which plans there are; fire nothing.")
def backfill(
    session: Session, *, name: str, first: str, last: str, scopes: tuple[str, ...], app: str | None, dry_run: bool
) -> None:
    """Fire the plans of a stretch of the past that were not fired before, one after the other.

    \b
    Examples:
      holdfast schedule backfill rollup --from 2030-01-01T00:00:00Z --to 2030-01-02T00:00:00Z --dry-run
      holdfast schedule backfill rollup --from 6h
    """
    actions = actions_of(session, app)
    until = actions.schedules.api.now() if last == "now" else timestamp_of(last)
    done = actions.schedules.backfill(name, timestamp_of(first), until, scopes=scopes or None, dry_run=dry_run)
    session.output.value(done, lambda: [_filled_line(done)])


@command("preview", answers=Preview)
@click.argument("expression")
@click.option("--tz", default="UTC", show_default=True, metavar="ZONE", help="The IANA zone.")
@click.option("--phase", default="0", show_default=True, metavar="TIME", help="Move an interval.")
@click.option("--from", "begin", default="now", show_default=True, metavar="WHEN", help="Plans after this moment.")
@click.option("-n", "count", default=5, show_default=True, type=click.IntRange(1, 10_000), help="So many plans.")
def preview(session: Session, *, expression: str, tz: str, phase: str, begin: str, count: int) -> None:
    """Show when an expression fires, in words and by the clock. Needs no store.

    \b
    Examples:
      holdfast schedule preview '30 2 * * *' --tz Europe/Berlin
      holdfast schedule preview 'every 90m' -n 10
      holdfast schedule preview '0 9 * * 1#1' --from 2030-01-01T00:00:00Z
    """
    spec = spec_of(expression, tz=tz, phase=as_duration(phase))
    moments = upcoming(spec, timestamp_of(begin), count)
    found = Preview(expression, tz, explain(spec), instants(moments, tz), lint(spec, datetime.now(UTC)))
    session.output.value(found, lambda: _preview_lines(found))


@command("history", answers=Items("plans", PlanView))
@click.argument("name")
@click.option("-n", "--limit", default=20, show_default=True, type=click.IntRange(1, 10_000), help="At most so many.")
def history(session: Session, *, name: str, limit: int) -> None:
    """List what was fired and what was skipped, and why; the newest first."""
    found = [entry(each) for each in schedules_of(session).history(name, limit=limit)]
    session.output.items("plans", found, _history_table)


@command("why", answers=WhyAnswer)
@click.argument("name")
@click.argument("time", metavar="TIME")
@click.option("--scope", default=GLOBAL, show_default=True, help="The scope of the plan.")
def why(session: Session, *, name: str, time: str, scope: str) -> None:
    """Say what became of the plan of TIME (RFC 3339), or will, and why.

    \b
    Example:
      holdfast schedule why nightly 2030-01-01T02:30:00+01:00
    """
    timestamp = timestamp_of(time)
    answer = WhyAnswer(name, timestamp, scope, schedules_of(session).why(name, timestamp, scope=scope))
    session.output.value(answer, lambda: [answer.why])


for _command in (ls, show, add, edit, pause, resume, trigger, preview, backfill, history, why, rm):
    schedule.add_command(_command)


def _filled_line(done: BackfilledPlans) -> str:
    action = "would be fired; nothing was" if done.dry_run else "fired"
    span = f" from {stamp(done.first)} to {stamp(done.last)}" if done.plans else ""
    return f"{done.plans:,} plans{span} {action}, {done.known:,} had been before"


def _preview_lines(found: Preview) -> Iterator[str]:
    yield found.words
    for instant in found.next:
        yield f"  {stamp(instant.utc)}  {instant.local}"
    yield from (f"note: {warning}" for warning in found.warnings)


def _history_table(entries: Iterable[PlanView]) -> Iterator[Line]:
    return table(("PLAN", "SCOPE", "DECISION", "JOB", "STATE", "WHY"), (_entry_row(each) for each in entries))


def _entry_row(each: PlanView) -> list[str]:
    time = stamp(each.first)
    if each.first != each.last:
        last = stamp(each.last)
        time += f" … {last[11:] if each.first.date() == each.last.date() else last}"
    count = f"{each.decision} {each.count:,}" if each.count > 1 else each.decision
    return [time, each.scope or "all", count, str(each.job_id or ""), each.state or "", each.reason]
