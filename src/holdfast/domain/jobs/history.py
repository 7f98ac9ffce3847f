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
    CANCEL_REQUESTED = "cancel_requested"
    PAUSE_REQUESTED = "pause_requested"
    HELD = "held"
    RESUMED = "resumed"
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


class WorkerIdentity(Struct, frozen=True):
    """Where an attempt ran."""

    host: str | None = None
    pid: int | None = None
    version: str | None = None


class Attempt(Struct, frozen=True):
    """One try at a job. *number* also counts attempts before a restart. *finished_at* is None while it runs."""

    number: int
    token: Token
    worker: WorkerId | None
    host: str | None
    pid: int | None
    version: str | None
    started_at: datetime | None
    finished_at: datetime | None
    reason: str | None
    exit_code: int | None
    error: str | None


def all_attempts(job: Job, rows: Sequence[Attempt], worker: WorkerIdentity) -> list[Attempt]:
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
        finished_at=job.finished_at,
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
    if job.state is State.DONE and job.finished_at is not None:
        events.append(Event(job.finished_at, EventName.DONE, Actor.WORKER))
    return sorted(events, key=lambda event: event.at)
