"""Plans: the times at which a schedule fires, each in one scope, and their overlap with earlier plans."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import assert_never

import msgspec
from msgspec import Struct

from holdfast.domain.jobs.job import JobId, State

#: The scope of a schedule that names none.
GLOBAL = "global"
#: The most plans of a scope that wait in line, unless the schedule has another limit.
MAX_BACKLOG = 10_000


class Plan(Struct, frozen=True, gc=False):
    """One time at which a schedule fires, in one scope. A handler parameter of this type receives its own plan.

    *time* is the time that the rule names, even if the job runs later.
    """

    schedule: str
    time: datetime
    scope: str = GLOBAL

    @property
    def key(self) -> str:
        """An idempotency key: the same for every attempt at this plan, and different for every other plan."""
        return hashlib.sha256(msgspec.json.encode([self.schedule, self.scope, self.time])).hexdigest()[:32]


def scope_tag(scope: str) -> str:
    """Return the tag of the jobs of one scope. Those of schedules without scopes have none."""
    return f"scope={scope}"


def jittered(plan: Plan, jitter: timedelta) -> timedelta:
    """Return the share of *jitter* that delays a plan's job: the same on every replica and at every attempt."""
    return jitter * (int(plan.key[:16], 16) / 2**64)


class Origin(StrEnum):
    """Why a plan was fired: it was due, or a person requested it."""

    DUE = "due"
    TRIGGER = "trigger"
    BACKFILL = "backfill"


# -- overlap ---------------------------------------------------------------------------------


class Overlap(StrEnum):
    """What happens to a plan while the run of an earlier one, in the same scope, has not finished."""

    SKIP = "skip"
    QUEUE_ONE = "queue_one"
    QUEUE_ALL = "queue_all"
    CANCEL_RUNNING = "cancel_running"
    ALLOW = "allow"


class PlanStatus(StrEnum):
    """How an earlier plan affects new ones.

    RUNNING includes jobs that may start at any time; APART waits for a retry or for a person, and blocks nothing.
    """

    RUNNING = "running"
    QUEUED = "queued"
    APART = "apart"
    FINISHED = "finished"


def plan_status(state: State | None, attempts: int) -> PlanStatus:
    """Return the status of a plan from the state of its job; None: the job has left the store."""
    match state:
        case State.READY | State.RUNNING:
            return PlanStatus.RUNNING
        case State.WAITING:
            return PlanStatus.QUEUED
        case State.SCHEDULED:
            return PlanStatus.APART if attempts else PlanStatus.RUNNING
        case State.HELD:
            return PlanStatus.APART
        case State.DONE | State.DEAD | State.CANCELLED | None:
            return PlanStatus.FINISHED
        case _:
            assert_never(state)


class Turn(StrEnum):
    """What a new plan does: start, wait for the plan before it, or be skipped."""

    START = "start"
    WAIT = "wait"
    SKIP = "skip"


class Arrangement(Struct, frozen=True):
    """The turns of new plans, oldest first.

    The first plan that waits, waits for the jobs *after*. The jobs *cancel* are cancelled.
    """

    turns: Sequence[Turn]
    after: Sequence[JobId] = ()
    cancel: Sequence[JobId] = ()


class EarlierPlans(Struct):
    """The unfinished jobs of earlier plans of one scope, oldest first.

    *queued* may hold only the newest of the jobs that wait in line; *length* is their number.
    """

    running: list[JobId] = []
    queued: list[JobId] = []
    length: int = 0


NO_EARLIER_PLANS = EarlierPlans()
_START_ALONE = Arrangement((Turn.START,))


def arrange(overlap: Overlap, earlier: EarlierPlans, count: int, *, max_backlog: int = MAX_BACKLOG) -> Arrangement:
    """Decide the turns of *count* new plans of one scope. With ``queue_all``, at most *max_backlog* wait in line."""
    running, queued = earlier.running, earlier.queued
    tail = queued[-1:] or running
    if count == 1 and not tail:  # most plans
        return _START_ALONE
    match overlap:
        case Overlap.ALLOW:
            return Arrangement([Turn.START] * count)
        case Overlap.SKIP:
            return Arrangement(_skip_rest([] if tail else [Turn.START], count))
        case Overlap.QUEUE_ONE:
            free = [] if queued else [Turn.WAIT] if running else [Turn.START, Turn.WAIT]
            return Arrangement(_skip_rest(free, count), after=tail)
        case Overlap.QUEUE_ALL:
            room = max(0, max_backlog - earlier.length)
            line = [*([] if tail else [Turn.START]), *[Turn.WAIT] * min(room, count)]
            return Arrangement(_skip_rest(line, count), after=tail)
        case Overlap.CANCEL_RUNNING:
            last = Turn.WAIT if running else Turn.START
            return Arrangement([*[Turn.SKIP] * (count - 1), last], after=running, cancel=[*running, *queued])
        case _:
            assert_never(overlap)


def _skip_rest(turns: list[Turn], count: int) -> list[Turn]:
    return (turns + [Turn.SKIP] * count)[:count]
