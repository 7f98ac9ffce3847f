"""Jobs over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, structs

from holdfast.admin.actions.actions import EnqueuedJob
from holdfast.admin.actions.changed import Changed
from holdfast.admin.actions.options import JobActionOptions
from holdfast.admin.actions.table import Target, find_action, options_of
from holdfast.admin.views.job_detail import JobDetail, JobView, job_detail, job_record
from holdfast.admin.views.jobs import count_jobs as count
from holdfast.admin.views.jobs import decoded_job, job_page
from holdfast.admin.views.logs import JobLogs, LogPart
from holdfast.admin.views.overview import ErrorClusters, Overview, error_clusters, overview
from holdfast.domain.access.roles import TEXT_SEARCH, Role
from holdfast.domain.commands.command import COMMAND
from holdfast.domain.jobs.dependencies import DependencyEdge
from holdfast.domain.jobs.enqueue_options import EnqueueOptions
from holdfast.domain.jobs.job import JobId
from holdfast.domain.jobs.selector import Count, Selector, parse_filter
from holdfast.errors import NotFound
from holdfast.web.api.openapi import ClusterKey, Limit, Name, Number, Text, get, post
from holdfast.web.request import Request


class JobsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """A filter of jobs, as on the command line, and a page of them, newest first."""

    filter: Text = ""
    before: Number | None = None
    limit: Limit = 50


class JobsPage(Struct, frozen=True):
    """Some jobs, without payload and result, and where the next page begins."""

    jobs: list[JobView]  # type: ignore[valid-type]
    next: int | None


class CountQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """A filter of the jobs to count."""

    filter: Text = ""


class JobAnswer(JobDetail, frozen=True):
    """One job: its state and why, its attempts, its history, its dependencies and its dependents."""

    edges: list[DependencyEdge]


class LogQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a log: attempt number [the last], first byte [the end of the log], or lines that contain a text."""

    attempt: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    begin: Number | None = None
    search: Name | None = None


class LogLine(Struct, frozen=True):
    """A line of a log."""

    number: int
    text: str


class LogSearch(Struct, frozen=True):
    """A part of a log, or lines that match a text, with their numbers; *complete*: the search reached the end."""

    job: int
    attempt: int
    part: LogPart | None
    matches: list[LogLine]
    complete: bool = True


class EnqueueBody(EnqueueOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job to create, with the options of an enqueue. *dry_run*: only check it."""

    kind: Name
    payload: dict[str, Any] = {}  # noqa: RUF012 - msgspec copies the default
    dry_run: bool = False


class JobActionBody(JobActionOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An action of the command line on the jobs that a filter matches, with its options."""

    action: Name
    filter: Text
    dry_run: bool = False


class ClusterActionBody(Struct, frozen=True, forbid_unknown_fields=True):
    """``retry`` or ``rm`` the dead jobs of a cluster."""

    action: Name
    cluster: ClusterKey
    dry_run: bool = False


@get("/overview")
def read_overview(request: Request) -> Overview:
    """Overview of the store."""
    return overview(request.store)


@get("/jobs")
def list_jobs(request: Request, query: JobsQuery) -> JobsPage:
    """List jobs."""
    page = job_page(request.store, _selector(request, query.filter), before=query.before, limit=query.limit)
    return JobsPage([decoded_job(job, brief=True) for job in page.jobs], page.next)


@get("/jobs/count")
def count_jobs(request: Request, query: CountQuery) -> Count:
    """Count jobs, up to 10,000."""
    return count(request.store, _selector(request, query.filter))


def _selector(request: Request, text: str) -> Selector:
    selector = parse_filter(text)
    if selector.searches_text:
        request.require(Role.OPERATOR, TEXT_SEARCH)
    return selector


@get("/jobs/{id:int}")
def read_job(request: Request, job_id: JobId) -> JobAnswer:
    """One job with its history."""
    record = job_record(request.store, job_id)
    return JobAnswer(**structs.asdict(job_detail(record)), edges=record.edges)


@get("/jobs/{id:int}/log")
def read_job_log(request: Request, job_id: JobId, query: LogQuery) -> LogSearch:
    """The output of a command, if it ran on the server's host."""
    logs = JobLogs(request.store, request.site.logs, job_id)
    attempts = logs.attempts()
    number = len(attempts) if query.attempt is None else query.attempt
    if not 1 <= number <= len(attempts):
        raise NotFound(f"job {job_id} has run {len(attempts)} times")
    token = attempts[number - 1].token
    if query.search is None:
        return LogSearch(job_id, number, logs.read(token, begin=query.begin), [])
    with request.site.searches.slot(request.caller.name):
        matches = logs.search(token, query.search)
    return LogSearch(job_id, number, None, [LogLine(*line) for line in matches.lines], matches.complete)


@post("/jobs", status=201)
def enqueue_job(request: Request, body: EnqueueBody) -> EnqueuedJob:
    """Enqueue a job; commands need the role admin."""
    if body.kind == COMMAND:
        request.require(Role.ADMIN, "adding commands")
    options = {name: getattr(body, name) for name in EnqueueOptions.__struct_fields__}
    return request.actions.jobs.enqueue(body.kind, body.payload, dry_run=body.dry_run, **options)


@post("/jobs/action")
def change_jobs(request: Request, body: JobActionBody) -> Changed:
    """Perform an action on the jobs that match. If nothing could be changed, the answer gives the reason."""
    action = find_action(Target.JOB, body.action)
    request.require(action.role, f"{action.name} on jobs")
    options = options_of(action, body, "action", "filter", "dry_run")
    return request.actions.jobs.perform(action.name, parse_filter(body.filter), dry_run=body.dry_run, **options)


@get("/errors")
def list_errors(request: Request) -> ErrorClusters:
    """Dead and retrying jobs with similar errors."""
    return error_clusters(request.store)


@post("/errors/action")
def change_cluster(request: Request, body: ClusterActionBody) -> Changed:
    """Retry or delete the dead jobs of a cluster."""
    request.require(find_action(Target.JOB, body.action).role, f"{body.action} on jobs")
    return request.actions.jobs.perform_on_cluster(body.action, body.cluster, dry_run=body.dry_run)
