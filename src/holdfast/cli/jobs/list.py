"""``ls``, ``show`` and ``why``: look at jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from holdfast.cli.command import command
from holdfast.cli.job_filter import is_everything, selecting
from holdfast.cli.session import Session
from holdfast.cli.text import job_lines, job_table, place_table
from holdfast.domain.jobs.job import Job, JobId
from holdfast.domain.jobs.selector import Selector

if TYPE_CHECKING:
    from holdfast.admin.views.masking import Masks


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
    session.store.views.refuse_missing(selector)
    found = _masked(session, session.store.views.all(selector))
    jobs = found if everything else islice(found, limit)
    first = next(jobs := iter(jobs), None)
    if first is None:
        session.output.note("no jobs yet" if is_everything(selector) else "no job matches")
    shown = chain([] if first is None else [first], jobs)
    session.output.items("jobs", shown, place_table if places else job_table, facts=_facts(session))


@command("show", answers="JobListView")
@click.argument("job_id", type=click.IntRange(0))
def show(session: Session, *, job_id: int) -> None:
    """Show one job: where it stands, why, its attempts and its history."""
    from holdfast.admin.views.jobs import JobListView, job_detail
    from holdfast.admin.views.masking import Masks

    story = session.store.dashboard.job_record(JobId(job_id))
    told = job_detail(story, Masks(session.store))
    reasons = [] if story.job.state.finished else [reason.text for reason in told.why]
    shown = JobListView(told.job, told.attempts, told.events, reasons)
    session.output.value(shown, lambda: job_lines(story.job, told, reasons))


@command("why", answers="Reasons")
@click.argument("job_id", type=click.IntRange(0))
def why(session: Session, *, job_id: int) -> None:
    """Say why a job is not running, the nearest reason first."""
    from holdfast.admin.views.jobs import Reasons

    reasons = session.store.views.why(JobId(job_id))
    session.output.value(Reasons(reasons), lambda: [reason.text for reason in reasons])


def _masked(session: Session, jobs: Iterator[Job]) -> Iterator[Job]:
    """Jobs whose errors hold no secret of theirs."""
    masks: list[Masks] = []
    for job in jobs:
        if job.error is None:
            yield job
            continue
        from holdfast.admin.views.masking import Masks

        masks[:] = masks or [Masks(session.store)]
        yield structs.replace(job, error=masks[0].text(job, job.error))


def _facts(session: Session) -> Callable[[Job], Any]:
    """Jobs for programs. What it takes to tell them is loaded when one asks."""
    masks: list[Masks] = []

    def facts(job: Job) -> Any:
        from holdfast.admin.views.jobs import job_view
        from holdfast.admin.views.masking import Masks

        masks[:] = masks or [Masks(session.store)]
        return job_view(job, masks[0])

    return facts
