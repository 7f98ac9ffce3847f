"""``ls``, ``show`` and ``why``: look at jobs."""

from __future__ import annotations

from itertools import chain, islice
from typing import Any

import click

from holdfast.cli.render import job_lines, job_table, place_table
from holdfast.cli.select import is_everything, refuse_missing, selecting
from holdfast.cli.session import Session
from holdfast.cli.shared import command
from holdfast.domain.job import Job, JobId
from holdfast.domain.selector import Selector


@command("ls", answers="JOBS")
@selecting
@click.option("-n", "--limit", default=50, show_default=True, type=click.IntRange(1, 2**31), help="At most so many.")
@click.option("--all", "everything", is_flag=True, help="All that match, however many.")
@click.option("--cwd", "places", is_flag=True, help="Show the directories in which programs run.")
def ls(session: Session, *, selector: Selector, limit: int, everything: bool, places: bool) -> None:
    """List jobs, the newest first.

    \b
    Examples:
      holdfast ls
      holdfast ls --state dead --kind 'mail-*' --since 1d
      holdfast ls --label nightly --all -o ndjson
    """
    refuse_missing(session, selector)
    found = session.store.views.all(selector)
    jobs = found if everything else islice(found, limit)
    first = next(jobs := iter(jobs), None)
    if first is None:
        session.output.note("no jobs yet" if is_everything(selector) else "no job matches")
    shown = chain([] if first is None else [first], jobs)
    session.output.items("jobs", shown, place_table if places else job_table, facts=_facts)


@command("show", answers="Shown")
@click.argument("job_id", type=click.IntRange(0))
def show(session: Session, *, job_id: int) -> None:
    """Show one job: where it stands, why, its attempts and its history."""
    views = session.store.views
    job = views.get(JobId(job_id))
    attempts, events = views.attempts(job.id), views.events(job.id)
    reasons = [] if job.state.ended else [reason.text for reason in views.why(job.id)]
    from holdfast.cli.answers import Shown

    shown = Shown(_facts(job), attempts, events, reasons)
    session.output.value(shown, lambda: job_lines(job, attempts, events, reasons))


@command("why", answers="Reasons")
@click.argument("job_id", type=click.IntRange(0))
def why(session: Session, *, job_id: int) -> None:
    """Say why a job is not running, the nearest reason first."""
    from holdfast.cli.answers import Reasons

    reasons = session.store.views.why(JobId(job_id))
    session.output.value(Reasons(reasons), lambda: [reason.text for reason in reasons])


def _facts(job: Job) -> Any:
    """A job for programs. What it takes to tell them is loaded when one asks."""
    from holdfast.cli.answers import job_facts

    return job_facts(job)
