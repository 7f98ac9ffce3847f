"""The answers of actions: the same on the command line, on pages and in the API."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from holdfast.domain.jobs.job import JobId, WorkerId


class Changed(Struct, frozen=True):
    """What a verb did: how many jobs matched, and which of them were changed."""

    action: str
    matched: int
    changed: int
    dry_run: bool
    ids: list[JobId]
    #: The states of jobs that matched and were not changed, if there are any.
    why: str | None = None


class BatchChanged(Struct, frozen=True):
    """What a verb did to a batch, or with a *dry_run* would do; *units* counts those that it changed."""

    batch: int
    action: str
    changed: bool
    units: int | None = None
    dry_run: bool = False


class EnqueuedJob(Struct, frozen=True):
    """The job; not *created*: another with its key was there already. In a *dry_run* a new job has no id."""

    id: JobId | None
    created: bool
    kind: str
    queue: str
    dry_run: bool = False


class Triggered(Struct, frozen=True):
    """The jobs that were enqueued."""

    schedule: str
    jobs: list[JobId]


class BackfilledPlans(Struct, frozen=True):
    """What a backfill did, or with a *dry_run* would do; *known* plans had been fired before."""

    schedule: str
    plans: int
    known: int
    first: datetime | None
    last: datetime | None
    jobs: list[JobId]
    dry_run: bool


class WorkerRequestSent(Struct, frozen=True):
    """What a worker was asked; it obeys with its next heartbeat."""

    worker: WorkerId
    request: str
