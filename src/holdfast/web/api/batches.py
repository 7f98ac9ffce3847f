"""Batches over HTTP."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, structs

from holdfast.admin.actions.batches import UnitCluster
from holdfast.admin.actions.changed import Changed
from holdfast.admin.actions.table import Target, find_action
from holdfast.admin.views.batches import BatchView, batch_secrets, batch_view, unit_clusters, unit_view
from holdfast.client.batches.report import UnitLine
from holdfast.domain.access.roles import ERROR_SEARCH, Role
from holdfast.domain.batches.batch import BatchId
from holdfast.domain.batches.unit import UnitState
from holdfast.domain.jobs.error_clusters import Cluster
from holdfast.store.batches.batches import FIRST
from holdfast.web.api.openapi import ClusterKey, Limit, Name, Number, get, post
from holdfast.web.request import Request


class BatchesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """A page of batches, the newest first."""

    before: Number | None = None
    limit: Limit = 20


class BatchesPage(Struct, frozen=True):
    """Some batches, and where the next page begins."""

    batches: list[BatchView]
    next: int | None


class BatchAnswer(Struct, frozen=True):
    """A batch, and its failed units by how they failed."""

    batch: BatchView
    clusters: list[Cluster]


class UnitsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Units by key; *text* is looked for in keys, errors and warnings."""

    state: UnitState | None = None
    label: Name | None = None
    text: Name | None = None
    after: Annotated[str, Meta(max_length=1000)] = ""
    limit: Limit = 50


class UnitsPage(Struct, frozen=True):
    """Some units; a page with a filter may be short, or empty, and yet have a next."""

    units: list[UnitLine]
    next: str | None


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
def list_batches(request: Request, query: BatchesQuery) -> BatchesPage:
    """Batches, the newest first."""
    before = FIRST if query.before is None else BatchId(query.before)
    rows = request.store.batches.page(before=before, limit=query.limit)
    statuses = request.store.ledger.statuses([row.id for row in rows])
    next_page = rows[-1].id if len(rows) == query.limit else None
    return BatchesPage([batch_view(row, statuses[row.id]) for row in rows], next_page)


@get("/batches/{id:int}")
def read_batch(request: Request, batch_id: BatchId) -> BatchAnswer:
    """One batch."""
    batch, ledger = request.store.batches.get(batch_id), request.store.ledger
    status = ledger.statuses([batch_id])[batch_id]
    return BatchAnswer(batch_view(batch, status), unit_clusters(batch, ledger.errors(batch_id)))


@get("/batches/{id:int}/units")
def list_units(request: Request, batch_id: BatchId, query: UnitsQuery) -> UnitsPage:
    """Units of a batch."""
    batch = request.store.batches.get(batch_id)
    if query.text is not None:
        request.require(Role.OPERATOR, ERROR_SEARCH)
    page = request.store.ledger.page(batch_id, **structs.asdict(query))
    return UnitsPage([unit_view(unit, batch_secrets(batch)) for unit in page.units], page.next)


@post("/batches/{id:int}/action")
def change_batch(request: Request, batch_id: BatchId, body: BatchActionBody) -> Changed:
    """Perform an action on a batch."""
    request.require(find_action(Target.BATCH, body.action).role, f"{body.action} on a batch")
    return request.actions.batches.perform(body.action, batch_id, dry_run=body.dry_run)


@post("/batches/{id:int}/units/action")
def change_units(request: Request, batch_id: BatchId, body: UnitActionBody) -> Changed:
    """Retry or skip the failed units of a cluster."""
    return request.actions.units.perform(body.action, UnitCluster(batch_id, body.cluster), dry_run=body.dry_run)
