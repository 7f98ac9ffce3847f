"""Batches over HTTP: lists, units, clusters of errors, verbs."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, structs

from holdfast.admin.actions.actions import BATCH_ACTIONS, Steered
from holdfast.admin.views.batches import BatchView, batch_secrets, batch_view, unit_clusters, unit_view
from holdfast.client.batches.report import UnitLine
from holdfast.domain.access.roles import SEARCHING, Role
from holdfast.domain.batches.batch import BatchId, UnitState
from holdfast.domain.jobs.error_clusters import Cluster
from holdfast.errors import InvalidInput
from holdfast.store.batches.batches import FIRST
from holdfast.web.api.endpoint import ApiRequest, Endpoint
from holdfast.web.api.jobs import Limit, Name, Number


class BatchesAsked(Struct, frozen=True, forbid_unknown_fields=True):
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


class UnitsAsked(Struct, frozen=True, forbid_unknown_fields=True):
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


class BatchAct(Struct, frozen=True, forbid_unknown_fields=True):
    """A verb of the command line on a batch; *dry_run* says what it would change, and does nothing."""

    action: Name
    dry_run: bool = False


class UnitsAct(Struct, frozen=True, forbid_unknown_fields=True):
    """``retry`` or ``skip`` the failed units of a cluster."""

    action: Name
    cluster: Annotated[str, Meta(pattern="^[0-9a-f]{12}$")]
    dry_run: bool = False


def batches(ask: ApiRequest) -> BatchesPage:
    before = FIRST if ask.query.before is None else BatchId(ask.query.before)
    found = ask.store.batches.page(before=before, limit=ask.query.limit)
    standings = ask.store.ledger.statuses([each.id for each in found])
    following = found[-1].id if len(found) == ask.query.limit else None
    return BatchesPage([batch_view(each, standings[each.id]) for each in found], following)


def batch(ask: ApiRequest) -> BatchAnswer:
    found = ask.store.batches.get(BatchId(ask.id))
    standing = ask.store.ledger.statuses([found.id])[found.id]
    return BatchAnswer(batch_view(found, standing), unit_clusters(found, ask.store.ledger.errors(found.id)))


def units(ask: ApiRequest) -> UnitsPage:
    found = ask.store.batches.get(BatchId(ask.id))
    asked: UnitsAsked = ask.query
    if asked.text is not None:
        ask.need(Role.OPERATOR, SEARCHING)
    page = ask.store.ledger.page(
        found.id, state=asked.state, label=asked.label, text=asked.text, after=asked.after, limit=asked.limit
    )
    return UnitsPage([unit_view(unit, batch_secrets(found)) for unit in page.units], page.next)


def act(ask: ApiRequest) -> Steered:
    told: BatchAct = ask.body
    if told.action not in BATCH_ACTIONS:
        raise InvalidInput(f"a batch cannot be told to {told.action!r}", hint=f"Verbs: {', '.join(BATCH_ACTIONS)}.")
    ask.need(BATCH_ACTIONS[told.action], f"to {told.action} a batch")
    return structs.replace(ask.dry_run_store.batch(told.action, BatchId(ask.id)), dry_run=told.dry_run)


def act_on_units(ask: ApiRequest) -> Steered:
    return ask.actions.units(ask.body.action, BatchId(ask.id), ask.body.cluster, dry_run=ask.body.dry_run)


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/batches",
        text="Batches, the newest first.",
        act=batches,
        query=BatchesAsked,
        answer=BatchesPage,
    ),
    Endpoint(method="GET", path="/batches/{id:int}", text="One batch.", act=batch, answer=BatchAnswer),
    Endpoint(
        method="GET",
        path="/batches/{id:int}/units",
        text="Units of a batch.",
        act=units,
        query=UnitsAsked,
        answer=UnitsPage,
    ),
    Endpoint(
        method="POST",
        path="/batches/{id:int}/act",
        text="Do a verb to a batch.",
        act=act,
        body=BatchAct,
        answer=Steered,
        role=Role.OPERATOR,
    ),
    Endpoint(
        method="POST",
        path="/batches/{id:int}/units/act",
        text="Retry or skip the failed units of a cluster.",
        act=act_on_units,
        body=UnitsAct,
        answer=Steered,
        role=Role.OPERATOR,
    ),
)
