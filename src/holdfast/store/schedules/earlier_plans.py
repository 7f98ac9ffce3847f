"""Earlier plans of a scope that have not finished, and lines: plans that wait for each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import assert_never

from msgspec import Struct

from holdfast.domain.jobs.job import JobId, State
from holdfast.domain.schedules.plan import MAX_BACKLOG, EarlierPlans, Overlap, PlanStatus, plan_status
from holdfast.store.engine.operation import Operation, Rows, columns_of, query

#: A schedule and a scope of it.
Scope = tuple[str, str]


class OverlapRule(Struct, frozen=True):
    """The overlap rule of a schedule, and the most plans of a scope that wait in line."""

    overlap: Overlap
    max_backlog: int = MAX_BACKLOG


class _OpenPlan(Struct, frozen=True):
    """A plan that was live at the last check; *queued*: it is in a line."""

    schedule: str
    scope: str
    time: datetime
    job_id: JobId
    state: State | None
    attempts: int
    queued: bool


class _Line(Struct, frozen=True):
    """The plans of a scope that wait for each other: their number, and the job of the newest one."""

    schedule: str
    scope: str
    length: int
    newest_id: JobId
    newest_state: State | None


def earlier_plans(new: Mapping[Scope, int], rules: Mapping[str, OverlapRule]) -> Operation[dict[Scope, EarlierPlans]]:
    """Return the unfinished jobs of earlier plans, by scope. Closes plans that have finished.

    *new* is the number of plans that are to be fired in each scope. The cost does not depend on the length of a line:
    of its plans only the newest is read, unless its job has left the line, the line may be full, or all of its plans
    are to be cancelled.
    """
    earlier: dict[Scope, EarlierPlans] = defaultdict(EarlierPlans)
    if not new:
        return earlier
    rows: list[_OpenPlan] = yield query("list_open_plans", _OpenPlan, scopes=_scope_rows(new))
    in_line = [(row.schedule, row.scope) for row in rows if row.queued]
    rows = [row for row in rows if not row.queued]
    lines: list[_Line] = (yield query("list_lines", _Line, scopes=_scope_rows(in_line))) if in_line else []
    unclear = []
    for line in lines:
        scope, rule = (line.schedule, line.scope), rules[line.schedule]
        # A plan whose turn has come is in the line until release() has removed it.
        fits = line.length + new[scope] <= rule.max_backlog
        if line.newest_state is State.WAITING and fits and rule.overlap is not Overlap.CANCEL_RUNNING:
            earlier[scope] = EarlierPlans(queued=[line.newest_id], length=line.length)
        else:
            unclear.append(scope)
    if unclear:
        rows += yield query("list_queued_plans", _OpenPlan, scopes=_scope_rows(unclear))
    finished = [row for row in rows if not _count_in(row, earlier[row.schedule, row.scope])]
    if finished:
        yield query("close_plans", plan=Rows(**columns_of(finished, "schedule", "time", "scope")))
    return earlier


def _count_in(row: _OpenPlan, plans: EarlierPlans) -> bool:
    """Add an open plan to the earlier plans of its scope. False: it has finished."""
    match plan_status(row.state, row.attempts):
        case PlanStatus.RUNNING:
            plans.running.append(row.job_id)
        case PlanStatus.QUEUED:
            plans.queued.append(row.job_id)
            plans.length += 1
        case PlanStatus.APART:
            pass
        case PlanStatus.FINISHED:
            return False
        case other:
            assert_never(other)
    return True


def _scope_rows(scopes: Collection[Scope]) -> Rows:
    return Rows(schedule=[schedule for schedule, _ in scopes], scope=[scope for _, scope in scopes])
