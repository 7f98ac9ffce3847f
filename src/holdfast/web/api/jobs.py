"""Jobs over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from holdfast.admin.actions.actions import EnqueuedJob
from holdfast.admin.actions.changed import Changed
from holdfast.admin.actions.options import JobActionOptions
from holdfast.admin.actions.table import Target, find_action, options_of
from holdfast.admin.views.jobs import (
    JobView,
    LogPart,
    edge_views,
    find_log,
    job_detail,
    list_views,
    read_log,
    search_log,
)
from holdfast.admin.views.overview import Overview, error_clusters, overview
from holdfast.domain.access.roles import ERROR_SEARCH, Role
from holdfast.domain.commands.command import COMMAND
from holdfast.domain.jobs.enqueue_options import EnqueueOptions
from holdfast.domain.jobs.error_clusters import Cluster
from holdfast.domain.jobs.history import Attempt, Event
from holdfast.domain.jobs.job import JobId
from holdfast.domain.jobs.selector import Selector, parse_filter
from holdfast.domain.jobs.why import WhyReason
from holdfast.errors import NotFound
from holdfast.store.fleet.dashboard import DependencyEdge
from holdfast.store.jobs.queries import Count
from holdfast.web.api.openapi import ClusterKey, Limit, Name, Number, Text, get, post
from holdfast.web.request import Request

#: Dead jobs whose errors are clustered.
MAX_CLUSTERED_JOBS = 2000


class JobsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs: a filter as of the command line, and a page of them, the newest first."""

    filter: Text = ""
    before: Number | None = None
    limit: Limit = 50


class JobsPage(Struct, frozen=True):
    """Some jobs, without payload and result, and where the next page begins."""

    jobs: list[JobView]  # type: ignore[valid-type]
    next: int | None


class CountQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs to count."""

    filter: Text = ""


class JobAnswer(Struct, frozen=True):
    """One job: where it stands and why, its attempts, its history, what it needs and what needs it."""

    job: JobView  # type: ignore[valid-type]
    attempts: list[Attempt]
    events: list[Event]
    why: list[WhyReason]
    edges: list[DependencyEdge]


class LogQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which part of a log: of an attempt by its number (the last), from a byte on (its end), or lines with a text."""

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
    """A job to be made, with the options of an enqueue. *dry_run*: only check it."""

    kind: Name
    payload: dict[str, Any] = {}  # noqa: RUF012 - msgspec copies the default
    dry_run: bool = False


class JobActionBody(JobActionOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An action of the command line on the jobs that a filter matches, with its options."""

    action: Name
    filter: Text
    dry_run: bool = False


class ErrorClusters(Struct, frozen=True):
    """Dead jobs whose errors look alike; *looked_at* of the newest were looked at."""

    clusters: list[Cluster]
    looked_at: int


class ClusterActionBody(Struct, frozen=True, forbid_unknown_fields=True):
    """``retry`` or ``rm`` the dead jobs of a cluster."""

    action: Name
    cluster: ClusterKey
    dry_run: bool = False


@get("/overview")
def read_overview(request: Request) -> Overview:
    """Everything at one look."""
    return overview(request.store, request.masks)


@get("/jobs")
def list_jobs(request: Request, query: JobsQuery) -> JobsPage:
    """Jobs that match."""
    before = None if query.before is None else JobId(query.before)
    page = request.store.views.page(_selector(request, query.filter), before=before, limit=query.limit, brief=True)
    return JobsPage(list_views(page.jobs, request.masks, request.store), page.next)


@get("/jobs/count")
def count_jobs(request: Request, query: CountQuery) -> Count:
    """How many match, up to 10,000."""
    return request.store.views.count(_selector(request, query.filter))


def _selector(request: Request, text: str) -> Selector:
    selector = parse_filter(text)
    if selector.error is not None:
        request.require(Role.OPERATOR, ERROR_SEARCH)
    return selector


@get("/jobs/{id:int}")
def read_job(request: Request, job_id: JobId) -> JobAnswer:
    """One job with its history."""
    record = request.store.dashboard.job_record(job_id)
    detail = job_detail(record, request.masks)
    edges = edge_views(record.edges, request.masks, request.store)
    return JobAnswer(detail.job, detail.attempts, detail.events, detail.why, edges)


@get("/jobs/{id:int}/log")
def read_job_log(request: Request, job_id: JobId, query: LogQuery) -> LogSearch:
    """What a program has written, if it ran on the server's host."""
    record = request.store.dashboard.job_record(job_id)
    number = len(record.attempts) if query.attempt is None else query.attempt
    if not 1 <= number <= len(record.attempts):
        raise NotFound(f"job {job_id} has run {len(record.attempts)} times")
    attempt = record.attempts[number - 1]
    path, secrets = find_log(request.site.logs, record.job, attempt.token), request.masks.values(record.job)
    if query.search is not None:
        with request.site.searches.slot(request.caller.name):
            matches = search_log(path, secrets, query.search)
        return LogSearch(job_id, number, None, [LogLine(*line) for line in matches.lines], matches.complete)
    part = read_log(path, secrets, begin=query.begin, finished=attempt.finished_at is not None)
    return LogSearch(job_id, number, part, [])


@post("/jobs", status=201)
def enqueue_job(request: Request, body: EnqueueBody) -> EnqueuedJob:
    """Enqueue a job; programs need the role admin."""
    if body.kind == COMMAND:
        request.require(Role.ADMIN, "to add programs")
    options = {name: getattr(body, name) for name in EnqueueOptions.__struct_fields__}
    return request.actions.jobs.enqueue(body.kind, body.payload, dry_run=body.dry_run, **options)


@post("/jobs/action")
def change_jobs(request: Request, body: JobActionBody) -> Changed:
    """Perform an action on the jobs that match. If nothing could be changed, the answer says why."""
    action = find_action(Target.JOB, body.action)
    request.require(action.role, f"{action.name} on jobs")
    options = options_of(action, body, "action", "filter", "dry_run")
    return request.actions.jobs.perform(action.name, parse_filter(body.filter), dry_run=body.dry_run, **options)


@get("/errors")
def list_errors(request: Request) -> ErrorClusters:
    """Dead jobs whose errors look alike."""
    jobs = request.store.dashboard.errors(limit=MAX_CLUSTERED_JOBS)
    return ErrorClusters(error_clusters(jobs, request.masks), len(jobs))


@post("/errors/action")
def change_cluster(request: Request, body: ClusterActionBody) -> Changed:
    """Retry or delete the jobs of a cluster."""
    request.require(find_action(Target.JOB, body.action).role, f"{body.action} on jobs")
    return request.actions.jobs.perform_on_cluster(body.action, body.cluster, dry_run=body.dry_run)
