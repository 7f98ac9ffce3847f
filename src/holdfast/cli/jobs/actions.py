"""The actions on jobs: ``cancel``, ``pause``, ``resume``, ``retry``, ``kill``, ``restart``, ``hold``, ``rm``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from holdfast.admin.actions.actions import Changed
from holdfast.admin.actions.jobs import JOB_ACTIONS
from holdfast.cli.command import HoldfastCommand, command, with_options
from holdfast.cli.job_filter import with_job_filter
from holdfast.cli.session import CliSession
from holdfast.domain.jobs.selector import Selector

note = click.option("--note", metavar="TEXT", help="Why, for those who look later.")


def action(name: str, text: str, *options: Callable[..., Any]) -> HoldfastCommand:
    """Build the command of one action on jobs; a destructive one asks before it changes more than one job."""

    def run(session: CliSession, selector: Selector, *, dry_run: bool, yes: bool = True, **arguments: Any) -> None:
        matched = session.actions.jobs.count_matches(name, selector)
        if not dry_run:
            hint = "Add --yes, or look first with --dry-run."
            session.confirm(f"{name} {matched} jobs", yes=yes or matched == 1, hint=hint)
        print_changed(
            session, session.actions.jobs.perform(name, selector, dry_run=dry_run, matched=matched, **arguments)
        )

    run.__doc__ = text
    yes = [click.option("--yes", is_flag=True, help="Do not ask.")] if JOB_ACTIONS[name].destructive else []
    dry_run = click.option("--dry-run", is_flag=True, help="Say how many jobs match; change nothing.")
    return command(name, answers=Changed, changes=True)(with_job_filter(with_options(*options, dry_run, *yes)(run)))


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


def print_changed(session: CliSession, answer: Changed) -> None:
    """Print how many jobs an action changed and, if it skipped some, why."""
    session.output.value(answer, lambda: [_summary(answer)])


def _summary(answer: Changed) -> str:
    if answer.dry_run:
        return f"{_count_jobs(answer.matched)} would be asked; nothing was changed"
    left = f" (left: {answer.why})" if answer.why else ""
    return f"{answer.action}: {answer.changed} of {_count_jobs(answer.matched)}{left}"


def _count_jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"
