"""What a caller asks for when it enqueues, and the answer."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from holdfast.domain.fleet.queue import DEFAULT_QUEUE
from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.job import JobId, OnLost
from holdfast.domain.jobs.unique_key import OnConflict, Unique


class Actor(StrEnum):
    """The system's own actors. Every other actor is a person's name."""

    CLIENT = "holdfast:client"
    SQL = "holdfast:sql"
    WORKER = "holdfast:worker"
    MAINTENANCE = "holdfast:sweeper"
    DEPENDENCIES = "holdfast:needs"
    SCHEDULER = "holdfast:scheduler"


class NewJob(Struct, frozen=True, kw_only=True):
    """A job to be enqueued. *delay* counts from now, *run_at* is absolute; both at once is an error."""

    kind: str
    payload: str = "{}"
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    delay: timedelta | None = None
    run_at: datetime | None = None
    label: str | None = None
    tags: str | None = None
    unique: Unique | None = None
    on_conflict: OnConflict = OnConflict.SKIP
    after: After | None = None
    hold: bool = False
    max_attempts: int | None = 3
    max_crashes: int | None = 3
    on_lost: OnLost = OnLost.RETRY
    retry: str | None = None
    parent_id: JobId | None = None
    actor: str = Actor.CLIENT
    #: The W3C trace context of whoever enqueues it.
    trace: str | None = None

    @property
    def plain(self) -> bool:
        """Whether it needs no look at other rows: no key, no needs, no trace."""
        return self.unique is None and self.after is None and self.trace is None


class Enqueued(Struct, frozen=True):
    """The answer to an enqueue: *created*, or the id of the job that was there already."""

    id: JobId
    created: bool
    replaced: bool = False


def due_at(request: NewJob, now: datetime) -> datetime:
    """The moment from which *request* may run, on the store's clock."""
    if request.run_at is not None:
        return request.run_at
    return now if request.delay is None else now + request.delay
