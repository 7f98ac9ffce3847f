"""Schedules in the store: create, declare, change, pause and delete them, and list those that are due."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain, zip_longest
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from holdfast.domain.fleet.queue import WORKER_LATE_AFTER
from holdfast.domain.fleet.served_names import load_names
from holdfast.domain.jobs.request_checks import SYSTEM
from holdfast.domain.names import checked_actor, clean_text
from holdfast.domain.schedules.decision import (
    CursorMove,
    first_cursor,
    move_after_edit,
    move_after_resume,
    next_after,
    retry_delay,
)
from holdfast.domain.schedules.definition import (
    Declaration,
    DeclarationResult,
    Definition,
    Schedule,
    checked_schedule_name,
)
from holdfast.domain.schedules.schedule_filter import NO_FILTER, ScheduleFilter
from holdfast.errors import DuplicateSchedule
from holdfast.store.engine.changes import SCHEDULES
from holdfast.store.engine.operation import Noun, Operation, Query, Rows, query, read, read_now, timestamp, transaction
from holdfast.store.schedules.fired_plans import write_skips
from holdfast.store.schedules.plans import locked_schedule, missing_schedule

#: Longer notes and errors are cut, in characters.
MAX_NOTE, MAX_ERROR = 1000, 2000
PAGE_SIZE = 500
#: The first token of a schedule is random: a decision about a deleted schedule must not fit its successor.
TOKEN_BITS = 52


class TroubledSchedule(Struct, frozen=True):
    """A schedule that cannot be planned, or whose plan no planner has decided in time (*late*)."""

    name: str
    error: str | None
    next_at: datetime | None
    late: bool


class DueSchedule(Struct, frozen=True, gc=False):
    """The fields of a due schedule that a planner reads. Reading all 15 costs planners 13 % of their throughput."""

    name: str
    definition: str
    cursor: datetime
    fired: int
    failures: int
    token: int


class DueSchedules(Struct, frozen=True):
    """The schedules that are due at *now* by the store's clock, and the time until the next one is.

    *scoped* are those whose scopes come from a provider, one of each provider in turn.
    """

    now: datetime
    schedules: list[DueSchedule]
    scoped: list[DueSchedule]
    next_in: timedelta | None


class ScheduleStore(Noun):
    """Schedules by name. Every change voids the decisions that planners make meanwhile."""

    @transaction(wakes=SCHEDULES)
    def create(self, name: str, definition: Definition, *, actor: str) -> Operation[Schedule]:
        """Create a schedule. Its first plan is at its creation or later, or after its start if that is in the past.

        No plan fires that an earlier schedule of this name has fired.

        Raises:
            DuplicateSchedule: There is one of this name.
        """
        checked_schedule_name(name)
        checked_actor(actor, system=SYSTEM)
        if not (yield from _create(Declaration(name, definition, 0), None, actor)):
            raise DuplicateSchedule(f"there is a schedule {name!r} already", name=name)
        return (yield from locked_schedule(name))

    def declare(
        self, declarations: Sequence[Declaration], *, actor: str, quiet_for: timedelta | None = None
    ) -> dict[str, DeclarationResult]:
        """Store the schedules that code declares. A declaration that is stored already costs no write.

        A declaration that differs from the code's last one changes the schedule, unless its version is lower or a
        person created the schedule. The schedule of another application is replaced only if no live worker of that
        application declares it; with *quiet_for*, none must have been alive within this time.
        """
        changing = (DeclarationResult.MADE, DeclarationResult.CHANGED, DeclarationResult.REFUSED)
        results = {each.name: each.compare(self._find(each.name)) for each in declarations}
        for each in declarations:
            if results[each.name] in changing:
                results[each.name] = self._backend.write(_declare, each, actor, quiet_for)
        self._wake(not set(results.values()).isdisjoint(changing[:2]), SCHEDULES)
        return results

    @transaction(wakes=SCHEDULES)
    def update(self, name: str, change: Callable[[Definition], Definition], *, actor: str) -> Operation[Schedule]:
        """Change the definition of a schedule. With a new rule it continues from now, and its past is skipped.

        Raises:
            NoSuchSchedule: There is none of this name.
        """
        checked_actor(actor, system=SYSTEM)
        schedule = yield from locked_schedule(name)
        changed = change(schedule.defined)
        return (yield from _define(schedule, changed, actor, declared=schedule.declared, **_code_of(schedule)))

    @transaction()
    def pause(self, name: str, *, actor: str, note: str | None = None) -> Operation[Schedule]:
        """Stop planning a schedule; its jobs continue. One that is paused already, with the same note, stays as it is.

        Raises:
            NoSuchSchedule: There is none of this name.
        """
        checked_actor(actor, system=SYSTEM)
        text = None if note is None else clean_text(note, limit=MAX_NOTE)
        schedule = yield from locked_schedule(name)
        if schedule.paused and schedule.note == text:
            return schedule
        return (yield from _move(schedule, CursorMove(schedule.cursor, None), paused=True, note=text, actor=actor))

    @transaction(wakes=SCHEDULES)
    def resume(self, name: str, *, actor: str) -> Operation[Schedule]:
        """Continue a paused schedule from now; plans that were due meanwhile are recorded as skipped.

        A plan that waits for its delay was not due: it stays.

        Raises:
            NoSuchSchedule: There is none of this name.
        """
        checked_actor(actor, system=SYSTEM)
        schedule = yield from locked_schedule(name)
        move = move_after_resume(schedule, (yield from read_now()))
        if move is None:
            return schedule
        return (yield from _move(schedule, move, paused=False, note=None, actor=actor))

    @transaction()
    def delete(self, name: str) -> Operation[None]:
        """Delete a schedule; its jobs and the record of its plans stay.

        Raises:
            NoSuchSchedule: There is none of this name.
        """
        yield from locked_schedule(name)  # first, so that a planner that holds the lock writes its rows before
        yield query("delete_schedule", name=name)

    def get(self, name: str) -> Schedule:
        """Return a schedule by its name.

        Raises:
            NoSuchSchedule: There is none of this name.
        """
        schedule = self._find(name)
        if schedule is None:
            raise missing_schedule(name)
        return schedule

    def _find(self, name: str) -> Schedule | None:
        rows: list[Schedule] = self._backend.fetch(query("get_schedule", Schedule, name=name))
        return rows[0] if rows else None

    def all(self, chosen: ScheduleFilter = NO_FILTER, *, after: str = "") -> Iterator[Schedule]:
        """Yield the chosen schedules whose names sort after *after*, by name, page by page."""
        page = self.page(chosen, after=after, limit=PAGE_SIZE)
        while page:
            yield from page
            page = self.page(chosen, after=page[-1].name, limit=PAGE_SIZE) if len(page) == PAGE_SIZE else []

    def page(self, chosen: ScheduleFilter = NO_FILTER, *, after: str = "", limit: int = 50) -> list[Schedule]:
        """Return up to *limit* of the chosen schedules whose names sort after *after*."""
        values: dict[str, Any] = {"after": after, "limit": limit, "kind": chosen.kind, "text": chosen.text}
        return self._backend.fetch(Query("list_schedules", values, Schedule, chosen.where))

    # -- for planners ------------------------------------------------------------------------

    @read
    def due(
        self,
        *,
        providers: Sequence[str] = (),
        busy: Mapping[str, Sequence[str]] = MappingProxyType({}),
        limit: int,
        provider_limit: int | None = None,
    ) -> Operation[DueSchedules]:
        """Return the schedules that are due and either need no scope provider or one of *providers*.

        *busy* names schedules by provider; they are left out, because they wait for it. At most *limit* without a
        provider are returned, and at most *provider_limit* of each provider, so that none of them hides the others.
        """
        now, most = (yield from read_now()), limit if provider_limit is None else provider_limit
        plain: list[DueSchedule] = yield query("list_due_schedules", DueSchedule, limit=limit, until=now)
        waiting = Rows(provider=[p for p, names in busy.items() for _ in names], name=[*chain(*busy.values())])
        rows = yield query("list_next_checks", providers=sorted(providers), waiting=waiting)
        checks = [(provider, timestamp(check_at)) for provider, check_at in rows if check_at is not None]
        scoped: list[list[DueSchedule]] = []
        for provider, check_at in checks:
            if provider is not None and check_at <= now:
                values = {"provider": provider, "busy": list(busy.get(provider, ())), "limit": most, "until": now}
                scoped.append((yield query("list_due_schedules_of_provider", DueSchedule, **values)))
        in_turn = [each for turn in zip_longest(*scoped) for each in turn if each is not None]
        later = [max(timedelta(0), check_at - now) for _, check_at in checks]
        return DueSchedules(now, plain, in_turn, min(later, default=None))

    def record_failure(self, schedule: DueSchedule, error: str) -> bool:
        """Record that a schedule could not be planned, and delay the next attempt.

        False: it changed meanwhile, another planner has recorded this failure, or another transaction has locked it.
        """
        values = {"name": schedule.name, "token": schedule.token, "failures": schedule.failures}
        text, rest = clean_text(error, limit=MAX_ERROR), retry_delay(schedule.failures + 1)
        return bool(self._backend.run(query("record_schedule_failure", error=text, rest=rest, **values)))

    def lag(self) -> timedelta:
        """Return how long the oldest due plan has waited for a planner."""
        ((lag,),) = self._backend.fetch(query("read_schedule_lag"))
        return max(timedelta(0), _duration(lag) or timedelta(0))

    def troubled(self, *, late: timedelta, limit: int = 10) -> list[TroubledSchedule]:
        """Return schedules that cannot be planned, or have waited for a planner for longer than *late*."""
        return self._backend.fetch(query("list_schedule_problems", TroubledSchedule, late=late, limit=limit))


def _create(declaration: Declaration, declared: str | None, actor: str) -> Operation[bool]:
    definition, now = declaration.definition, (yield from read_now())
    cursor = first_cursor(definition, now)
    rows = yield query(
        "create_schedule",
        name=declaration.name,
        definition=definition.dumps(),
        declared=declared,
        application=declaration.application,
        version=declaration.version,
        provider=definition.provider,
        cursor=cursor,
        next_at=next_after(definition, definition.rule(), cursor),
        token=secrets.randbits(TOKEN_BITS),
        actor=actor,
        at=now,
    )
    return bool(rows)


def _declare(declaration: Declaration, actor: str, quiet_for: timedelta | None) -> Operation[DeclarationResult]:
    text = declaration.definition.dumps()
    rows: list[Schedule] = []
    while not rows:  # it may be deleted between the two statements
        if (yield from _create(declaration, text, actor)):
            return DeclarationResult.MADE
        rows = yield query("lock_schedule", Schedule, name=declaration.name)
    result = declaration.compare(rows[0])
    if result is DeclarationResult.REFUSED and not (yield from _is_declared_elsewhere(rows[0], quiet_for)):
        result = DeclarationResult.CHANGED
    if result is DeclarationResult.CHANGED:
        yield from _define(rows[0], declaration.definition, actor, declared=text, **_code_of(declaration))
    return result


def _code_of(declared: Declaration | Schedule) -> dict[str, Any]:
    """The version and the application of the code that declared a schedule."""
    return {"version": declared.version, "application": declared.application}


def _is_declared_elsewhere(schedule: Schedule, quiet_for: timedelta | None) -> Operation[bool]:
    """Whether a live worker of the application that declared the schedule does so still."""
    seen = {"silence": quiet_for or WORKER_LATE_AFTER, "stopped": quiet_for is not None}
    rows = yield query("list_worker_names", names="", **seen)
    names = [load_names(text) for (text,) in rows]
    return any(each.application == schedule.application and schedule.name in each.schedules for each in names)


def _define(
    schedule: Schedule,
    definition: Definition,
    actor: str,
    *,
    declared: str | None,
    version: int,
    application: str | None,
) -> Operation[Schedule]:
    now = yield from read_now()
    values = {"definition": definition.dumps(), "declared": declared, "provider": definition.provider}
    yield query("define_schedule", name=schedule.name, version=version, application=application, **values)
    move = move_after_edit(schedule, definition, now)
    return (yield from _move(schedule, move, paused=schedule.paused, note=schedule.note, actor=actor))


def _move(schedule: Schedule, move: CursorMove, *, paused: bool, note: str | None, actor: str) -> Operation[Schedule]:
    """Move the cursor and return the schedule as it is now."""
    yield from write_skips({schedule.name: move.skipped})
    cursor = {"cursor": move.cursor, "next_at": None if paused else move.next_at}
    yield query("set_schedule_cursor", name=schedule.name, paused=paused, note=note, actor=actor, **cursor)
    return (yield from locked_schedule(schedule.name))


def _duration(value: timedelta | int | None) -> timedelta | None:
    """Convert a difference of instants: SQLite returns microseconds."""
    return timedelta(microseconds=value) if isinstance(value, int) else value
