"""Inboxes over HTTP: programs in any language consume the results of units."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from holdfast.admin.actions.inboxes import MAX_RESULTS, SettledResults, TakenResult
from holdfast.admin.views.inboxes import InboxResultView, list_inboxes, list_results
from holdfast.domain.quantities import as_duration
from holdfast.store.batches.inbox import InboxDepth
from holdfast.web.api.openapi import Limit, Name, Text, get, post
from holdfast.web.request import Request

Receipts = Annotated[list[Name], Meta(min_length=1, max_length=MAX_RESULTS)]


class InboxList(Struct, frozen=True):
    """The inboxes that hold results, by name."""

    inboxes: list[InboxDepth]


class ResultsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Results in one inbox, the longest free first."""

    inbox: Name
    limit: Limit = 50


class ResultList(Struct, frozen=True):
    """Results in an inbox, masked. None of them was taken."""

    results: list[InboxResultView]


class TakeBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Take results out of an *inbox*. No other consumer gets them before the *lease* ends, for example ``60s``."""

    inbox: Name
    limit: Limit = 1
    lease: Name = "60s"


class TakenResults(Struct, frozen=True):
    """Results that the caller has now, as the units handed them over."""

    results: list[TakenResult]


class AcceptBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Receipts of results that the caller has taken."""

    receipts: Receipts


class RefuseBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Receipts of results that the caller has taken, and why it refuses them."""

    receipts: Receipts
    error: Text


@get("/inboxes")
def list_all_inboxes(request: Request) -> InboxList:
    """Inboxes that hold results."""
    return InboxList(list_inboxes(request.store))


@get("/inboxes/results")
def list_inbox_results(request: Request, query: ResultsQuery) -> ResultList:
    """Results in an inbox. Looking takes none of them."""
    return ResultList(list_results(request.store, query.inbox, limit=query.limit))


@post("/inboxes/take")
def take_results(request: Request, body: TakeBody) -> TakenResults:
    """Take results: exactly one consumer has each of them."""
    taken = request.actions.inboxes.take(body.inbox, limit=body.limit, lease=as_duration(body.lease))
    return TakenResults(taken)


@post("/inboxes/accept")
def accept_results(request: Request, body: AcceptBody) -> SettledResults:
    """Accept results: their units are done."""
    return request.actions.inboxes.accept(body.receipts)


@post("/inboxes/refuse")
def refuse_results(request: Request, body: RefuseBody) -> SettledResults:
    """Refuse results: their units fail, and run again with the next run."""
    return request.actions.inboxes.refuse(body.receipts, body.error)
