"""Inboxes over HTTP: programs in any language consume the results of units."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from holdfast.admin.actions.changed import Changed
from holdfast.admin.actions.inboxes import MAX_RESULTS, TakenResult
from holdfast.admin.actions.options import NoteOptions
from holdfast.admin.actions.table import Target, find_action, options_of
from holdfast.admin.views.inboxes import InboxResultView, list_inboxes, list_results
from holdfast.domain.batches.unit import InboxDepth
from holdfast.domain.quantities import as_duration
from holdfast.web.api.openapi import Limit, Name, get, post
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
    """Results that the caller has taken, with their values unmasked."""

    results: list[TakenResult]


class ResultActionBody(NoteOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An action on results that the caller has taken, or that are free. The *note* of a refusal is the unit's error."""

    receipts: Receipts
    action: Name
    dry_run: bool = False


@get("/inboxes")
def list_all_inboxes(request: Request) -> InboxList:
    """Inboxes that hold results."""
    return InboxList(list_inboxes(request.store))


@get("/inboxes/results")
def list_inbox_results(request: Request, query: ResultsQuery) -> ResultList:
    """List results in an inbox, without taking them."""
    request.require_inbox(query.inbox)
    return ResultList(list_results(request.store, query.inbox, limit=query.limit))


@post("/inboxes/take")
def take_results(request: Request, body: TakeBody) -> TakenResults:
    """Take results: exactly one consumer has each of them."""
    request.require_inbox(body.inbox)
    taken = request.actions.inboxes.take(body.inbox, limit=body.limit, lease=as_duration(body.lease))
    return TakenResults(taken)


@post("/inboxes/action")
def change_results(request: Request, body: ResultActionBody) -> Changed:
    """Accept results: their units are done. Refuse them: their units fail, and run again with the next run."""
    action = find_action(Target.RESULT, body.action)
    request.require(action.role)
    options = options_of(action, body, "action", "receipts", "dry_run")
    inbox = request.caller.inbox
    return request.actions.inboxes.perform(action.name, body.receipts, dry_run=body.dry_run, inbox=inbox, **options)
