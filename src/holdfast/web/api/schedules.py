"""Schedules over HTTP. A name may contain any character, so it is a query parameter and never part of a path."""

from __future__ import annotations

from msgspec import Struct

from holdfast.admin.actions.changed import Changed
from holdfast.admin.actions.options import ScheduleActionOptions
from holdfast.admin.actions.table import Target, find_action, options_of
from holdfast.admin.views.schedules import PlanView, ScheduleView, plan_view, schedule_view
from holdfast.domain.schedules.definition import Condition
from holdfast.errors import InvalidInput
from holdfast.store.schedules.schedule_filter import ScheduleFilter
from holdfast.web.api.openapi import Limit, Name, get, post
from holdfast.web.request import Request


class SchedulesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """A page of schedules, by name: all, or those in a *state*, that fire a *kind*, with a text in their *name*."""

    after: Name = ""
    limit: Limit = 50
    state: Condition | None = None
    kind: Name | None = None
    name: Name | None = None


class SchedulesPage(Struct, frozen=True):
    """Some schedules, and where the next page begins."""

    schedules: list[ScheduleView]
    next: str | None


class ScheduleQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """A schedule by its name; *limit* of its plans are told."""

    name: Name
    limit: Limit = 50


class ScheduleAnswer(Struct, frozen=True):
    """A schedule, and what became of its plans, the newest first."""

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
    chosen = ScheduleFilter(query.state, query.kind, query.name)
    rows = request.store.schedules.page(chosen, after=query.after, limit=query.limit)
    now = request.store.schedules.now()
    views = [schedule_view(row, now, secrets=request.masks.of_schedule(row)) for row in rows]
    return SchedulesPage(views, rows[-1].name if len(rows) == query.limit else None)


@get("/schedule")
def read_schedule(request: Request, query: ScheduleQuery) -> ScheduleAnswer:
    """One schedule and its history."""
    view = _view(request, query.name)
    plans = request.actions.schedules.api.history(view.name, limit=query.limit)
    return ScheduleAnswer(view, [plan_view(plan) for plan in plans])


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


def _view(request: Request, name: str) -> ScheduleView:
    row = request.store.schedules.get(name)
    return schedule_view(row, request.store.schedules.now(), plans=5, secrets=request.masks.of_schedule(row))
