"""The history of a job: attempts and events.

A job that succeeds at its first attempt writes no rows of history: its attempt and its
events are derived from its own columns here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from msgspec import Struct, structs

from holdfast.domain.jobs.job import EndReason, Job, State, Token, WorkerId
from holdfast.domain.jobs.new_job import Actor


class EventName(StrEnum):
    """The name of a change in a job's history."""

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
    """One change of a job. *detail* is JSON."""

    at: datetime
    name: str
    actor: str
    detail: str | None = None


class WorkerIdentity(Struct, frozen=True):
    """The process that ran an attempt."""

    host: str | None = None
    pid: int | None = None
    version: str | None = None


class Attempt(Struct, frozen=True):
    """One attempt. *number* also counts attempts before a restart. *finished_at* is None while it runs."""

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
    """The recorded attempts and the one in the job's own columns, numbered in order."""
    known = [structs.replace(row, number=number) for number, row in enumerate(rows, start=1)]
    if job.state not in (State.RUNNING, State.DONE) or job.claimed:
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
    """The recorded events and those in the job's own columns, in order of time."""
    events = [Event(job.created_at, EventName.ENQUEUED, job.actor), *rows]
    started_at = job.started_at or job.claimed_at
    if started_at is not None and job.state in (State.RUNNING, State.DONE) and not job.claimed:
        events.append(Event(started_at, EventName.STARTED, Actor.WORKER))
    if job.state is State.DONE and job.finished_at is not None:
        events.append(Event(job.finished_at, EventName.DONE, Actor.WORKER))
    return sorted(events, key=lambda event: event.at)
