"""``ls``, ``show`` and ``why``: look at jobs."""

from __future__ import annotations

from itertools import islice

import click

from holdfast.cli.render import JOB_HEADS, job_data, job_lines, job_row, table
from holdfast.cli.select import selecting
from holdfast.cli.session import Session
from holdfast.cli.shared import command
from holdfast.domain.job import JobId
from holdfast.domain.selector import Selector


@command("ls")
@selecting
@click.option("-n", "--limit", default=50, show_default=True, type=click.IntRange(1), help="At most so many jobs.")
@click.option("--all", "everything", is_flag=True, help="All that match, however many.")
def ls(session: Session, *, selector: Selector, limit: int, everything: bool) -> None:
    """List jobs, the newest first.

    \b
    Examples:
      holdfast ls
      holdfast ls --state dead --kind 'mail-*' --since 1d
      holdfast ls --label nightly --all -o ndjson
    """
    found = session.store.views.all(selector)
    jobs = found if everything else islice(found, limit)
    if session.output.format == "text":
        session.output.lines(table(JOB_HEADS, (job_row(job) for job in jobs)))
        return
    session.output.items("jobs", (job_data(job) for job in jobs), lambda _: ())


@command("show")
@click.argument("job_id", type=click.IntRange(0))
def show(session: Session, *, job_id: int) -> None:
    """Show one job: where it stands, why, its attempts and its history."""
    views = session.store.views
    job = views.get(JobId(job_id))
    attempts, events = views.attempts(job.id), views.events(job.id)
    reasons = [] if job.state.ended else [reason.text for reason in views.why(job.id)]
    data = {"job": job_data(job), "attempts": attempts, "events": events, "why": reasons}
    session.output.value(data, lambda: job_lines(job, attempts, events, reasons))


@command("why")
@click.argument("job_id", type=click.IntRange(0))
def why(session: Session, *, job_id: int) -> None:
    """Say why a job is not running, the nearest reason first."""
    reasons = session.store.views.why(JobId(job_id))
    data = {"reasons": [{"because": reason.because, "text": reason.text} for reason in reasons]}
    session.output.value(data, lambda: [reason.text for reason in reasons])
