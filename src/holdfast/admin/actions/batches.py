"""Actions on batches and their units."""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec import structs

from holdfast.admin.actions.actions import TargetActions
from holdfast.admin.actions.changed import MAX_UNCHANGED, Changed, Unchanged, answer_for_one
from holdfast.admin.actions.table import Action, Target
from holdfast.admin.views.batches import batch_secrets
from holdfast.domain.access.masking import mask_cut, mask_text
from holdfast.domain.batches.batch import DRIVER, BatchId, BatchState, batch_label, sharding_of
from holdfast.domain.batches.unit import UnitKey, UnitState
from holdfast.domain.jobs.error_clusters import cluster_key
from holdfast.domain.jobs.job import ControlRequest
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import NotFound
from holdfast.store import Store
from holdfast.store.access.audit import Changes, changes_of
from holdfast.store.batches.control import OnStep, ignore_step
from holdfast.store.batches.state import UnitStep
from holdfast.worker.batches.conflicts import command_of

#: Number of failed units that are searched for a cluster.
MAX_SCANNED_UNITS = 100_000


class BatchActions(TargetActions):
    """Changes batches and records each change."""

    target = Target.BATCH

    def run(self, action: Action, batch_id: BatchId, *, on_step: OnStep = ignore_step) -> Changed:
        """Change a batch; *on_step* is called with the number of units so far."""
        before = self._store.batches.get(batch_id)
        is_first_cancel = not before.state.finished and before.requested is not ControlRequest.CANCEL
        batches = self._audited(action, batch_id, is_first_cancel=is_first_cancel).batches
        units: int | None = None
        note: str | None = None
        match action.name:
            case "pause":
                changed = batches.pause(batch_id)
            case "resume":
                changed = batches.resume(batch_id)
                note = self._how_to_continue(batch_id)
            case "cancel":
                units = batches.cancel(batch_id, on_step=on_step)
                changed = is_first_cancel or units > 0
            case "retry-failed":
                units = batches.retry_failed(batch_id, on_step=on_step)
                changed = units > 0
            case "rm":
                batches.delete(batch_id, on_step=on_step)
                changed = True
            case _:
                raise AssertionError(action.name)
        dry_run = self._actions.is_dry_run
        answer = answer_for_one(action, batch_id, before.state, changed=changed, dry_run=dry_run)
        return structs.replace(answer, units=units, note=note)

    def _how_to_continue(self, batch_id: BatchId) -> str | None:
        """The command that continues a batch, if no worker does."""
        batch = self._store.batches.get(batch_id)
        if batch.state not in (BatchState.STOPPED, BatchState.READY) or sharding_of(batch) is not None:
            return None
        jobs = self._store.views.page(Selector(labels=(batch_label(batch),), kinds=(DRIVER,)), limit=1).jobs
        command = command_of(jobs[0].payload) if jobs else None
        which = f": {mask_text(command)}" if command else ""
        return f"it runs in the foreground: run its command again to continue it{which}"

    def _audited(self, action: Action, batch_id: BatchId, *, is_first_cancel: bool) -> Store:
        """The store for one action. Several transactions may do it, each a step."""

        def changes(answer: Any) -> Changes:
            if isinstance(answer, UnitStep):
                # The first cancel of a batch changes it, even if it has no unit left.
                return answer.changed or (action.name == "cancel" and is_first_cancel)
            return answer is None if action.name == "rm" else changes_of(answer)

        return self._actions.audited(action.audit_name, f"batch={batch_id}", changes=changes)


class UnitCluster(NamedTuple):
    """The failed units of a batch whose errors look alike."""

    batch_id: BatchId
    key: str


class UnitActions(TargetActions):
    """Changes the failed units of one cluster of errors."""

    target = Target.UNIT

    def run(self, action: Action, cluster: UnitCluster) -> Changed:
        """Retry or skip the units of a cluster."""
        keys, target = self._keys_of(cluster), f"batch={cluster.batch_id} cluster={cluster.key}"
        ledger = self._actions.audited(action.audit_name, target).ledger
        change = ledger.retry if action.name == "retry" else ledger.skip
        count, ids = change(cluster.batch_id, keys), list[int | str](keys)
        left = len(keys) - count
        return Changed(
            action=action.name,
            target=action.target,
            matched=len(keys),
            changed=count,
            ids=ids if not left else [],
            unchanged=[Unchanged(action.explain(UnitState.FAILED), left, [] if count else ids[:MAX_UNCHANGED])]
            if left
            else [],
            dry_run=self._actions.is_dry_run,
            units=count,
        )

    def _keys_of(self, cluster: UnitCluster) -> list[UnitKey]:
        batch = self._store.batches.get(cluster.batch_id)
        secrets = batch_secrets(batch)
        keys = []
        for scanned, unit in enumerate(self._store.ledger.all_errors(cluster.batch_id)):
            if cluster_key(batch.kind, mask_cut(unit.error, secrets)) == cluster.key:
                keys.append(unit.key)
            if scanned >= MAX_SCANNED_UNITS or len(keys) >= MAX_SCANNED_UNITS:
                break
        if not keys:
            raise NotFound(
                f"no failed unit belongs to the cluster {cluster.key[:40]!r}", hint="They may run again already."
            )
        return keys
