"""What happened to a job: attempts and events.

A job that succeeded at its first attempt has neither rows of attempts nor of events: both
are read from its own columns here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from msgspec import Struct, structs

from holdfast.domain.jobs.job import EndReason, Job, State, Token, WorkerId
from holdfast.domain.jobs.new_job import Actor


class EventName(StrEnum):
    """Every change of a job that history tells."""

    ENQUEUED = "enqueued"
    WOKEN = "woken"
    DUE = "due"
    STARTED = "started"
    DONE = "done"
    FAILED = "failed"
    RELEASED = "released"
    TAKEN_OVER = "taken_over"
    CANCELLED = "cancelled"
    CANCEL_WANTED = "cancel_wanted"
    PAUSE_WANTED = "pause_wanted"
    HELD = "held"
    LET_GO = "let_go"
    RETRIED = "retried"
    REPLACED = "replaced"
    CHANGED = "changed"
    MOVED = "moved"
    REPRIORITISED = "reprioritised"
    RESCHEDULED = "rescheduled"
    CAPPED = "capped"
    BLOCKED = "blocked"
    FROZEN = "frozen"
    THAWED = "thawed"
    EVICTED = "evicted"


class Event(Struct, frozen=True):
    """One fact of a job's history. *detail* is JSON."""

    at: datetime
    name: str
    actor: str
    detail: str | None = None


class WorkerFacts(Struct, frozen=True):
    """Where an attempt ran."""

    host: str | None = None
    pid: int | None = None
    version: str | None = None


class Attempt(Struct, frozen=True):
    """One try at a job; its *number* counts all there were, also before a restart. ``ended_at``: None while it runs."""

    number: int
    token: Token
    worker: WorkerId | None
    host: str | None
    pid: int | None
    version: str | None
    started_at: datetime | None
    ended_at: datetime | None
    reason: str | None
    exit_code: int | None
    error: str | None


def all_attempts(job: Job, rows: Sequence[Attempt], worker: WorkerFacts) -> list[Attempt]:
    """The recorded attempts, and the one that only the job's own columns tell of; numbered as they came."""
    known = [structs.replace(row, number=number) for number, row in enumerate(rows, start=1)]
    if job.state not in (State.RUNNING, State.DONE):
        return known
    running = job.state is State.RUNNING
    last = Attempt(
        number=len(known) + 1,
        token=job.token,
        worker=job.worker,
        host=worker.host,
        pid=worker.pid,
        version=worker.version,
        started_at=job.started_at or job.claimed_at,
        ended_at=job.ended_at,
        reason=None if running else EndReason.DONE,
        exit_code=None,
        error=None,
    )
    return [*known, last]


def all_events(job: Job, rows: Sequence[Event]) -> list[Event]:
    """The recorded events, with those that the job's own columns tell of."""
    events = [Event(job.created_at, EventName.ENQUEUED, job.actor), *rows]
    started_at = job.started_at or job.claimed_at
    if started_at is not None and job.state in (State.RUNNING, State.DONE):
        events.append(Event(started_at, EventName.STARTED, Actor.WORKER))
    if job.state is State.DONE and job.ended_at is not None:
        events.append(Event(job.ended_at, EventName.DONE, Actor.WORKER))
    return sorted(events, key=lambda event: event.at)
