"""The actions service: every change that people make, its audit entry and its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from holdfast.domain.access.masking import mask_text
from holdfast.domain.access.roles import Via
from holdfast.domain.fleet.stop_switch import StopSwitch
from holdfast.domain.jobs.job import JobId, WorkerId
from holdfast.domain.jobs.new_job import EnqueueOutcome
from holdfast.store import Store
from holdfast.store.access.audit import AuditedAction, Changes, changes_of

if TYPE_CHECKING:
    from holdfast.admin.actions.batches import BatchActions
    from holdfast.admin.actions.fleet import FleetActions
    from holdfast.admin.actions.inboxes import InboxActions
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
    """What a verb did to a batch, or with a *dry_run* would do; *units* counts those that it changed.

    *note* says what is left for a person to do.
    """

    batch: int
    action: str
    changed: bool
    units: int | None = None
    dry_run: bool = False
    note: str | None = None


class EnqueuedJob(Struct, frozen=True):
    """The job, and what the enqueue did; not *created*: the job existed before. In a *dry_run* a new job has no id."""

    id: JobId | None
    created: bool
    outcome: EnqueueOutcome
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


class StopChanged(Struct, frozen=True):
    """The stop switch after a change, or in a *dry_run* as it would be; None: the store is not stopped.

    *jobs* were requested to stop, or go on.
    """

    stopped: StopSwitch | None
    jobs: list[JobId]
    dry_run: bool = False


class WorkerRequestSent(Struct, frozen=True):
    """What a worker was asked; it obeys with its next heartbeat."""

    worker: WorkerId
    request: str


class Actions:
    """The actions of one person, grouped by what they change: ``actions.jobs.perform("cancel", selector)``.

    The changes of an action and its audit entry are one transaction; an action that changes nothing writes no entry.
    *providers* list the scopes of schedules; only a loaded application has them.
    """

    def __init__(self, store: Store, *, actor: str, via: Via, providers: Mapping[str, Provider] | None = None) -> None:
        self.store = store
        self.actor = actor
        self._via = via
        self._providers = providers or {}
        self.is_dry_run = False

    def audited(
        self,
        action: str,
        target: str | Callable[[Any], str],
        *,
        note: str | None = None,
        changes: Callable[[Any], Changes] = changes_of,
    ) -> Store:
        """The store for the changes of one action. Their transactions write its audit entry, with secrets masked."""
        return self.store.audited(self.describe(action, target, note=note, changes=changes))

    def describe(
        self,
        action: str,
        target: str | Callable[[Any], str],
        *,
        note: str | None = None,
        changes: Callable[[Any], Changes] = changes_of,
    ) -> AuditedAction:
        """An action of this person for the audit log. Values that look like secrets are masked."""
        return AuditedAction(
            actor=self.actor,
            via=self._via,
            action=action,
            target=_mask_target(target) if isinstance(target, str) else lambda changed: _mask_target(target(changed)),
            note=None if note is None else mask_text(note),
            changes=changes,
        )

    def record(self, action: str, target: str, *, note: str | None = None) -> None:
        """Write the audit entry of an action that changes nothing in the store, such as a login or a backup."""
        masked = None if note is None else mask_text(note)
        self.store.audit_log.write(action, _mask_target(target), actor=self.actor, via=self._via, note=masked)

    def dry_run(self, enabled: bool = True) -> Actions:  # noqa: FBT001, FBT002 - callers pass a request's dry_run
        """The same actions on a store that rolls back: they answer and refuse as usual, and change nothing."""
        if not enabled:
            return self
        actions = Actions(self.store.dry_run_store(), actor=self.actor, via=self._via, providers=self._providers)
        actions.is_dry_run = True
        return actions

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
    def inboxes(self) -> InboxActions:
        from holdfast.admin.actions.inboxes import InboxActions

        return InboxActions(self)

    @cached_property
    def schedules(self) -> ScheduleActions:
        from holdfast.admin.actions.schedules import ScheduleActions

        return ScheduleActions(self, self._providers)

    @cached_property
    def fleet(self) -> FleetActions:
        from holdfast.admin.actions.fleet import FleetActions

        return FleetActions(self)


def _mask_target(target: str) -> str:
    """Mask secrets in a target. The name of a token is none, although it looks like one."""
    return target if target.startswith("token=") else mask_text(target)
