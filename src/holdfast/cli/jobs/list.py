"""``ls``: list jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from holdfast.cli.command import command
from holdfast.cli.job_filter import selects_all, with_job_filter
from holdfast.cli.session import CliSession
from holdfast.cli.text import JOB_HEADS, job_row, job_table, table
from holdfast.domain.jobs.job import Job
from holdfast.domain.jobs.selector import Selector
from holdfast.output.printer import Line

if TYPE_CHECKING:
    from holdfast.admin.views.masking import Masks


@command("ls", answers="JOBS")
@with_job_filter
@click.option("-n", "--limit", default=50, show_default=True, type=click.IntRange(1, 2**31), help="At most so many.")
@click.option("--all", "everything", is_flag=True, help="All that match, however many.")
@click.option("--cwd", "directories", is_flag=True, help="Show the directories in which programs run.")
def ls(session: CliSession, *, selector: Selector, limit: int, everything: bool, directories: bool) -> None:
    """List jobs, the newest first.

    \b
    Examples:
      holdfast ls
      holdfast ls --state dead --kind 'mail-*' --since 1d
      holdfast ls --label nightly --all -o ndjson
    """
    session.store.views.refuse_missing(selector)
    masks = cache(partial(_load_masks, session))
    matches = (_without_secrets(job, masks) for job in session.store.views.all(selector))
    jobs = matches if everything else islice(matches, limit)
    first = next(jobs, None)
    if first is None:
        session.output.note("no jobs yet" if selects_all(selector) else "no job matches")
    listed = chain([] if first is None else [first], jobs)
    lines = _directory_table if directories else job_table
    session.output.items("jobs", listed, lines, data=lambda job: _view(job, masks()))


def _directory_table(jobs: Iterable[Job]) -> Iterator[Line]:
    from holdfast.cli.jobs.show import command_of

    def row(job: Job) -> list[str]:
        *cells, note = job_row(job)
        command = command_of(job)
        return [*cells, "" if command is None else command.cwd, note]

    return table((*JOB_HEADS[:-1], "DIRECTORY", JOB_HEADS[-1]), (row(job) for job in jobs))


def _without_secrets(job: Job, masks: Callable[[], Masks]) -> Job:
    return job if job.error is None else structs.replace(job, error=masks().text(job, job.error))


def _load_masks(session: CliSession) -> Masks:
    """Import the views on first use: a plain list does without them."""
    from holdfast.admin.views.masking import Masks

    return Masks(session.store)


def _view(job: Job, masks: Masks) -> Any:
    from holdfast.admin.views.jobs import job_view

    return job_view(job, masks)
