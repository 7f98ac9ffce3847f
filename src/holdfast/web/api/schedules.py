"""Schedules over HTTP. A name may contain any character, so it is a query parameter and never part of a path."""

from __future__ import annotations

from msgspec import Struct, structs

from holdfast.admin.actions.changed import Changed
from holdfast.admin.actions.options import ScheduleActionOptions
from holdfast.admin.actions.table import Target, find_action, options_of
from holdfast.admin.views.schedules import (
    PlanView,
    SchedulesPage,
    ScheduleView,
    plan_views,
    schedule_page,
    schedule_view,
)
from holdfast.domain.schedules.definition import Condition
from holdfast.errors import InvalidInput
from holdfast.web.api.openapi import Limit, Name, get, post
from holdfast.web.request import Request


class SchedulesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """A page of schedules, by name: all, or those in a *state*, that fire a *kind*, with a text in their *name*."""

    after: Name = ""
    limit: Limit = 50
    state: Condition | None = None
    kind: Name | None = None
    name: Name | None = None


class ScheduleQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """A schedule by its name; the answer has at most *limit* of its plans."""

    name: Name
    limit: Limit = 50


class ScheduleAnswer(Struct, frozen=True):
    """A schedule, and the decisions on its plans, newest first."""

    schedule: ScheduleView
    history: list[PlanView]


class ScheduleActionBody(ScheduleActionOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An action of the command line on a schedule, with its options."""

    name: Name
    action: Name
    dry_run: bool = False


@get("/schedules")
def list_schedules(request: Request, query: SchedulesQuery) -> SchedulesPage:
    """Schedules by name."""
    return schedule_page(request.store, **structs.asdict(query))


@get("/schedule")
def read_schedule(request: Request, query: ScheduleQuery) -> ScheduleAnswer:
    """One schedule and its history."""
    view = schedule_view(request.store, query.name, plans=5)
    return ScheduleAnswer(view, plan_views(request.store, query.name, limit=query.limit))


@post("/schedules/action")
def change_schedule(request: Request, body: ScheduleActionBody) -> Changed:
    """Pause, resume, trigger, backfill or delete a schedule."""
    action = find_action(Target.SCHEDULE, body.action)
    request.require(action.role, f"{action.name} on a schedule")
    options = options_of(action, body, "action", "name", "dry_run")
    for timestamp in (body.first, body.last):
        if timestamp is not None and timestamp.tzinfo is None:
            raise InvalidInput(f"{timestamp.isoformat()} has no time zone", hint="Write it with Z for UTC.")
    return request.actions.schedules.perform(action.name, body.name, dry_run=body.dry_run, **options)
