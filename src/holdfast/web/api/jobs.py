"""Jobs over HTTP: lists, stories, logs, enqueueing, verbs, clusters of errors."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from holdfast.admin.actions.actions import Changed, EnqueuedJob
from holdfast.admin.actions.jobs import job_action
from holdfast.admin.views.jobs import JobView, job_detail, list_views
from holdfast.admin.views.logs import LogPart, find_log, read_log, search_log
from holdfast.admin.views.overview import DashboardView, dashboard_view, error_clusters
from holdfast.domain.access.roles import SEARCHING, Role
from holdfast.domain.commands.command import COMMAND
from holdfast.domain.jobs.error_clusters import Cluster
from holdfast.domain.jobs.filter import parse_filter
from holdfast.domain.jobs.history import Attempt, Event
from holdfast.domain.jobs.job import JobId
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.why import WhyReason
from holdfast.errors import InvalidInput, NotFound
from holdfast.store.fleet.dashboard import DependencyEdge
from holdfast.store.jobs.queries import Count
from holdfast.web.api.endpoint import MOST, ApiRequest, Endpoint

Limit = Annotated[int, Meta(ge=1, le=MOST)]
Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Text = Annotated[str, Meta(max_length=2000)]
Name = Annotated[str, Meta(max_length=200)]

#: Dead jobs that are looked at for their errors.
LOOKED_AT = 2000


class JobsAsked(Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs: a filter as of the command line, and a page of them, the newest first."""

    filter: Text = ""
    before: Number | None = None
    limit: Limit = 50


class JobsPage(Struct, frozen=True):
    """Some jobs, without payload and result, and where the next page begins."""

    jobs: list[JobView]  # type: ignore[valid-type]
    next: int | None


class CountAsked(Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs to count."""

    filter: Text = ""


class JobAnswer(Struct, frozen=True):
    """One job: where it stands and why, its attempts, its history, what it needs and what needs it."""

    job: JobView  # type: ignore[valid-type]
    attempts: list[Attempt]
    events: list[Event]
    why: list[WhyReason]
    edges: list[DependencyEdge]


class LogAsked(Struct, frozen=True, forbid_unknown_fields=True):
    """Which part of a log: of an attempt by its number (the last), from a byte on (its end), or lines with a text."""

    attempt: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    begin: Number | None = None
    search: Name | None = None


class LogFound(Struct, frozen=True):
    """A part of a log, or the lines that were *found* with their numbers."""

    job: int
    attempt: int
    part: LogPart | None
    found: list[tuple[int, str]]


class EnqueueBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A job to be made. *after*: jobs that must be done before; *dry_run*: only check it."""

    kind: Name
    payload: dict[str, Any] = {}
    queue: Name | None = None
    priority: Annotated[int, Meta(ge=-(2**31), lt=2**31)] | None = None
    delay: Name | None = None
    run_at: datetime | None = None
    label: Name | None = None
    key: Name | None = None
    after: Annotated[list[Number], Meta(max_length=1000)] = []
    hold: bool = False
    dry_run: bool = False


class JobAct(Struct, frozen=True, forbid_unknown_fields=True):
    """A verb of the command line on the jobs that a filter matches; *dry_run* says how many, and does nothing."""

    action: Name
    filter: Text
    note: Text | None = None
    priority: Annotated[int, Meta(ge=-(2**31), lt=2**31)] | None = None
    to_queue: Name | None = None
    run_at: Name | None = None
    dry_run: bool = False


class Clusters(Struct, frozen=True):
    """Dead jobs whose errors look alike; *looked_at* of the newest were looked at."""

    clusters: list[Cluster]
    looked_at: int


class ClusterAct(Struct, frozen=True, forbid_unknown_fields=True):
    """``retry`` or ``rm`` the dead jobs of a cluster."""

    action: Name
    cluster: Annotated[str, Meta(pattern="^[0-9a-f]{12}$")]
    dry_run: bool = False


def overview(ask: ApiRequest) -> DashboardView:
    return dashboard_view(ask.store)


def jobs(ask: ApiRequest) -> dict[str, Any]:
    before = None if ask.query.before is None else JobId(ask.query.before)
    page = ask.store.views.page(_selector(ask), before=before, limit=ask.query.limit, brief=True)
    return {"jobs": list_views(page.jobs, ask.masks, ask.store), "next": page.next}


def count(ask: ApiRequest) -> Count:
    return ask.store.views.count(_selector(ask))


def _selector(ask: ApiRequest) -> Selector:
    """The jobs that are asked for."""
    selector = parse_filter(ask.query.filter)
    if selector.error is not None:
        ask.need(Role.OPERATOR, SEARCHING)
    return selector


def job(ask: ApiRequest) -> dict[str, Any]:
    story = ask.store.dashboard.job_record(JobId(ask.id))
    told = job_detail(story, ask.masks)
    parts = {"attempts": told.attempts, "events": told.events, "why": told.why, "edges": story.edges}
    return {"job": told.job, **parts}


def log(ask: ApiRequest) -> LogFound:
    story = ask.store.dashboard.job_record(JobId(ask.id))
    number = len(story.attempts) if ask.query.attempt is None else ask.query.attempt
    if not 1 <= number <= len(story.attempts):
        raise NotFound(f"job {ask.id} has run {len(story.attempts)} times")
    attempt = story.attempts[number - 1]
    path, values = find_log(ask.site.logs, story.job, attempt.token), ask.masks.values(story.job)
    if ask.query.search is not None:
        return LogFound(ask.id, number, None, search_log(path, values, ask.query.search))
    part = read_log(path, values, begin=ask.query.begin, finished=attempt.finished_at is not None)
    return LogFound(ask.id, number, part, [])


def enqueue(ask: ApiRequest) -> EnqueuedJob:
    told: EnqueueBody = ask.body
    if told.kind == COMMAND:
        ask.need(Role.ADMIN, "to add programs")
    return ask.actions.enqueue(
        told.kind,
        told.payload,
        queue=told.queue,
        priority=told.priority,
        delay=told.delay,
        run_at=told.run_at,
        label=told.label,
        key=told.key,
        after=told.after,
        hold=told.hold,
        dry_run=told.dry_run,
    )


def act(ask: ApiRequest) -> Changed:
    told: JobAct = ask.body
    action = job_action(told.action)
    ask.need(action.role, f"to {told.action} jobs")
    given: dict[str, Any] = {"note": told.note} if action.note else {}
    if told.action == "set":
        given = {"priority": told.priority, "to_queue": told.to_queue, "run_at": told.run_at}
        if all(value is None for value in given.values()):
            raise InvalidInput("nothing to change", hint="Give priority, to_queue or run_at.")
    return ask.actions.jobs(told.action, parse_filter(told.filter), dry_run=told.dry_run, **given)


def errors(ask: ApiRequest) -> Clusters:
    found = ask.store.dashboard.errors(limit=LOOKED_AT)
    return Clusters(error_clusters(found, ask.masks), len(found))


def act_on_errors(ask: ApiRequest) -> Changed:
    if ask.body.action not in ("retry", "rm"):
        raise InvalidInput(f"a cluster cannot be told to {ask.body.action!r}", hint="Verbs: retry, rm.")
    ask.need(job_action(ask.body.action).role, f"to {ask.body.action} jobs")
    return ask.actions.cluster(ask.body.action, ask.body.cluster, dry_run=ask.body.dry_run)


ENDPOINTS = (
    Endpoint(method="GET", path="/overview", text="Everything at one look.", act=overview, answer=DashboardView),
    Endpoint(method="GET", path="/jobs", text="Jobs that match.", act=jobs, query=JobsAsked, answer=JobsPage),
    Endpoint(
        method="GET",
        path="/jobs/count",
        text="How many match, up to 10,000.",
        act=count,
        query=CountAsked,
        answer=Count,
    ),
    Endpoint(method="GET", path="/jobs/{id:int}", text="One job with its history.", act=job, answer=JobAnswer),
    Endpoint(
        method="GET",
        path="/jobs/{id:int}/log",
        text="What a program has written, if it ran on the server's host.",
        act=log,
        query=LogAsked,
        answer=LogFound,
    ),
    Endpoint(
        method="POST",
        path="/jobs",
        text="Enqueue a job; programs need the role admin.",
        act=enqueue,
        body=EnqueueBody,
        answer=EnqueuedJob,
        role=Role.OPERATOR,
        status=201,
    ),
    Endpoint(
        method="POST",
        path="/jobs/act",
        text="Do a verb to the jobs that match.",
        act=act,
        body=JobAct,
        answer=Changed,
        role=Role.OPERATOR,
    ),
    Endpoint(method="GET", path="/errors", text="Dead jobs whose errors look alike.", act=errors, answer=Clusters),
    Endpoint(
        method="POST",
        path="/errors/act",
        text="Retry or remove the jobs of a cluster.",
        act=act_on_errors,
        body=ClusterAct,
        answer=Changed,
        role=Role.OPERATOR,
    ),
)
