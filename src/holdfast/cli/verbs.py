"""What people do to jobs: cancel, retry, hold, unhold, set, rm."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime

import click

from holdfast.cli.select import is_everything, selecting
from holdfast.cli.session import Session
from holdfast.cli.shared import command
from holdfast.domain.filter import parse_moment
from holdfast.domain.job import JobId
from holdfast.domain.selector import Selector
from holdfast.errors import InvalidInput, NoSuchJob
from holdfast.store.control import Control

Verb = Callable[[Control, Selector], list[JobId]]

dry_run = click.option("--dry-run", is_flag=True, help="Say how many jobs match, and change nothing.")
yes = click.option("--yes", is_flag=True, help="Do not ask.")


@command("cancel")
@selecting
@dry_run
@yes
def cancel(session: Session, *, selector: Selector, dry_run: bool, yes: bool) -> None:
    """Cancel jobs: at once where nobody runs them; a running one is told at its worker's next heartbeat."""
    _sure(session, selector, "cancel", yes=yes or dry_run)
    _act(
        session,
        selector,
        "cancel",
        lambda control, chosen: control.cancel(chosen, actor=session.actor),
        dry_run=dry_run,
    )


@command("retry")
@selecting
@dry_run
def retry(session: Session, *, selector: Selector, dry_run: bool) -> None:
    """Run dead and cancelled jobs again, with all their attempts; those that wait for a retry run now."""
    _act(
        session, selector, "retry", lambda control, chosen: control.retry(chosen, actor=session.actor), dry_run=dry_run
    )


@command("hold")
@selecting
@click.option("--note", metavar="TEXT", help="Why, for those who look later.")
@dry_run
def hold(session: Session, *, selector: Selector, note: str | None, dry_run: bool) -> None:
    """Keep jobs that nobody runs from starting until somebody lets them go."""
    verb: Verb = lambda control, chosen: control.hold(chosen, actor=session.actor, note=note)  # noqa: E731
    _act(session, selector, "hold", verb, dry_run=dry_run)


@command("unhold")
@selecting
@dry_run
def unhold(session: Session, *, selector: Selector, dry_run: bool) -> None:
    """Let held jobs go."""
    _act(
        session,
        selector,
        "unhold",
        lambda control, chosen: control.unhold(chosen, actor=session.actor),
        dry_run=dry_run,
    )


@command("rm")
@selecting
@dry_run
@yes
def rm(session: Session, *, selector: Selector, dry_run: bool, yes: bool) -> None:
    """Remove jobs with their whole history. A running job, or one that a live job needs, is refused (exit 9)."""
    _sure(session, selector, "remove", yes=yes or dry_run)
    _act(session, selector, "rm", lambda control, chosen: control.remove(chosen), dry_run=dry_run)


@command("set")
@selecting
@click.option("--priority", type=int, help="The new priority: higher is sooner.")
@click.option("--to-queue", metavar="QUEUE", help="Move to this queue.")
@click.option("--run-at", metavar="WHEN", help="A moment (RFC 3339), or now.")
@dry_run
def change(
    session: Session,
    *,
    selector: Selector,
    priority: int | None,
    to_queue: str | None,
    run_at: str | None,
    dry_run: bool,
) -> None:
    """Change priority, queue or time of jobs that have not ended."""
    verbs: list[Verb] = []
    if priority is not None:
        verbs.append(lambda control, chosen: control.set_priority(chosen, priority, actor=session.actor))
    if to_queue is not None:
        verbs.append(lambda control, chosen: control.move(chosen, to_queue, actor=session.actor))
    if run_at is not None:
        now = datetime.now(UTC)
        moment = now if run_at == "now" else parse_moment(run_at, now=now)
        verbs.append(lambda control, chosen: control.reschedule(chosen, moment, actor=session.actor))
    if not verbs:
        raise InvalidInput("nothing to change", hint="Give --priority, --to-queue or --run-at.")

    def all_of_them(control: Control, chosen: Selector) -> list[JobId]:
        return sorted({job_id for verb in verbs for job_id in verb(control, chosen)})

    _act(session, selector, "set", all_of_them, dry_run=dry_run)


def _act(session: Session, selector: Selector, name: str, verb: Verb, *, dry_run: bool) -> None:
    """Count, act, tell. What matches nothing is an error, so that a misspelt label is noticed."""
    if is_everything(selector):
        raise InvalidInput(
            f"which jobs should {name} take?", hint="Give ids, or --label, --queue, --state … or --filter."
        )
    matched = session.store.views.count(selector, cap=1_000_000).count
    if not matched:
        raise NoSuchJob("no job matches", hint="holdfast ls with the same options shows what does.")
    changed = [] if dry_run else verb(session.store.control, selector)
    data = {"verb": name, "matched": matched, "changed": len(changed), "dry_run": dry_run, "ids": changed}
    text = f"{matched} jobs match; nothing was changed" if dry_run else f"{name}: {len(changed)} of {matched} jobs"
    session.output.value(data, lambda: [text])


def _sure(session: Session, selector: Selector, name: str, *, yes: bool) -> None:
    """Ask before more than one job is lost; a program says --yes."""
    if yes or is_everything(selector) or (selector.ids is not None and len(selector.ids) == 1):
        return
    matched = session.store.views.count(selector, cap=1_000_000).count
    if matched <= 1:
        return
    if session.output.format != "text" or not sys.stdin.isatty():
        raise InvalidInput(f"this would {name} {matched} jobs", hint="Add --yes, or look first with --dry-run.")
    click.confirm(f"{name.capitalize()} {matched} jobs?", abort=True, err=True)
