"""The actions service: every change that people make, its audit entry and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct

from holdfast.domain.access.masking import mask_text
from holdfast.domain.access.roles import Via
from holdfast.domain.jobs.job import JobId, WorkerId
from holdfast.store import Store

if TYPE_CHECKING:
    from holdfast.admin.actions.batches import BatchActions
    from holdfast.admin.actions.fleet import FleetActions
    from holdfast.admin.actions.jobs import JobActions
    from holdfast.admin.actions.schedules import ScheduleActions
    from holdfast.worker.schedules.scopes import Provider


class Changed(Struct, frozen=True):
    """What a verb did: how many jobs matched, and which of them were changed."""

    action: str
    matched: int
    changed: int
    dry_run: bool
    ids: list[JobId]
    #: The states of jobs that matched and were not changed, if there are any.
    why: str | None = None
    #: Jobs that stay cancelled because one of the changed ones had failed.
    left_behind: list[JobId] = []


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


class Actions:
    """The actions of one person, grouped by what they change: ``actions.jobs.perform("cancel", selector)``.

    Each action writes an audit entry. *providers* list the scopes of schedules; only a loaded application has them.
    """

    def __init__(self, store: Store, *, actor: str, via: Via, providers: Mapping[str, Provider] | None = None) -> None:
        self.store = store
        self.actor = actor
        self._via = via
        self._providers = providers or {}

    def record(self, action: str, target: str, *, count: int | None = None, note: str | None = None) -> None:
        """Write an audit entry. Values that look like secrets are masked."""
        masked = None if note is None else mask_text(note)
        self.store.audit_log.write(action, mask_text(target), actor=self.actor, via=self._via, count=count, note=masked)

    def dry_run(self, enabled: bool = True) -> Actions:  # noqa: FBT001, FBT002 - callers pass a request's dry_run
        """The same actions on a store that rolls back: they answer and refuse as usual, and change nothing."""
        if not enabled:
            return self
        return Actions(self.store.dry_run_store(), actor=self.actor, via=self._via, providers=self._providers)

    # Most commands use one group only, so each group is imported on first use.

    @cached_property
    def jobs(self) -> JobActions:
        from holdfast.admin.actions.jobs import JobActions

        return JobActions(self)

    @cached_property
    def batches(self) -> BatchActions:
        from holdfast.admin.actions.batches import BatchActions

        return BatchActions(self)

    @cached_property
    def schedules(self) -> ScheduleActions:
        from holdfast.admin.actions.schedules import ScheduleActions

        return ScheduleActions(self, self._providers)

    @cached_property
    def fleet(self) -> FleetActions:
        from holdfast.admin.actions.fleet import FleetActions

        return FleetActions(self)
