"""``ls``: list jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice

import click

from holdfast.admin.views.jobs import decoded_job, masked_job
from holdfast.admin.views.masking import Masks
from holdfast.cli.command import command
from holdfast.cli.job_filter import selects_all, with_job_filter
from holdfast.cli.session import CliSession
from holdfast.cli.text import JOB_HEADS, job_row, job_table, table
from holdfast.domain.jobs.job import Job
from holdfast.domain.jobs.selector import Selector
from holdfast.output.printer import Line


@command("ls", answers="JOBS")
@with_job_filter
@click.option(
    "-n", "--limit", default=50, show_default=True, type=click.IntRange(1, 2**31), help="Maximum number of rows."
)
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
    masks = Masks(session.store)
    matches = (masked_job(job, masks) for job in session.store.views.all(selector))
    jobs = matches if everything else islice(matches, limit)
    first = next(jobs, None)
    if first is None:
        session.output.note("no jobs yet" if selects_all(selector) else "no job matches")
    listed = chain([] if first is None else [first], jobs)
    session.output.items("jobs", listed, _directory_table if directories else job_table, data=decoded_job)


def _directory_table(jobs: Iterable[Job]) -> Iterator[Line]:
    from holdfast.cli.jobs.show import command_of

    def row(job: Job) -> list[str]:
        *cells, note = job_row(job)
        command = command_of(job)
        return [*cells, "" if command is None else command.cwd, note]

    return table((*JOB_HEADS[:-1], "DIRECTORY", JOB_HEADS[-1]), (row(job) for job in jobs))
