"""``wait``: wait until jobs are finished."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

import click

from holdfast.admin.views.jobs import count_jobs, decoded_job, list_jobs, newest_ids
from holdfast.cli.command import command
from holdfast.cli.job_filter import selects_all, with_job_filter
from holdfast.cli.jobs.list import JOBS
from holdfast.cli.session import CliSession
from holdfast.cli.text import Table, with_table
from holdfast.domain.jobs.job import LIVE, Job, State
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.quantities import as_duration, count_of
from holdfast.errors import HoldfastError, InvalidInput, NoSuchJob, WaitTimeout
from holdfast.output.progress_bar import progress
from holdfast.worker.dead_workers import TAKE_OVER_INTERVAL_S, take_over_from_dead

EXIT_CODES = {State.DONE: 0, State.DEAD: 1, State.CANCELLED: 12}
PARTIAL = 6
POLL_INTERVAL_S = 0.2


@command("wait", answers="JOBS")
@with_job_filter
@click.option("--timeout", metavar="TIME", help="Maximum wait; exit 10 after it.")
@with_table(JOBS)
def wait(session: CliSession, *, selector: Selector, timeout: str | None, table: Table[Job]) -> int:
    """Wait until all jobs that match now have finished.

    Of jobs with the same unique key only the newest counts, unless you name them by id. Exit 0 when all are done, 1
    when all are dead, 12 when all were cancelled, 6 when they differ.

    Examples:
      holdfast wait 17 18 --timeout 10m
      holdfast wait --label nightly && ./publish.sh
    """
    if selects_all(selector):
        raise InvalidInput("no job is named", hint="Give ids, or --label, --queue … or --filter.")
    ids = newest_ids(session.store, selector)
    if not ids:
        raise NoSuchJob("no job matches", hint="holdfast ls with the same options shows what does.")
    _wait(session, Selector(ids=ids), None if timeout is None else as_duration(timeout).total_seconds())
    jobs = list(list_jobs(session.store, Selector(ids=ids)))  # refuses one that was deleted meanwhile: it has no result
    session.output.items("jobs", jobs, table.lines, data=decoded_job)
    codes = {EXIT_CODES[job.state] for job in jobs}
    return codes.pop() if len(codes) == 1 else PARTIAL


def _take_over_from_dead(session: CliSession) -> None:
    """Finish the leases of workers that were killed on this host: there may be no other worker to do so."""
    with suppress(HoldfastError):  # a person who may only read waits for the leases to expire
        for _ in take_over_from_dead(session.store, socket.gethostname()):
            pass


def _wait(session: CliSession, selector: Selector, timeout_s: float | None) -> None:
    began, pause, total = time.monotonic(), threading.Event(), len(selector.ids or ())
    search_at = began
    with progress(session.output, "waiting for jobs", total) as update:
        while left := count_jobs(session.store, selector.only(*LIVE), cap=1_000_000).count:
            session.refuse_moved()  # no worker runs its jobs any more
            if timeout_s is not None and time.monotonic() - began > timeout_s:
                raise WaitTimeout(f"{count_of(left, 'job', 'jobs')} did not finish in time", left=left)
            if time.monotonic() >= search_at:
                search_at = time.monotonic() + TAKE_OVER_INTERVAL_S
                _take_over_from_dead(session)
            update(total - left, 0)
            pause.wait(POLL_INTERVAL_S)
