"""Queues, workers, the stop switch, kinds, saved filters and the audit log over HTTP."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from holdfast.admin.actions.actions import StopChanged, WorkerRequestSent
from holdfast.admin.views.masking import schema_of
from holdfast.admin.views.overview import QueueSummary, queue_summaries, stop_view
from holdfast.domain.access.roles import AuditEntry, Role
from holdfast.domain.fleet.stop_switch import StopMode, StopSwitch
from holdfast.domain.jobs.kind_options import is_unit_function
from holdfast.errors import InvalidInput
from holdfast.store.access.audit import NEWEST
from holdfast.store.access.saved_filters import SavedFilter
from holdfast.store.fleet.dashboard import RunningJob
from holdfast.store.fleet.overview import QueueView, WorkerView, worker_views
from holdfast.web.api.openapi import Limit, Name, Number, Text, get, post
from holdfast.web.request import Request

Slots = Annotated[int, Meta(ge=0, lt=2**31)]
RequiredName = Annotated[str, Meta(min_length=1, max_length=200)]


class QueueList(Struct, frozen=True):
    """The queues that have settings or jobs, and how fast they go."""

    queues: list[QueueSummary]


class QueueActionBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be changed of a queue; a limit of 0 takes it away."""

    queue: RequiredName
    limit: Slots | None = None
    worker_limit: Slots | None = None
    paused: bool | None = None
    note: Text | None = None
    dry_run: bool = False


class WorkerList(Struct, frozen=True):
    """The workers that are alive, and what they run."""

    workers: list[WorkerView]
    running: list[RunningJob]


class WorkerActionBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What a worker is asked; it obeys with its next heartbeat."""

    worker: Name
    request: Literal["quiet", "stop", "go-on"]
    dry_run: bool = False


class StopSwitchView(Struct, frozen=True):
    """Who has stopped the whole store, why and when; null if it is not stopped."""

    stopped: StopSwitch | None


class StopSwitchBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Stop the whole store, or let it go on. An emergency stop also stops running jobs, and holds them."""

    action: Literal["drain", "emergency-stop", "resume"]
    note: Text | None = None
    dry_run: bool = False


class KindView(Struct, frozen=True):
    """A kind that an application has registered; *payload_schema* is the JSON Schema of its parameters, as a text."""

    name: str
    payload_schema: str
    version: int


class KindList(Struct, frozen=True):
    """Kinds that can be enqueued."""

    kinds: list[KindView]


class AuditLogQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """What people did, the newest first: all, or by one person, or to a target that holds a text."""

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
    """Who asks, and what they may do."""

    name: str
    role: Role


@get("/me")
def read_me(request: Request) -> Me:
    """Who asks."""
    return Me(request.caller.name, request.caller.role)


@get("/queues")
def list_queues(request: Request) -> QueueList:
    """Queues and how fast they go."""
    dashboard = request.store.dashboard
    return QueueList(queue_summaries(dashboard.lanes(), dashboard.queues(), dashboard.tallies()))


@post("/queues/action")
def change_queue(request: Request, body: QueueActionBody) -> QueueView:
    """Limit, pause or resume a queue."""
    if body.limit is None and body.worker_limit is None and body.paused is None:
        raise InvalidInput("nothing to change", hint="Give limit, worker_limit or paused.")
    return request.actions.dry_run(body.dry_run).fleet.set_queue(
        body.queue, limit=body.limit, worker_limit=body.worker_limit, paused=body.paused, note=body.note
    )


@get("/stop-switch")
def read_stop_switch(request: Request) -> StopSwitchView:
    """Whether the whole store is stopped, and by whom."""
    return StopSwitchView(stop_view(request.store))


@post("/stop-switch/action")
def change_stop_switch(request: Request, body: StopSwitchBody) -> StopChanged:
    """Drain or stop the whole store, or let it go on."""
    fleet = request.actions.dry_run(body.dry_run).fleet
    if body.action == "resume":
        return fleet.resume_all()
    return fleet.stop(StopMode.DRAIN if body.action == "drain" else StopMode.STOP, note=body.note)


@get("/workers")
def list_workers(request: Request) -> WorkerList:
    """Workers and what they run."""
    workers = [worker_views(row) for row in request.store.workers.list()]
    return WorkerList(workers, request.store.dashboard.running())


@post("/workers/action")
def change_worker(request: Request, body: WorkerActionBody) -> WorkerRequestSent:
    """Ask a worker to be quiet, to stop, or to go on."""
    return request.actions.dry_run(body.dry_run).fleet.send_request(body.worker, body.request)


@get("/kinds")
def list_kinds(request: Request) -> KindList:
    """Kinds that can be enqueued."""
    rows = [row for row in request.store.kinds.all() if not is_unit_function(row.options)]
    return KindList([KindView(row.name, schema_of(row, request.masks.of(row.name)), row.version) for row in rows])


@get("/audit-log")
def read_audit_log(request: Request, query: AuditLogQuery) -> AuditLogPage:
    """What people did."""
    before = NEWEST if query.before is None else query.before
    entries = request.store.audit_log.page(before=before, limit=query.limit, actor=query.actor, text=query.text)
    return AuditLogPage(entries, entries[-1].id if len(entries) == query.limit else None)


@get("/filters")
def list_filters(request: Request) -> FilterList:
    """Saved filters."""
    return FilterList(request.store.saved_filters.list())


@post("/filters/action")
def change_filter(request: Request, body: FilterActionBody) -> FilterList:
    """Save a filter, or remove it."""
    jobs = request.actions.dry_run(body.dry_run).jobs
    if body.action == "save":
        jobs.save_filter(body.name, body.filter)
    else:
        jobs.delete_filter(body.name)
    return FilterList(request.store.saved_filters.list())
