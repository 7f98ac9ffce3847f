"""Schedules over HTTP. Their names may hold any sign, so that they are asked for in the query, never in the path."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from holdfast.admin.actions.actions import BackfilledPlans
from holdfast.admin.views.schedules import PlanView, ScheduleView, plan_view, schedule_view
from holdfast.domain.access.roles import Role
from holdfast.domain.jobs.job import JobId
from holdfast.errors import InvalidInput
from holdfast.web.api.endpoint import ApiRequest, Endpoint
from holdfast.web.api.jobs import Limit, Name, Text

ACTIONS = {
    "pause": Role.OPERATOR,
    "resume": Role.OPERATOR,
    "trigger": Role.OPERATOR,
    "backfill": Role.OPERATOR,
    "rm": Role.ADMIN,
}


class SchedulesAsked(Struct, frozen=True, forbid_unknown_fields=True):
    """A page of schedules, by name."""

    after: Name = ""
    limit: Limit = 50


class SchedulesPage(Struct, frozen=True):
    """Some schedules, and where the next page begins."""

    schedules: list[ScheduleView]
    next: str | None


class NamedAsked(Struct, frozen=True, forbid_unknown_fields=True):
    """A schedule by its name; *limit* of its plans are told."""

    name: Name
    limit: Limit = 50


class ScheduleAnswer(Struct, frozen=True):
    """A schedule, and what became of its plans, the newest first."""

    schedule: ScheduleView
    history: list[PlanView]


class ScheduleAct(Struct, frozen=True, forbid_unknown_fields=True):
    """A verb of the command line on a schedule; *first* and *last* are for ``backfill``, *note* is for ``pause``."""

    name: Name
    action: Name
    note: Text | None = None
    scopes: Annotated[list[Name], Meta(max_length=1000)] | None = None
    first: datetime | None = None
    last: datetime | None = None
    dry_run: bool = False


class ScheduleDone(Struct, frozen=True):
    """What was done: the schedule as it is now (none, if it was removed), and the jobs that were enqueued."""

    name: str
    action: str
    dry_run: bool
    schedule: ScheduleView | None
    jobs: list[JobId] = []
    backfill: BackfilledPlans | None = None


def schedules(ask: ApiRequest) -> SchedulesPage:
    found = ask.store.schedules.page(after=ask.query.after, limit=ask.query.limit)
    now = ask.store.schedules.now()
    told = [schedule_view(each, now, secrets=ask.masks.of_schedule(each)) for each in found]
    return SchedulesPage(told, found[-1].name if len(found) == ask.query.limit else None)


def schedule(ask: ApiRequest) -> ScheduleAnswer:
    facts = _facts(ask, ask.query.name)
    return ScheduleAnswer(
        facts, [plan_view(each) for each in ask.actions.schedules.history(facts.name, limit=ask.query.limit)]
    )


def act(ask: ApiRequest) -> ScheduleDone:
    told: ScheduleAct = ask.body
    if told.action not in ACTIONS:
        raise InvalidInput(f"a schedule cannot be told to {told.action!r}", hint=f"Verbs: {', '.join(ACTIONS)}.")
    ask.need(ACTIONS[told.action], f"to {told.action} a schedule")
    ask.store.schedules.get(told.name)
    if told.action == "backfill":
        return ScheduleDone(told.name, told.action, told.dry_run, None, backfill=_backfill(ask, told))
    jobs: list[JobId] = []
    if told.action == "trigger":
        tried = ask.dry_run_store.trigger(told.name, scopes=told.scopes).jobs
        jobs = [] if told.dry_run else tried
    else:
        ask.dry_run_store.schedule(told.action, told.name, note=told.note)
    gone = told.action == "rm" and not told.dry_run
    return ScheduleDone(told.name, told.action, told.dry_run, None if gone else _facts(ask, told.name), jobs)


def _backfill(ask: ApiRequest, told: ScheduleAct) -> BackfilledPlans:
    if told.first is None:
        raise InvalidInput("a backfill begins somewhere", hint="Give first, and last unless it is now.")
    last = told.last or ask.store.schedules.now()
    for timestamp in (told.first, last):
        if timestamp.tzinfo is None:
            raise InvalidInput(f"{timestamp.isoformat()} has no time zone", hint="Write it with Z for UTC.")
    return ask.actions.backfill(told.name, told.first, last, scopes=told.scopes, dry_run=told.dry_run)


def _facts(ask: ApiRequest, name: str) -> ScheduleView:
    found = ask.store.schedules.get(name)
    return schedule_view(found, ask.store.schedules.now(), plans=5, secrets=ask.masks.of_schedule(found))


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/schedules",
        text="Schedules by name.",
        act=schedules,
        query=SchedulesAsked,
        answer=SchedulesPage,
    ),
    Endpoint(
        method="GET",
        path="/schedule",
        text="One schedule and its history.",
        act=schedule,
        query=NamedAsked,
        answer=ScheduleAnswer,
    ),
    Endpoint(
        method="POST",
        path="/schedules/act",
        text="Pause, resume, trigger, backfill or remove a schedule.",
        act=act,
        body=ScheduleAct,
        answer=ScheduleDone,
        role=Role.OPERATOR,
    ),
)
