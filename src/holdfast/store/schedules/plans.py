"""The ledger of plans: which plans were fired, and which were skipped and why."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct, structs

from holdfast.domain.jobs.job import JobId, State
from holdfast.domain.jobs.request_checks import SYSTEM
from holdfast.domain.names import checked_actor
from holdfast.domain.schedules.decision import SkipReason
from holdfast.domain.schedules.definition import Schedule
from holdfast.domain.schedules.plan import Origin, Plan
from holdfast.errors import NoSuchSchedule
from holdfast.store.engine.backend import PlanRecorded
from holdfast.store.engine.changes import JOBS, SCHEDULES
from holdfast.store.engine.operation import Noun, Operation, delegate, query
from holdfast.store.schedules import fired_plans
from holdfast.store.schedules.earlier_plans import OverlapRule
from holdfast.store.schedules.fired_plans import Advance, AdvanceResult, FiredPlan, PlanToFire

BEFORE_ALL = JobId(0)
#: Plans that a filter of the history examines.
WINDOW = 100_000


class SkippedPlans(Struct, frozen=True):
    """A span of plans that were not fired, both ends included; an empty scope stands for all scopes."""

    schedule: str
    first: datetime
    last: datetime
    scope: str
    reason: SkipReason
    count: int
    decided_at: datetime


class Plans(Noun):
    """Fires each plan of a schedule once in each scope, and keeps the record."""

    def advance(self, advances: Sequence[Advance]) -> AdvanceResult:
        """Apply planners' decisions about several schedules, in one transaction.

        - A schedule that changed since the decision, or that another planner has locked, is left out.
        - A plan that was fired before is not fired again.
        - The jobs exist if and only if the cursor has moved.

        Raises:
            JobLocked: Another transaction has locked a job or a key for some time; nothing was written.
        """
        try:
            result = self._backend.write(fired_plans.advance, advances)
        except PlanRecorded:  # an earlier schedule of this name has fired it, or a person: too seldom to check first
            result = self._backend.write(fired_plans.advance, advances, check_ledger=True)
        self._wake(result.fired)
        return result

    def fire(self, name: str, fires: Sequence[PlanToFire], *, origin: Origin, actor: str) -> list[FiredPlan]:
        """Fire plans on request. Returns those that had not been fired before.

        A trigger starts at once, and later due plans take it into account. Backfilled plans queue among themselves.

        Raises:
            NoSuchSchedule: There is none of this name.
        """
        checked_actor(actor, system=SYSTEM)
        return self._wake(self._backend.write(_fire, name, fires, origin, actor), JOBS | SCHEDULES)

    def known(self, plans: Sequence[Plan]) -> set[Plan]:
        """Return those of *plans* that have been fired."""
        return self._backend.read(fired_plans.known_plans, plans)

    release = delegate(fired_plans.release, wakes=JOBS)

    def unqueue(self, *, after: JobId = BEFORE_ALL, limit: int = 10_000) -> JobId | None:
        """Take plans whose turn has come out of their lines, in one page of the plans in line.

        Returns the start of the next page, if there is one: a check of a million plans would take seconds.
        """
        rows = self._fetch("list_queued_jobs", after_id=after, limit=limit)
        ids = [job_id for job_id, state in rows if state not in (State.WAITING, State.HELD)]
        if ids:
            self._backend.run(query("unqueue_plans", ids=ids))
        return rows[-1][0] if len(rows) == limit else None

    def find(self, plan: Plan) -> FiredPlan | None:
        """Return the plan if it was fired."""
        rows: list[FiredPlan] = self._backend.fetch(query("get_plan", FiredPlan, **structs.asdict(plan)))
        return rows[0] if rows else None

    def find_skip(self, plan: Plan) -> SkippedPlans | None:
        """Return the newest span that skipped the plan, if any."""
        rows: list[SkippedPlans] = self._backend.fetch(query("get_skipped_plan", SkippedPlans, **structs.asdict(plan)))
        return rows[0] if rows else None

    def history(
        self, name: str, *, limit: int = 50, scope: str | None = None, state: str | None = None
    ) -> list[FiredPlan]:
        """Return the fired plans, newest first: all, or of the newest 100,000 those of a scope or of a job's state."""
        window = limit if scope is None and state is None else WINDOW
        values = {"schedule": name, "limit": limit, "scope": scope, "state": state, "window": window}
        return self._backend.fetch(query("list_plans", FiredPlan, **values))

    def skips(self, name: str, *, limit: int = 50, scope: str | None = None) -> list[SkippedPlans]:
        """Return the skipped spans, newest first: all, or of the newest 100,000 those that concern a scope."""
        values = {"schedule": name, "limit": limit, "scope": scope, "window": limit if scope is None else WINDOW}
        return self._backend.fetch(query("list_skipped_plans", SkippedPlans, **values))


def _fire(name: str, fires: Sequence[PlanToFire], origin: Origin, actor: str) -> Operation[list[FiredPlan]]:
    schedule = yield from locked_schedule(name)
    rules = {name: OverlapRule(schedule.defined.effective_overlap)}
    new = yield from fired_plans.not_fired(fires)
    fired, _ = yield from fired_plans.fire_plans(new, rules, origin, actor)
    return fired


def locked_schedule(name: str) -> Operation[Schedule]:
    """Return the schedule under its row lock, so that no planner advances it meanwhile."""
    rows: list[Schedule] = yield query("lock_schedule", Schedule, name=name)
    if not rows:
        raise missing_schedule(name)
    return rows[0]


def missing_schedule(name: str) -> NoSuchSchedule:
    return NoSuchSchedule(f"there is no schedule {name[:100]!r}", name=name)
