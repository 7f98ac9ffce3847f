"""What people do to jobs: cancel, pause, resume, retry, hold, unhold, set, rm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from holdfast.admin.actions.jobs import JOB_ACTIONS
from holdfast.admin.actions.results import Changed
from holdfast.cli.command import HoldfastCommand, command
from holdfast.cli.confirm import confirm
from holdfast.cli.job_filter import selecting
from holdfast.cli.session import Session
from holdfast.domain.jobs.selector import Selector

note = click.option("--note", metavar="TEXT", help="Why, for those who look later.")


def action(name: str, text: str, *options: Any) -> HoldfastCommand:
    """A command that does one thing to the jobs it is given; a destructive one asks before it takes several."""

    def run(session: Session, selector: Selector, *, dry_run: bool, yes: bool = True, **given: Any) -> None:
        matched = session.actions.jobs.count_matches(name, selector)
        if not dry_run:
            _sure(session, name, matched, yes=yes)
        done = session.actions.jobs.perform(name, selector, dry_run=dry_run, matched=matched, **given)
        tell_changed(session, done)

    run.__doc__ = text
    function: Callable[..., Any] = run
    if JOB_ACTIONS[name].destructive:
        function = click.option("--yes", is_flag=True, help="Do not ask.")(function)
    function = click.option("--dry-run", is_flag=True, help="Say how many jobs match; change nothing.")(function)
    for option in reversed(options):
        function = option(function)
    return command(name, answers=Changed, changes=True)(selecting(function))


cancel = action(
    "cancel", "Cancel jobs: at once where nobody runs them; a running one is told at its worker's next heartbeat."
)
pause = action(
    "pause",
    """Hold jobs, running ones too.

    A running one is told to stop at its worker's next heartbeat; it loses no attempt, and its checkpoint
    waits for the run after resume.
    """,
    note,
)
resume = action("resume", "Let paused and held jobs go on.")
retry = action(
    "retry", "Run dead and cancelled jobs again, with all their attempts; those that wait for a retry run now."
)
kill = action(
    "kill", "End jobs that run: they are asked to, and killed if they do not within seconds. What waits stays."
)
restart = action(
    "restart",
    """Run programs again that have ended, done ones too: the same jobs, with a new attempt and a log of its own.

    One that was killed for its memory (oom) can be given more: holdfast restart 17 --memory 4G.
    """,
    click.option("--memory", metavar="SIZE", help="With this memory cap from now on: 512M, 8G."),
)
hold = action("hold", "Keep jobs that nobody runs from starting until somebody lets them go.", note)
unhold = action("unhold", "Let held jobs go.")
rm = action(
    "rm", "Remove jobs with their whole history. A running job, or one that a live job needs, is refused (exit 9)."
)


def _sure(session: Session, name: str, matched: int, *, yes: bool) -> None:
    """Ask before more than one job is lost; a program says --yes."""
    confirm(session, f"{name} {matched} jobs", yes=yes or matched == 1, hint="Add --yes, or look first with --dry-run.")


def tell_changed(session: Session, done: Changed) -> None:
    """Say what was done; and if some jobs were left alone, how they stand and what the verb is for."""
    session.output.value(done, lambda: [_line(done)])


def _line(done: Changed) -> str:
    if done.dry_run:
        return f"{_jobs(done.matched)} would be asked; nothing was changed"
    left = f" (left: {done.why})" if done.why else ""
    return f"{done.action}: {done.changed} of {_jobs(done.matched)}{left}"


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"
