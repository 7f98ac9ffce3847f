"""Queues, workers, kinds, acts and saved filters over HTTP."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from holdfast.admin.actions.actions import WorkerAsked
from holdfast.admin.views.masking import schema_of
from holdfast.admin.views.overview import QueueSummary, queue_summaries
from holdfast.domain.access.roles import AuditEntry, Role
from holdfast.errors import InvalidInput
from holdfast.store.access.audit import NEWEST
from holdfast.store.access.saved_filters import SavedFilter
from holdfast.store.fleet.dashboard import RunningJob
from holdfast.store.fleet.overview import QueueView, WorkerView, worker_views
from holdfast.web.api.endpoint import ApiRequest, Endpoint
from holdfast.web.api.jobs import Limit, Name, Number, Text

Slots = Annotated[int, Meta(ge=0, lt=2**31)]


class QueuesFound(Struct, frozen=True):
    """The queues that have settings or jobs, and how fast they go."""

    queues: list[QueueSummary]


class QueueAct(Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be changed of a queue; a limit of 0 takes it away."""

    queue: Annotated[str, Meta(min_length=1, max_length=200)]
    limit: Slots | None = None
    worker_limit: Slots | None = None
    paused: bool | None = None
    note: Text | None = None
    dry_run: bool = False


class WorkersFound(Struct, frozen=True):
    """The workers that are alive, and what they run."""

    workers: list[WorkerView]
    running: list[RunningJob]


class WorkerAct(Struct, frozen=True, forbid_unknown_fields=True):
    """What a worker is asked; it obeys with its next heartbeat."""

    worker: Name
    request: Literal["quiet", "stop", "go-on"]
    dry_run: bool = False


class KindView(Struct, frozen=True):
    """A kind that an application has registered; *payload_schema* is the JSON Schema of its parameters, as a text."""

    name: str
    payload_schema: str
    version: str | None


class KindsFound(Struct, frozen=True):
    kinds: list[KindView]


class ActsAsked(Struct, frozen=True, forbid_unknown_fields=True):
    """What people did, the newest first: all, or by one person, or to a target that holds a text."""

    before: Number | None = None
    limit: Limit = 50
    actor: Name | None = None
    text: Name | None = None


class ActsPage(Struct, frozen=True):
    acts: list[AuditEntry]
    next: int | None


class FiltersFound(Struct, frozen=True):
    filters: list[SavedFilter]


class FilterAct(Struct, frozen=True, forbid_unknown_fields=True):
    """Save a filter under a name, or ``rm`` it."""

    action: Literal["save", "rm"]
    name: Annotated[str, Meta(min_length=1, max_length=200)]
    filter: Text = ""
    dry_run: bool = False


class Me(Struct, frozen=True):
    """Who asks, and what they may do."""

    name: str
    role: Role


def me(ask: ApiRequest) -> Me:
    return Me(ask.caller.name, ask.caller.role)


def queues(ask: ApiRequest) -> QueuesFound:
    dashboard = ask.store.dashboard
    return QueuesFound(queue_summaries(dashboard.lanes(), dashboard.queues(), dashboard.tallies()))


def act_on_queue(ask: ApiRequest) -> QueueView:
    told: QueueAct = ask.body
    if told.limit is None and told.worker_limit is None and told.paused is None:
        raise InvalidInput("nothing to change", hint="Give limit, worker_limit or paused.")
    return ask.dry_run_store.queue(
        told.queue, limit=told.limit, worker_limit=told.worker_limit, paused=told.paused, note=told.note
    )


def workers(ask: ApiRequest) -> WorkersFound:
    return WorkersFound([worker_views(found) for found in ask.store.workers.list()], ask.store.dashboard.running())


def act_on_worker(ask: ApiRequest) -> WorkerAsked:
    return ask.dry_run_store.worker(ask.body.worker, ask.body.request)


def kinds(ask: ApiRequest) -> KindsFound:
    found = ask.store.kinds.all()
    return KindsFound([KindView(each.name, schema_of(each, ask.masks.of(each.name)), each.version) for each in found])


def acts(ask: ApiRequest) -> ActsPage:
    asked: ActsAsked = ask.query
    before = NEWEST if asked.before is None else asked.before
    found = ask.store.audit_log.page(before=before, limit=asked.limit, actor=asked.actor, text=asked.text)
    return ActsPage(found, found[-1].id if len(found) == asked.limit else None)


def filters(ask: ApiRequest) -> FiltersFound:
    return FiltersFound(ask.store.saved_filters.list())


def act_on_filter(ask: ApiRequest) -> FiltersFound:
    told: FilterAct = ask.body
    if told.action == "save":
        ask.dry_run_store.save_filter(told.name, told.filter)
    else:
        ask.dry_run_store.drop_filter(told.name)
    return FiltersFound(ask.store.saved_filters.list())


ENDPOINTS = (
    Endpoint(method="GET", path="/me", text="Who asks.", act=me, answer=Me),
    Endpoint(method="GET", path="/queues", text="Queues and how fast they go.", act=queues, answer=QueuesFound),
    Endpoint(
        method="POST",
        path="/queues/act",
        text="Limit, pause or resume a queue.",
        act=act_on_queue,
        body=QueueAct,
        answer=QueueView,
        role=Role.OPERATOR,
    ),
    Endpoint(method="GET", path="/workers", text="Workers and what they run.", act=workers, answer=WorkersFound),
    Endpoint(
        method="POST",
        path="/workers/act",
        text="Ask a worker to be quiet, to stop, or to go on.",
        act=act_on_worker,
        body=WorkerAct,
        answer=WorkerAsked,
        role=Role.OPERATOR,
    ),
    Endpoint(method="GET", path="/kinds", text="Kinds that can be enqueued.", act=kinds, answer=KindsFound),
    Endpoint(method="GET", path="/acts", text="What people did.", act=acts, query=ActsAsked, answer=ActsPage),
    Endpoint(method="GET", path="/filters", text="Saved filters.", act=filters, answer=FiltersFound),
    Endpoint(
        method="POST",
        path="/filters/act",
        text="Save a filter, or remove it.",
        act=act_on_filter,
        body=FilterAct,
        answer=FiltersFound,
        role=Role.OPERATOR,
    ),
)
