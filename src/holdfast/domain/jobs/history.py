"""The history of a job: attempts and events.

A job that succeeds at its first attempt writes no rows of history: its attempt and its
events are derived from its own columns here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

import msgspec
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
    UNREADABLE = "unreadable"
    OFFERED = "offered"
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


#: A worker id: the host, and a random part; before both the sort of process, unless it is a worker's.
_WORKER_ID = re.compile(r"(?!inline-)(?:run-|start-)?(.+)-[0-9a-f]{8,16}")


def host_of(worker: WorkerId | None) -> str | None:
    """The host that the id of a worker names. It outlives the row of the worker."""
    match = _WORKER_ID.fullmatch(worker or "")
    return match and match[1]


def all_attempts(job: Job, rows: Sequence[Attempt], worker: WorkerIdentity) -> list[Attempt]:
    """The recorded attempts and the one in the job's own columns, numbered in order."""
    known = [
        structs.replace(row, number=number, host=row.host or host_of(row.worker))
        for number, row in enumerate(rows, start=1)
    ]
    if job.state not in (State.RUNNING, State.DONE) or job.claimed:
        return known
    running = job.state is State.RUNNING
    last = Attempt(
        number=len(known) + 1,
        token=job.token,
        worker=job.worker,
        host=worker.host or host_of(job.worker),
        pid=worker.pid,
        version=worker.version,
        started_at=job.started_at or job.claimed_at,
        finished_at=job.finished_at,
        reason=None if running else EndReason.DONE,
        exit_code=None,
        error=None,
    )
    return [*known, last]


#: Events that end an attempt.
_ENDS = frozenset({EventName.DONE, EventName.FAILED, EventName.RELEASED, EventName.TAKEN_OVER, EventName.CANCELLED})


def all_events(job: Job, rows: Sequence[Event], attempts: Sequence[Attempt]) -> list[Event]:
    """The recorded events, those in the job's own columns, and the starts of all *attempts*, in order of time.

    Of events of the same time, a start comes right before the end of its attempt.
    """
    placed = [(job.created_at, -1, Event(job.created_at, EventName.ENQUEUED, job.actor))]
    placed += [(event.at, 2 * index + 1, event) for index, event in enumerate(rows)]
    ends = [(index, event) for index, event in enumerate(rows) if event.name in _ENDS]
    for attempt in attempts:
        if attempt.reason == EndReason.UNREADABLE:
            continue  # its handler was not called
        place = 2 * len(rows)
        if attempt.finished_at is not None:
            end = next((each for each in ends if each[1].at == attempt.finished_at), None)
            if end is not None:
                ends.remove(end)
                place = 2 * end[0]
        if attempt.started_at is not None and not (job.claimed and attempt.token == job.token):
            placed.append((attempt.started_at, place, Event(attempt.started_at, EventName.STARTED, Actor.WORKER)))
    if job.state is State.DONE and job.finished_at is not None:
        detail = None if job.overdue is None else msgspec.json.encode({"overdue": job.overdue}).decode()
        done = Event(job.finished_at, EventName.DONE, Actor.WORKER, detail)
        placed.append((job.finished_at, 2 * len(rows) + 1, done))
    return [event for _, _, event in sorted(placed, key=lambda each: each[:2])]
