"""The actions service: every change that people make, its audit entry, its dry run and its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct

from holdfast.admin.actions.changed import Changed
from holdfast.admin.actions.table import Target, find_action
from holdfast.domain.access.masking import mask_text
from holdfast.domain.access.roles import Via
from holdfast.domain.jobs.job import JobId
from holdfast.domain.jobs.new_job import EnqueueOutcome
from holdfast.store import Store
from holdfast.store.access.audit import AuditedAction, Changes, changes_of

if TYPE_CHECKING:
    from holdfast.admin.actions.batches import BatchActions, UnitActions
    from holdfast.admin.actions.fleet import QueueActions, StoreActions, WorkerActions
    from holdfast.admin.actions.inboxes import InboxActions
    from holdfast.admin.actions.jobs import JobActions
    from holdfast.admin.actions.schedules import ScheduleActions
    from holdfast.worker.schedules.scopes import Provider


class EnqueuedJob(Struct, frozen=True):
    """The job, and what the enqueue did; not *created*: the job existed before. In a *dry_run* a new job has no id."""

    id: JobId | None
    created: bool
    outcome: EnqueueOutcome
    kind: str
    queue: str
    dry_run: bool = False


class Actions:
    """The actions of one person, grouped by what they change: ``actions.jobs.perform("cancel", selector)``.

    The changes of an action and its audit entry are one transaction; an action that changes nothing writes no entry.
    *providers* list the scopes of schedules; only a loaded application has them.
    """

    def __init__(self, store: Store, *, actor: str, via: Via, providers: Mapping[str, Provider] | None = None) -> None:
        self.store = store
        self.actor = actor
        self.providers = providers or {}
        self.is_dry_run = False
        self._via = via

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

    @contextmanager
    def on_trial(self, dry_run: bool) -> Iterator[Actions]:  # noqa: FBT001 - callers pass a request's dry_run
        """The same actions; in a dry run on a store that rolls back: they answer and refuse as usual.

        They have no providers, because functions of an application must not run inside a transaction.
        """
        if not dry_run:
            yield self
            return
        with self.store.dry_run() as store:
            actions = Actions(store, actor=self.actor, via=self._via)
            actions.is_dry_run = True
            yield actions

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
    def units(self) -> UnitActions:
        from holdfast.admin.actions.batches import UnitActions

        return UnitActions(self)

    @cached_property
    def inboxes(self) -> InboxActions:
        from holdfast.admin.actions.inboxes import InboxActions

        return InboxActions(self)

    @cached_property
    def schedules(self) -> ScheduleActions:
        from holdfast.admin.actions.schedules import ScheduleActions

        return ScheduleActions(self)

    @cached_property
    def queues(self) -> QueueActions:
        from holdfast.admin.actions.fleet import QueueActions

        return QueueActions(self)

    @cached_property
    def workers(self) -> WorkerActions:
        from holdfast.admin.actions.fleet import WorkerActions

        return WorkerActions(self)

    @cached_property
    def stop_switch(self) -> StoreActions:
        from holdfast.admin.actions.fleet import StoreActions

        return StoreActions(self)


class TargetActions:
    """The actions on one sort of object. A subclass defines ``run``."""

    target: ClassVar[Target]
    #: Takes an action, its subject and its options, and changes the subject.
    run: Callable[..., Changed]

    def __init__(self, actions: Actions) -> None:
        self._actions = actions
        self._store = actions.store

    def perform(self, name: str, subject: Any, *, dry_run: bool = False, **options: Any) -> Changed:
        """Perform an action of the table on *subject*. A dry run is the action on a store that rolls back."""
        action = find_action(self.target, name)
        with self._actions.on_trial(dry_run) as actions:
            return type(self)(actions).run(action, subject, **options)


def _mask_target(target: str) -> str:
    """Mask secrets in a target. The name of a token is none, although it looks like one."""
    return target if target.startswith("token=") else mask_text(target)
