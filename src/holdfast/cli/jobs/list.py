"""``ls`` and ``errors``: list jobs, and groups of their errors."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import chain, islice
from typing import TYPE_CHECKING

import click

from holdfast.admin.views.jobs import MAX_PAGE, decoded_job, list_jobs
from holdfast.cli.command import command, limit_option
from holdfast.cli.job_filter import selects_all, with_job_filter
from holdfast.cli.session import CliSession
from holdfast.cli.text import Column, Table, age_column, count_column, progress_text, time_column, with_table
from holdfast.domain.jobs.job import Job
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.quantities import format_short_duration

if TYPE_CHECKING:
    from holdfast.admin.views.overview import ErrorGroup
    from holdfast.domain.commands.command import Command


def _duration_s(job: Job) -> float | None:
    """The length of the last run, or of the present one, in seconds."""
    if job.started_at is None:
        return None
    return ((job.finished_at or datetime.now(UTC)) - job.started_at).total_seconds()


def _duration(job: Job) -> str | None:
    seconds = _duration_s(job)
    return None if seconds is None else format_short_duration(seconds)


def _of_command(get: Callable[[Command], str]) -> Callable[[Job], str | None]:
    """A cell about the command of a job; empty for other jobs."""

    def cell(job: Job) -> str | None:
        from holdfast.cli.jobs.show import command_of

        command = command_of(job)
        return None if command is None else get(command)

    return cell


def _note(job: Job) -> str:
    note = job.note or (job.error or "").partition("\n")[0] or progress_text(job)
    return ": ".join(filter(None, [f"{job.requested} requested" if job.requested else "", note]))


JOBS: Table[Job] = Table(
    (
        Column("ID", lambda job: job.id),
        Column("STATE", lambda job: "claimed" if job.claimed else job.state),
        Column("KIND", lambda job: job.kind),
        Column("QUEUE", lambda job: job.queue),
        Column("PRIORITY", lambda job: job.priority, wide=True),
        Column("TRIES", lambda job: f"{job.tries}/{job.max_attempts or '∞'}", lambda job: job.tries),
        age_column("AGE", lambda job: job.created_at),
        time_column("DUE", lambda job: job.due_at, wide=True),
        time_column("STARTED", lambda job: job.started_at, wide=True),
        time_column("FINISHED", lambda job: job.finished_at, wide=True),
        Column("DURATION", _duration, _duration_s, wide=True),
        Column("REASON", lambda job: job.reason, wide=True),
        Column("WORKER", lambda job: job.worker, wide=True),
        Column("BY", lambda job: job.actor, wide=True),
        Column("KEY", lambda job: job.key, wide=True),
        Column("LABEL", lambda job: job.label),
        Column("COMMAND", _of_command(lambda command: shlex.join(command.argv)), wide=True),
        Column("DIRECTORY", _of_command(lambda command: command.cwd), wide=True),
        Column("NOTE", _note),
    ),
    key="id",
)
ERROR_GROUPS: Table[ErrorGroup] = Table(
    (
        count_column("JOBS", lambda group: group.count),
        count_column("RETRYING", lambda group: group.retrying),
        Column("KIND", lambda group: group.kind),
        age_column("FIRST", lambda group: group.first),
        age_column("LAST", lambda group: group.last),
        Column("NEWEST", lambda group: group.newest),
        Column("ERROR", lambda group: group.pattern),
        Column("SAMPLE", lambda group: group.sample, wide=True),
        Column("NEXT", lambda group: group.command, wide=True),
    )
)


@command("ls", answers="JOBS")
@with_job_filter
@limit_option(50, 2**31)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="List all matches, without a limit; also Holdfast's own jobs (holdfast.*).",
)
@click.option("--cwd", "directories", is_flag=True, help="Show the working directories of commands.")
@with_table(JOBS)
def ls(
    session: CliSession, *, selector: Selector, limit: int, everything: bool, directories: bool, table: Table[Job]
) -> None:
    """List jobs, newest first.

    Examples:
      holdfast ls
      holdfast ls --state dead --kind 'mail-*' --since 1d
      holdfast ls --label nightly --all -o ndjson
    """
    internal = everything or selector.kinds is not None or selector.ids is not None
    matches = list_jobs(session.store, selector, internal=internal, most=MAX_PAGE if everything else limit)
    jobs = matches if everything else islice(matches, limit)
    first = next(jobs, None)
    if first is None:
        session.output.note(_empty_note(session, selector, internal=internal))
    listed = chain([] if first is None else [first], jobs)
    shown = table.including("directory") if directories else table
    session.output.items("jobs", listed, shown.lines, data=decoded_job)


def _empty_note(session: CliSession, selector: Selector, *, internal: bool) -> str:
    """Why the list is empty."""
    if not internal and next(list_jobs(session.store, selector), None) is not None:
        return "only Holdfast's own jobs match; --all lists them"
    return "no jobs yet" if selects_all(selector) else "no job matches"


@command("errors", answers="ERRORS")
@limit_option(50, 2000)
@with_table(ERROR_GROUPS)
def errors(session: CliSession, *, limit: int, table: Table[ErrorGroup]) -> None:
    """Group failed and retrying jobs by errors that are equal except for numbers, names and times.

    The largest group is first. FIRST and LAST are the ages of its oldest and newest error, NEWEST is its newest job.
    It reads the newest 1,000 dead and 1,000 retrying jobs.

    Examples:
      holdfast errors
      holdfast errors --columns jobs,error,next
    """
    from holdfast.admin.views.overview import error_clusters

    groups = error_clusters(session.store).clusters
    session.output.items("clusters", groups[:limit], table.lines)
    if len(groups) > limit:
        session.output.note(f"there are {len(groups) - limit:,} smaller groups: --limit {len(groups)}")
    session.output.note(f"next: {groups[0].command}" if groups else "no job is dead or waits for a retry")
