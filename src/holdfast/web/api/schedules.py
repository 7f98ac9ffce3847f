"""Schedules over HTTP. A name may contain any character, so it is a query parameter and never part of a path."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from holdfast.admin.actions.actions import BackfilledPlans
from holdfast.admin.actions.schedules import SCHEDULE_ACTIONS
from holdfast.admin.views.schedules import PlanView, ScheduleView, plan_view, schedule_view
from holdfast.domain.jobs.job import JobId
from holdfast.domain.schedules.definition import Condition
from holdfast.errors import InvalidInput
from holdfast.store.schedules.schedule_filter import ScheduleFilter
from holdfast.web.api.openapi import Limit, Name, Text, get, post
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


class ScheduleActionBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A verb of the command line on a schedule; *first* and *last* are for ``backfill``, *note* is for ``pause``."""

    name: Name
    action: Name
    note: Text | None = None
    scopes: Annotated[list[Name], Meta(max_length=1000)] | None = None
    first: datetime | None = None
    last: datetime | None = None
    dry_run: bool = False


class ScheduleChanged(Struct, frozen=True):
    """What was done: the schedule as it is now (none, if it was removed), and the jobs that were enqueued."""

    name: str
    action: str
    dry_run: bool
    schedule: ScheduleView | None
    jobs: list[JobId] = []
    backfill: BackfilledPlans | None = None


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
def change_schedule(request: Request, body: ScheduleActionBody) -> ScheduleChanged:
    """Pause, resume, trigger, backfill or remove a schedule."""
    name, action = body.name, body.action
    if action not in SCHEDULE_ACTIONS:
        hint = f"Verbs: {', '.join(SCHEDULE_ACTIONS)}."
        raise InvalidInput(f"a schedule cannot be told to {action!r}", hint=hint)
    request.require(SCHEDULE_ACTIONS[action], f"to {action} a schedule")
    request.store.schedules.get(name)
    if action == "backfill":
        return ScheduleChanged(name, action, body.dry_run, None, backfill=_backfill(request, body))
    jobs: list[JobId] = []
    actions = request.actions.dry_run(body.dry_run).schedules
    if action == "trigger":
        triggered = actions.trigger(name, scopes=body.scopes).jobs
        jobs = [] if body.dry_run else triggered
    else:
        actions.perform(action, name, note=body.note)
    deleted = action == "rm" and not body.dry_run
    return ScheduleChanged(name, action, body.dry_run, None if deleted else _view(request, name), jobs)


def _backfill(request: Request, body: ScheduleActionBody) -> BackfilledPlans:
    if body.first is None:
        raise InvalidInput("a backfill begins somewhere", hint="Give first, and last unless it is now.")
    last = body.last or request.store.schedules.now()
    for timestamp in (body.first, last):
        if timestamp.tzinfo is None:
            raise InvalidInput(f"{timestamp.isoformat()} has no time zone", hint="Write it with Z for UTC.")
    return request.actions.schedules.backfill(body.name, body.first, last, scopes=body.scopes, dry_run=body.dry_run)


def _view(request: Request, name: str) -> ScheduleView:
    row = request.store.schedules.get(name)
    return schedule_view(row, request.store.schedules.now(), plans=5, secrets=request.masks.of_schedule(row))
