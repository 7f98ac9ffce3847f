"""Plans: the due moments of schedules, each in one scope, and how they stand to each other."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import assert_never

import msgspec
from msgspec import Struct

from holdfast.domain.jobs.job import JobId, State

#: The scope of a schedule that has no others.
GLOBAL = "global"


class Plan(Struct, frozen=True):
    """One due moment of a schedule, in one scope. A handler with a parameter of this type is told its own.

    *time* is when it was due by the rule, whenever it runs.
    """

    schedule: str
    time: datetime
    scope: str = GLOBAL

    @property
    def key(self) -> str:
        """The same for every attempt at a plan, and for no other: for services that take an idempotency key."""
        return hashlib.sha256(msgspec.json.encode([self.schedule, self.scope, self.time])).hexdigest()[:32]


def jittered(plan: Plan, jitter: timedelta) -> timedelta:
    """The share of *jitter* by which a plan's job is put off: the same on every replica, and at every try."""
    return jitter * (int(plan.key[:16], 16) / 2**64)


class Origin(StrEnum):
    """Why a plan was fired: it was due, or a person asked for it."""

    DUE = "due"
    TRIGGER = "trigger"
    BACKFILL = "backfill"


# -- plans that meet -------------------------------------------------------------------------


class Overlap(StrEnum):
    """What becomes of a plan while the run of an earlier one, in the same scope, has not ended."""

    SKIP = "skip"
    QUEUE_ONE = "queue_one"
    QUEUE_ALL = "queue_all"
    CANCEL_RUNNING = "cancel_running"
    ALLOW = "allow"


class PlanStatus(StrEnum):
    """How an earlier plan stands: it runs or may any moment; it waits for its turn; it is out of the way; it is over.

    Out of the way is what waits for its retry, or for a person.
    """

    RUNNING = "running"
    QUEUED = "queued"
    APART = "apart"
    FINISHED = "finished"


def standing(state: State | None, attempts: int) -> PlanStatus:
    """How a plan stands whose job is in this state; None: it has ended."""
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


class Earlier(Struct, frozen=True):
    """An earlier plan of the same scope."""

    job_id: JobId
    standing: PlanStatus


class Turn(StrEnum):
    """What a new plan does: start, wait for the one before it, or not be fired."""

    START = "start"
    WAIT = "wait"
    SKIP = "skip"


class Arranged(Struct, frozen=True):
    """The turns of new plans, the oldest first; the first that waits, waits for *after*; *cancel* is to go."""

    turns: Sequence[Turn]
    after: Sequence[JobId] = ()
    cancel: Sequence[JobId] = ()


def arrange(overlap: Overlap, earlier: Sequence[Earlier], count: int) -> Arranged:
    """Let *count* new plans of one scope, the oldest first, meet the *earlier* ones of it."""
    running = [plan.job_id for plan in earlier if plan.standing is PlanStatus.RUNNING]
    queued = [plan.job_id for plan in earlier if plan.standing is PlanStatus.QUEUED]
    tail = queued[-1:] or running
    busy = bool(tail)
    match overlap:
        case Overlap.ALLOW:
            return Arranged([Turn.START] * count)
        case Overlap.SKIP:
            return Arranged(_first([] if busy else [Turn.START], count))
        case Overlap.QUEUE_ONE:
            free = [] if queued else [Turn.WAIT] if running else [Turn.START, Turn.WAIT]
            return Arranged(_first(free, count), after=tail)
        case Overlap.QUEUE_ALL:
            return Arranged([Turn.WAIT if busy or place else Turn.START for place in range(count)], after=tail)
        case Overlap.CANCEL_RUNNING:
            last = Turn.WAIT if running else Turn.START
            return Arranged([*[Turn.SKIP] * (count - 1), last], after=running, cancel=[*running, *queued])
        case _:
            assert_never(overlap)


def _first(turns: list[Turn], count: int) -> list[Turn]:
    """These, and all others are skipped."""
    return (turns + [Turn.SKIP] * count)[:count]
