"""New jobs: the request and the answer of an enqueue."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from holdfast.domain.fleet.queue import DEFAULT_QUEUE
from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.job import JobId, OnLost
from holdfast.domain.jobs.unique_key import OnConflict, Unique


class Actor(StrEnum):
    """The system's own actors. Every other actor is the name of a person."""

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
    #: The W3C trace context of the caller.
    trace: str | None = None

    @property
    def plain(self) -> bool:
        """Whether it can be inserted without reading other rows: no key, no dependencies, no trace."""
        return self.unique is None and self.after is None and self.trace is None


class Enqueued(Struct, frozen=True):
    """The answer to an enqueue. Without *created*, the id is that of an existing job."""

    id: JobId
    created: bool
    replaced: bool = False


def due_at(request: NewJob, now: datetime) -> datetime:
    """The earliest time for *request* to run, on the store's clock."""
    if request.run_at is not None:
        return request.run_at
    return now if request.delay is None else now + request.delay
