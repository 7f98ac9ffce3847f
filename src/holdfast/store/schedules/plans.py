"""The ledger of plans: what was fired, what was skipped and why. Each plan is decided once, by whoever comes first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct, structs

from holdfast.domain.jobs.job import JobId
from holdfast.domain.schedules.decision import SkipReason
from holdfast.domain.schedules.definition import Schedule
from holdfast.domain.schedules.plan import Origin, Plan
from holdfast.domain.text import checked_actor
from holdfast.errors import NoSuchSchedule
from holdfast.store.engine.backend import Backend
from holdfast.store.engine.operation import Operation, query
from holdfast.store.jobs.enqueue import SYSTEM
from holdfast.store.schedules.firing import (
    Advance,
    Decided,
    Fired,
    PlanToFire,
    advance,
    fire_requested,
    known_plans,
    release,
)


class SkippedPlans(Struct, frozen=True):
    """A stretch of plans that were not fired, both ends included; an empty scope means all of them."""

    schedule: str
    first: datetime
    last: datetime
    scope: str
    reason: SkipReason
    count: int
    decided_at: datetime


class Plans:
    """Fires plans, each moment of a schedule once in each scope, and remembers."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def advance(self, advances: Sequence[Advance]) -> Decided:
        """Take what planners have decided about several schedules, in one transaction.

        - A schedule that was changed since, or that another planner holds, is left out.
        - A plan that was fired before is not fired again.
        - The jobs exist if and only if the cursor has moved.
        """
        drawn = self._backend.draw_ids(sum(len(each.fire) for each in advances))
        decided = self._backend.write(advance, advances, drawn)
        if decided.fired:
            self._backend.notify()
        return decided

    def fire(self, name: str, fires: Sequence[PlanToFire], *, origin: Origin, actor: str) -> list[Fired]:
        """Fire plans because a person wants it; answers those that were not fired before.

        Raises:
            NoSuchSchedule: There is none of this name.
        """
        checked_actor(actor, system=SYSTEM)
        drawn = self._backend.draw_ids(len(fires))
        fired = self._backend.write(_fire, name, fires, drawn, origin, actor)
        if fired:
            self._backend.notify()
        return fired

    def known(self, plans: Sequence[Plan]) -> set[Plan]:
        """Which of these have been fired."""
        return self._backend.read(known_plans, plans)

    def release(self, *, limit: int = 100) -> int:
        """Let plans go that wait for one that is out of the way: it waits for its retry, or for a person."""
        released = self._backend.write(release, limit)
        if released:
            self._backend.notify()
        return released

    def find(self, plan: Plan) -> Fired | None:
        """The plan, if it was fired."""
        rows: list[Fired] = self._backend.look(query("get_plan", Fired, **structs.asdict(plan)))
        return rows[0] if rows else None

    def find_skip(self, plan: Plan) -> SkippedPlans | None:
        """The stretch that the plan was skipped with, if it was; the newest, if there are several."""
        rows: list[SkippedPlans] = self._backend.look(query("get_skipped_plan", SkippedPlans, **structs.asdict(plan)))
        return rows[0] if rows else None

    def history(self, name: str, *, limit: int = 50) -> list[Fired]:
        """The plans that were fired, the newest first."""
        return self._backend.look(query("list_plans", Fired, schedule=name, limit=limit))

    def skips(self, name: str, *, limit: int = 50) -> list[SkippedPlans]:
        """The stretches that were not fired, the newest first."""
        return self._backend.look(query("list_skipped_plans", SkippedPlans, schedule=name, limit=limit))


def _fire(
    name: str, fires: Sequence[PlanToFire], drawn: list[JobId] | None, origin: Origin, actor: str
) -> Operation[list[Fired]]:
    schedule = yield from locked_schedule(name)
    return (yield from fire_requested(schedule, fires, drawn, origin, actor))


def locked_schedule(name: str) -> Operation[Schedule]:
    """The schedule, under its lock: nobody plans it meanwhile.

    Raises:
        NoSuchSchedule: There is none of this name.
    """
    rows: list[Schedule] = yield query("lock_schedule", Schedule, name=name)
    if not rows:
        raise missing_schedule(name)
    return rows[0]


def missing_schedule(name: str) -> NoSuchSchedule:
    return NoSuchSchedule(f"there is no schedule {name[:100]!r}", name=name)
