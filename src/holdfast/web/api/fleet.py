"""Queues, workers, the stop switch, kinds, saved filters and the audit log over HTTP."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, structs

from holdfast.admin.actions.changed import Changed
from holdfast.admin.actions.options import NoteOptions, QueueActionOptions
from holdfast.admin.actions.table import Target, find_action, options_of
from holdfast.admin.views.access import audit_views, filter_views
from holdfast.admin.views.fleet import (
    KindView,
    QueueView,
    WorkerView,
    kind_views,
    queue_views,
    running_jobs,
    stop_view,
    worker_views,
)
from holdfast.domain.access.audit import AuditEntry
from holdfast.domain.access.roles import Role
from holdfast.domain.fleet.stop_switch import StopSwitch
from holdfast.domain.jobs.job import RunningJob
from holdfast.domain.jobs.selector import SavedFilter
from holdfast.web.api.openapi import Limit, Name, Number, Text, get, post
from holdfast.web.request import Request

RequiredName = Annotated[str, Meta(min_length=1, max_length=200)]


class QueueList(Struct, frozen=True):
    """The queues that have settings or jobs, and their rates."""

    queues: list[QueueView]


class QueueActionBody(QueueActionOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An action of the command line on a queue, with its options. A limit of 0 removes the limit."""

    queue: RequiredName
    action: Name
    dry_run: bool = False


class WorkerList(Struct, frozen=True):
    """The workers that have not stopped, lost ones for a day, and their running jobs."""

    workers: list[WorkerView]
    running: list[RunningJob]


class WorkerActionBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A request to a worker. It receives the request with its next heartbeat."""

    worker: Name
    action: Name
    dry_run: bool = False


class StopSwitchView(Struct, frozen=True):
    """Who has stopped the whole store, why and when; null if it is not stopped."""

    stopped: StopSwitch | None


class StopSwitchBody(NoteOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Stop the whole store, or let it continue. An emergency stop also stops running jobs, and holds them."""

    action: Name
    dry_run: bool = False


class KindList(Struct, frozen=True):
    """Kinds that can be enqueued."""

    kinds: list[KindView]


class AuditLogQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """A page of audit entries, newest first: all, those of one person, or those on targets that contain a text."""

    before: Number | None = None
    limit: Limit = 50
    actor: Name | None = None
    text: Name | None = None


class AuditLogPage(Struct, frozen=True):
    """Some audit entries, and where the next page begins."""

    entries: list[AuditEntry]
    next: int | None


class FilterList(Struct, frozen=True):
    """Filters that people saved by name."""

    filters: list[SavedFilter]


class FilterActionBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Save a filter under a name, or ``rm`` it."""

    action: Literal["save", "rm"]
    name: RequiredName
    filter: Text = ""
    dry_run: bool = False


class Me(Struct, frozen=True):
    """The caller and their role."""

    name: str
    role: Role


@get("/me")
def read_me(request: Request) -> Me:
    """The caller."""
    return Me(request.caller.name, request.caller.role)


@get("/queues")
def list_queues(request: Request) -> QueueList:
    """List queues and their rates."""
    return QueueList(queue_views(request.store))


@post("/queues/action")
def change_queue(request: Request, body: QueueActionBody) -> Changed:
    """Limit, pause or resume a queue."""
    action = find_action(Target.QUEUE, body.action)
    request.require(action.role)
    options = options_of(action, body, "action", "queue", "dry_run")
    return request.actions.queues.perform(action.name, body.queue, dry_run=body.dry_run, **options)


@get("/stop-switch")
def read_stop_switch(request: Request) -> StopSwitchView:
    """Whether the whole store is stopped, and by whom."""
    return StopSwitchView(stop_view(request.store))


@post("/stop-switch/action")
def change_stop_switch(request: Request, body: StopSwitchBody) -> Changed:
    """Drain or stop the whole store, or let it continue."""
    action = find_action(Target.STORE, body.action)
    request.require(action.role)
    options = options_of(action, body, "action", "dry_run")
    return request.actions.stop_switch.perform(action.name, None, dry_run=body.dry_run, **options)


@get("/workers")
def list_workers(request: Request) -> WorkerList:
    """List workers and their running jobs."""
    return WorkerList(worker_views(request.store), running_jobs(request.store))


@post("/workers/action")
def change_worker(request: Request, body: WorkerActionBody) -> Changed:
    """Request that a worker claims no more jobs, stops, or claims jobs again."""
    request.require(find_action(Target.WORKER, body.action).role)
    return request.actions.workers.perform(body.action, body.worker, dry_run=body.dry_run)


@get("/kinds")
def list_kinds(request: Request) -> KindList:
    """Kinds that can be enqueued."""
    return KindList(kind_views(request.store))


@get("/audit-log")
def read_audit_log(request: Request, query: AuditLogQuery) -> AuditLogPage:
    """List the actions of people."""
    entries = audit_views(request.store, **structs.asdict(query))
    return AuditLogPage(entries, entries[-1].id if len(entries) == query.limit else None)


@get("/filters")
def list_filters(request: Request) -> FilterList:
    """Saved filters."""
    return FilterList(filter_views(request.store))


@post("/filters/action")
def change_filter(request: Request, body: FilterActionBody) -> FilterList:
    """Save a filter, or delete it."""
    with request.actions.on_trial(body.dry_run) as actions:
        if body.action == "save":
            actions.jobs.save_filter(body.name, body.filter)
        else:
            actions.jobs.delete_filter(body.name)
        return FilterList(filter_views(actions.store))
