"""The pages of one job, its log and its dependencies."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from starlette.responses import Response

from holdfast.admin.actions.table import Action, Target
from holdfast.admin.views.job_detail import job_edges, job_record
from holdfast.admin.views.jobs import decoded_job, job_page
from holdfast.admin.views.logs import JobLogs
from holdfast.domain.commands.command import COMMAND
from holdfast.domain.jobs.job import ControlRequest, Job, JobId, State
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import HoldfastError
from holdfast.web.pages import charts
from holdfast.web.pages.action import ActionForm, notice, offered
from holdfast.web.pages.format import plain
from holdfast.web.pages.jobs import job_rows
from holdfast.web.request import Request

MAX_WAITING_JOBS = 50


class JobProgress(Struct, frozen=True):
    """The progress that a job reports. *rate* is per second; *left* is the estimated remaining time."""

    done: int
    total: int | None
    message: str | None
    rate: float | None
    left: timedelta | None


def job_progress(job: Job, now: datetime) -> JobProgress | None:
    """The progress of a job; None if it reports none. The rate covers the current attempt."""
    if job.progress_done is None:
        return None
    rate = job.progress_rate(now)
    left = None
    if rate and job.progress_total is not None:
        left = timedelta(seconds=max(0, job.progress_total - job.progress_done) / rate)
    return JobProgress(job.progress_done, job.progress_total, job.progress_message, rate, left)


def show_job(request: Request) -> Response:
    record = job_record(request.store, request.id)
    job = record.job
    stretches = charts.timeline(job, record.attempts, record.events, record.now)
    return request.page(
        "job.html",
        "jobs",
        job=decoded_job(job),
        row=job,
        why=record.why,
        attempts=list(reversed(record.attempts)),
        events=list(reversed(record.events)),
        edges=record.edges,
        progress=job_progress(job, record.now),
        stretches=stretches,
        first=stretches[0].begin if stretches else job.created_at,
        last=job.finished_at or record.now,
        actions=_buttons(request, job),
        is_command=job.kind == COMMAND,
        seen_at=record.seen_at,
        now=record.now,
        cli=f"holdfast show {job.id}",
    )


def _buttons(request: Request, job: Job) -> list[Action]:
    """The actions that can change the job. A running job can resume only if its pause was requested."""
    pausing = job.state is State.RUNNING and job.requested is ControlRequest.PAUSE
    without = ("pause",) if pausing else ("resume",) if job.state is State.RUNNING else ()
    return offered(request, Target.JOB, job.state, without=without)


def change_job(request: Request) -> Response:
    form = ActionForm(request, request.actions.jobs, request.field("action"), Selector(ids=(JobId(request.id),)))
    options: dict[str, Any] = {}
    if form.action.name == "set":
        options = {"priority": request.field_number("priority")}
        options |= {name: request.field(name) or None for name in ("to_queue", "run_at")}
    done = form.perform(**options)
    return request.done(notice(done), "jobs" if form.action.name == "rm" and done.changed else f"jobs/{request.id}")


def show_log(request: Request) -> Response:
    """The log of one attempt: its end, which follows a running command, or the lines that contain a text."""
    logs = JobLogs(request.store, request.site.logs, request.id)
    job, attempts = logs.job, logs.attempts()
    token = request.query_number("token")
    if token is None:
        token = attempts[-1].token if attempts else job.token
    search, part, matches, error = request.query("find"), None, None, None
    try:
        if search:
            with request.site.searches.slot(request.caller.name):
                matches = logs.search(token, search)
        else:
            part = logs.read(token, begin=request.query_number("from"))
    except HoldfastError as refusal:
        error = refusal
    return request.page(
        "log.html",
        "jobs",
        job=decoded_job(job),
        attempts=attempts,
        token=token,
        part=part,
        matches=matches,
        search=search,
        error=error,
        plain=plain,
        running=job.state is State.RUNNING and token == job.token,
        cli=f"holdfast log {job.id}" + (" --follow" if job.state is State.RUNNING else ""),
    )


def show_dependencies(request: Request) -> Response:
    """The dependencies and dependents of a job; without one, the jobs that wait for others."""
    text, number = request.query("job"), request.query_number("job")
    if number is None:
        waiting = job_rows(job_page(request.store, Selector(states=(State.WAITING,)), limit=MAX_WAITING_JOBS).jobs)
        cli = "holdfast ls --state waiting"
        return request.page("dependencies.html", job=None, waiting=waiting, number=text, cli=cli)
    job, edges = job_edges(request.store, number)
    return request.page(
        "dependencies.html",
        job=decoded_job(job),
        edges=edges,
        graph=charts.graph(charts.nodes(job, edges), edges, request.base) if edges else "",
        number=text,
        cli=f"holdfast show {job.id}",
    )
