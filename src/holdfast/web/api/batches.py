"""Batches over HTTP."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, structs

from holdfast.admin.actions.batch_start import BatchRequest, BatchStarted, start_batch
from holdfast.admin.actions.batches import UnitCluster
from holdfast.admin.actions.changed import Changed
from holdfast.admin.actions.table import Target, find_action
from holdfast.admin.views import batches as views
from holdfast.admin.views.batches import BatchEventView, BatchList, BatchReader, BatchView, UnitsPage
from holdfast.domain.access.roles import TEXT_SEARCH, Role
from holdfast.domain.batches.batch import BatchId
from holdfast.domain.batches.batch_filter import BatchFilter, batch_filter
from holdfast.domain.batches.unit import UnitState
from holdfast.domain.jobs.error_clusters import Cluster
from holdfast.web.api.openapi import ClusterKey, Limit, Name, Number, get, post
from holdfast.web.request import Request


class BatchConditions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Conditions on batches, all of which must hold. ``*`` in a name matches any text; *state* may list several."""

    state: Name = ""
    function: Name = ""
    name: Name = ""
    owner: Name = ""
    since: Name = ""
    until: Name = ""

    def chosen(self, older_than: str = "") -> BatchFilter:
        states = [state for state in self.state.split(",") if state]
        texts = {name: getattr(self, name) for name in ("function", "name", "owner", "since", "until")}
        return batch_filter(states=states, older_than=older_than, **texts)


class BatchesQuery(BatchConditions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A page of the batches that match, the newest first."""

    before: Number | None = None
    limit: Limit = 20


class BatchAnswer(Struct, frozen=True):
    """A batch, and its failed units by error."""

    batch: BatchView
    clusters: list[Cluster]


class UnitsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Units by key; *text* selects those with this text in key, error or warning."""

    state: UnitState | None = None
    label: Name | None = None
    text: Name | None = None
    after: Annotated[str, Meta(max_length=2000)] = ""
    limit: Limit = 50


class HistoryQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """A page of the history of a batch, the newest event first."""

    before: Number | None = None
    limit: Limit = 50


class BatchHistory(Struct, frozen=True):
    """Some events of a batch, and where the next page begins."""

    events: list[BatchEventView]
    next: int | None


class BatchesActionBody(BatchConditions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``cancel`` or ``rm`` the batches with these *ids*, or those that meet every condition."""

    action: Name
    ids: Annotated[list[Number], Meta(max_length=1000)] = []
    older_than: Name = ""
    dry_run: bool = False


class BatchStartBody(BatchRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A batch to start on the workers. *dry_run*: only check it."""

    dry_run: bool = False


class BatchActionBody(Struct, frozen=True, forbid_unknown_fields=True):
    """An action of the command line on a batch."""

    action: Name
    dry_run: bool = False


class UnitActionBody(Struct, frozen=True, forbid_unknown_fields=True):
    """``retry`` or ``skip`` the failed units of a cluster."""

    action: Name
    cluster: ClusterKey
    dry_run: bool = False


@get("/batches")
def list_batches(request: Request, query: BatchesQuery) -> BatchList:
    """List batches, newest first."""
    if (chosen := query.chosen()).searches_text:
        request.require(Role.OPERATOR, TEXT_SEARCH)
    return views.list_batches(request.store, chosen, before=query.before, limit=query.limit)


@get("/batches/{id:int}")
def read_batch(request: Request, batch_id: BatchId) -> BatchAnswer:
    """One batch."""
    batch = BatchReader(request.store, batch_id)
    return BatchAnswer(batch.view, batch.clusters())


@get("/batches/{id:int}/units")
def list_units(request: Request, batch_id: BatchId, query: UnitsQuery) -> UnitsPage:
    """Units of a batch."""
    if query.text is not None:
        request.require(Role.OPERATOR, TEXT_SEARCH)
    return BatchReader(request.store, batch_id).units(**structs.asdict(query))


@get("/batches/{id:int}/history")
def read_batch_history(request: Request, batch_id: BatchId, query: HistoryQuery) -> BatchHistory:
    """The history of a batch: its runs, requests of people, why it stopped."""
    events = BatchReader(request.store, batch_id).history(before=query.before, limit=query.limit)
    return BatchHistory(events, events[-1].id if len(events) == query.limit else None)


@post("/batches", status=201)
def start_new_batch(request: Request, body: BatchStartBody) -> BatchStarted:
    """Start a batch on the workers; the same request again resumes it."""
    options = {name: getattr(body, name) for name in BatchRequest.__struct_fields__}
    return start_batch(request.actions, BatchRequest(**options), dry_run=body.dry_run)


@post("/batches/action")
def change_batches(request: Request, body: BatchesActionBody) -> Changed:
    """Cancel or delete the batches that match."""
    request.require(find_action(Target.BATCH, body.action).role, f"{body.action} on batches")
    batches = request.actions.batches
    ids = batches.select(body.action, body.chosen(body.older_than), ids=body.ids)
    return batches.perform_on_many(body.action, ids, dry_run=body.dry_run)


@post("/batches/{id:int}/action")
def change_batch(request: Request, batch_id: BatchId, body: BatchActionBody) -> Changed:
    """Perform an action on a batch."""
    request.require(find_action(Target.BATCH, body.action).role, f"{body.action} on a batch")
    return request.actions.batches.perform(body.action, batch_id, dry_run=body.dry_run)


@post("/batches/{id:int}/units/action")
def change_units(request: Request, batch_id: BatchId, body: UnitActionBody) -> Changed:
    """Retry or skip the failed units of a cluster."""
    return request.actions.units.perform(body.action, UnitCluster(batch_id, body.cluster), dry_run=body.dry_run)
