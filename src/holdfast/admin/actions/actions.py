"""The actions service: every change that people make, its audit entry, its dry run and its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct

from holdfast.admin.actions.changed import Changed
from holdfast.admin.actions.table import Target, find_action
from holdfast.domain.access.audit import Via
from holdfast.domain.access.masking import mask_text
from holdfast.domain.jobs.job import JobId, State
from holdfast.domain.jobs.new_job import EnqueueOutcome
from holdfast.store import LazyAttribute, Store
from holdfast.store.access.audit import AuditedAction, Changes, changes_of
from holdfast.worker.commands.identity import os_user

if TYPE_CHECKING:
    from holdfast.admin.actions.batches import BatchActions, UnitActions
    from holdfast.admin.actions.fleet import QueueActions, StoreActions, WorkerActions
    from holdfast.admin.actions.inboxes import InboxActions
    from holdfast.admin.actions.jobs import JobActions
    from holdfast.admin.actions.schedules import ScheduleActions
    from holdfast.worker.schedules.scopes import Provider


class CancelledJob(Struct, frozen=True, order=True):
    """A new job that a failed dependency cancelled at once."""

    id: JobId
    state: State
    reason: str


class EnqueuedJob(Struct, frozen=True):
    """The job, and what the enqueue did; not *created*: the job existed before. In a *dry_run* a new job has no id."""

    id: JobId | None
    created: bool
    outcome: EnqueueOutcome
    kind: str
    queue: str
    dry_run: bool = False
    cancelled: list[CancelledJob] = []


group: Any = partial(LazyAttribute, "holdfast.admin.actions", lambda actions: actions)


class Actions:
    """The actions of one person, grouped by what they change: ``actions.jobs.perform("cancel", selector)``.

    The changes of an action and its audit entry are one transaction; an action that changes nothing writes no entry.
    *logs* is the folder of command logs on this host; they go with deleted jobs. *providers* list the scopes of
    schedules; only a loaded application has them.
    """

    jobs: JobActions = group("jobs:JobActions")
    batches: BatchActions = group("batches:BatchActions")
    units: UnitActions = group("batches:UnitActions")
    inboxes: InboxActions = group("inboxes:InboxActions")
    schedules: ScheduleActions = group("schedules:ScheduleActions")
    queues: QueueActions = group("fleet:QueueActions")
    workers: WorkerActions = group("fleet:WorkerActions")
    stop_switch: StoreActions = group("fleet:StoreActions")

    def __init__(
        self,
        store: Store,
        *,
        actor: str,
        via: Via,
        logs: Path | None = None,
        providers: Mapping[str, Provider] | None = None,
    ) -> None:
        self.store = store
        self.logs = logs
        self.actor = actor
        self.providers = providers or {}
        self.is_dry_run = False
        self._via = via
        #: Of a person at this keyboard; the process of a web server has another user.
        self._os_user = os_user() if via is Via.CLI else None

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
            os_user=self._os_user,
        )

    def record(self, action: str, target: str, *, note: str | None = None) -> None:
        """Write the audit entry of an action that changes nothing in the store, such as a login or a backup."""
        self.store.audit_log.write(self.describe(action, target, note=note))

    @contextmanager
    def on_trial(self, dry_run: bool) -> Iterator[Actions]:  # noqa: FBT001 - callers pass a request's dry_run
        """The same actions; in a dry run on a store that rolls back: they answer and refuse as usual.

        They have no providers, because functions of an application must not run inside a transaction.
        """
        if not dry_run:
            yield self
            return
        with self.store.dry_run() as store:
            actions = Actions(store, actor=self.actor, via=self._via, logs=self.logs)
            actions.is_dry_run = True
            yield actions


class TargetActions:
    """The actions on one type of object. A subclass defines ``run``."""

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
