"""``wait``: wait until jobs are finished."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

import click

from holdfast.admin.views.jobs import decoded_job, masked_job
from holdfast.admin.views.masking import Masks
from holdfast.cli.command import command
from holdfast.cli.job_filter import selects_all, with_job_filter
from holdfast.cli.session import CliSession
from holdfast.cli.text import job_table
from holdfast.domain.jobs.job import LIVE, Job, JobId, State
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.quantities import as_duration
from holdfast.errors import InvalidInput, NoSuchJob, WaitTimeout
from holdfast.output.progress_bar import progress

EXIT_CODES = {State.DONE: 0, State.DEAD: 1, State.CANCELLED: 12}
PARTIAL = 6
POLL_INTERVAL_S = 0.2


@command("wait", answers="JOBS")
@with_job_filter
@click.option("--timeout", metavar="TIME", help="Give up after so long, with exit 10.")
def wait(session: CliSession, *, selector: Selector, timeout: str | None) -> int:
    """Wait until all jobs that match now have ended.

    Of jobs with the same unique key only the newest counts, unless you name them by id. Exit 0 when all are done, 1
    when all are dead, 12 when all were cancelled, 6 when they differ.
    """
    if selects_all(selector):
        raise InvalidInput("which jobs should be waited for?", hint="Give ids, or --label, --queue … or --filter.")
    session.store.views.refuse_missing(selector)
    ids = _newest(session.store.views.all(selector), named=selector.ids is not None)
    if not ids:
        raise NoSuchJob("no job matches", hint="holdfast ls with the same options shows what does.")
    _wait(session, Selector(ids=ids), None if timeout is None else as_duration(timeout).total_seconds())
    session.store.views.refuse_missing(Selector(ids=ids))  # a job that was deleted meanwhile has no result
    masks = Masks(session.store)
    jobs = [masked_job(job, masks) for job in session.store.views.all(Selector(ids=ids))]
    session.output.items("jobs", jobs, job_table, data=decoded_job)
    codes = {EXIT_CODES[job.state] for job in jobs}
    return codes.pop() if len(codes) == 1 else PARTIAL


def _newest(jobs: Iterable[Job], *, named: bool) -> tuple[JobId, ...]:
    """The ids of the jobs; of those with one kind and key only the newest: it replaces the failures before it."""
    newest: dict[object, JobId] = {}
    for job in jobs:
        name = job.id if named or job.key is None else (job.kind, job.key)
        newest[name] = max(job.id, newest.get(name, job.id))
    return tuple(newest.values())


def _wait(session: CliSession, selector: Selector, timeout_s: float | None) -> None:
    began, pause, total = time.monotonic(), threading.Event(), len(selector.ids or ())
    with progress(session.output, "waiting for jobs", total) as update:
        while left := session.store.views.count(selector.only(*LIVE), cap=1_000_000).count:
            if timeout_s is not None and time.monotonic() - began > timeout_s:
                raise WaitTimeout(f"{left} jobs had not ended in time", left=left)
            update(total - left, 0)
            pause.wait(POLL_INTERVAL_S)
