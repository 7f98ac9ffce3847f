"""Actions on batches and their units."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

from msgspec import structs

from holdfast.admin.actions.actions import TargetActions
from holdfast.admin.actions.changed import MAX_UNCHANGED, Changed, Unchanged, answer_for_one, group_unchanged
from holdfast.admin.actions.table import Action, Target
from holdfast.admin.views.batches import batch_secrets
from holdfast.domain.access.masking import mask_cut, mask_text
from holdfast.domain.batches.batch import DRIVER, BatchId, BatchState, batch_label, sharding_of
from holdfast.domain.batches.batch_filter import BatchFilter
from holdfast.domain.batches.unit import UnitKey, UnitState
from holdfast.domain.jobs.error_clusters import cluster_key
from holdfast.domain.jobs.job import ControlRequest
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import BatchHeld, InvalidInput, NoSuchBatch, NotFound
from holdfast.store import Store
from holdfast.store.access.audit import Changes, changes_of
from holdfast.store.batches.control import OnStep, ignore_step
from holdfast.store.batches.state import UnitStep
from holdfast.worker.batches.conflicts import command_of

#: Number of failed units that are searched for a cluster.
MAX_SCANNED_UNITS = 100_000
#: The states that a filter without states takes; batches in other states cannot change.
DEFAULT_STATES = {
    "cancel": tuple(state for state in BatchState if not state.finished),
    "rm": tuple(state for state in BatchState if state.finished),
}
#: Batches that one action takes.
MAX_BATCHES = 10_000


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
                changed = batches.pause(batch_id, actor=self._actions.actor)
            case "resume":
                changed = batches.resume(batch_id, actor=self._actions.actor)
                note = self._how_to_continue(batch_id)
            case "cancel":
                units = batches.cancel(batch_id, actor=self._actions.actor, on_step=on_step)
                changed = is_first_cancel or units > 0
            case "retry-failed":
                units = batches.retry_failed(batch_id, actor=self._actions.actor, on_step=on_step)
                changed = units > 0
            case "rm":
                counters = self._store.batches.counters(batch_id)
                units = max(before.total or 0, counters.over + counters.in_inbox)
                batches.delete(batch_id, on_step=on_step)
                changed = True
            case _:
                raise AssertionError(action.name)
        dry_run = self._actions.is_dry_run
        # Without a holder the batch is in the state that the past tense names.
        requested = changed and bool(action.request) and self._store.batches.get(batch_id).state != action.past
        answer = answer_for_one(action, batch_id, before.state, changed=changed, dry_run=dry_run, requested=requested)
        return structs.replace(answer, units=units, note=note)

    def select(self, action: str, chosen: BatchFilter, *, ids: Sequence[int] = ()) -> list[BatchId]:
        """The batches that ``cancel`` or ``rm`` takes: those with these *ids*, or those that match the filter.

        Without a condition an action takes no batch. No match is refused: the filter may have a misspelt name.
        """
        if action not in DEFAULT_STATES:
            raise InvalidInput(f"{action[:40]!r} takes one batch", hint=f"For many: {', '.join(DEFAULT_STATES)}.")
        if bool(ids) == bool(chosen.where):
            raise InvalidInput(f"which batches should {action} take?", hint="Give ids, or conditions such as --state.")
        if ids:
            return [self._store.batches.get(BatchId(each)).id for each in dict.fromkeys(ids)]
        if chosen.states is None:
            chosen = structs.replace(chosen, states=DEFAULT_STATES[action])
        matches = [batch.id for batch in islice(self._store.batches.all(chosen), MAX_BATCHES)]
        if not matches:
            raise NoSuchBatch("no batch matches", hint="holdfast batch ls with the same options shows what does.")
        return matches

    def perform_on_many(
        self, action: str, ids: Sequence[BatchId], *, dry_run: bool = False, on_step: OnStep = ignore_step
    ) -> Changed:
        """Perform an action on batches one after the other. The answer says why some of them were not changed."""
        changed: list[int | str] = []
        requested: list[int | str] = []
        unchanged: list[tuple[int | str, str]] = []
        units = 0
        for batch_id in ids:
            try:
                answer = self.perform(action, batch_id, dry_run=dry_run, on_step=lambda count: on_step(units + count))  # noqa: B023
            except (BatchHeld, NoSuchBatch) as error:
                if len(ids) == 1:
                    raise
                unchanged.append((batch_id, error.message))
                continue
            units += answer.units or 0
            changed += answer.ids
            requested += answer.requested
            unchanged += [(batch_id, group.why) for group in answer.unchanged]
        return Changed(
            action=action,
            target=self.target,
            matched=len(ids),
            changed=len(changed),
            ids=changed,
            requested=requested,
            unchanged=group_unchanged(unchanged),
            dry_run=dry_run,
            units=units,
        )

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
        count = change(cluster.batch_id, keys, actor=self._actions.actor)
        secrets = batch_secrets(self._store.batches.get(cluster.batch_id))
        ids: list[int | str] = [mask_text(key, secrets) for key in keys]
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
