"""Actions on batches and their units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from msgspec import Struct, structs

from holdfast.admin.actions.actions import Actions, BatchChanged
from holdfast.admin.views.batches import batch_secrets
from holdfast.domain.access.masking import mask_cut, mask_text
from holdfast.domain.access.roles import Role
from holdfast.domain.batches.batch import DRIVER, BatchId, BatchState, batch_label, sharding_of
from holdfast.domain.batches.batch_filter import BatchFilter
from holdfast.domain.batches.unit import UnitKey
from holdfast.domain.jobs.error_clusters import cluster_key
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import BatchHeld, Conflict, HoldfastError, InvalidInput, NoSuchBatch, NotFound
from holdfast.store import Store
from holdfast.store.access.audit import Changes, changes_of
from holdfast.store.batches.control import OnStep, ignore_step
from holdfast.store.batches.state import UnitStep
from holdfast.worker.batches.conflicts import command_of

#: The actions on batches, and the role that each of them requires.
BATCH_ACTIONS: Mapping[str, Role] = {
    **dict.fromkeys(("pause", "resume", "cancel", "retry-failed"), Role.OPERATOR),
    "rm": Role.ADMIN,
}
#: Number of failed units that are searched for a cluster.
MAX_SCANNED_UNITS = 100_000


#: The states that a filter without states takes; batches in other states cannot change.
DEFAULT_STATES = {
    "cancel": tuple(state for state in BatchState if not state.finished),
    "rm": tuple(state for state in BatchState if state.finished),
}
#: Batches that one action takes.
MAX_BATCHES = 10_000


class BatchesChanged(Struct, frozen=True):
    """What an action did to many batches, or in a *dry_run* would do: which changed, and which were *left*.

    *units* counts the units that it changed.
    """

    action: str
    matched: int
    batches: list[BatchId]
    left: list[BatchId]
    units: int = 0
    dry_run: bool = False


class BatchActions:
    """Changes batches and records each change."""

    def __init__(self, actions: Actions) -> None:
        self._actions = actions
        self._store = actions.store

    def perform(self, action: str, batch_id: BatchId, *, on_step: OnStep = ignore_step) -> BatchChanged:
        """Perform one of :data:`BATCH_ACTIONS`; *on_step* is called with the number of units so far."""
        was_open = action == "cancel" and not self._store.batches.get(batch_id).state.finished
        batches = self._audited(action, batch_id, was_open=was_open).batches
        units: int | None = None
        note: str | None = None
        match action:
            case "pause":
                changed = batches.pause(batch_id, actor=self._actions.actor)
            case "resume":
                changed = batches.resume(batch_id, actor=self._actions.actor)
                note = self._how_to_continue(batch_id)
            case "cancel":
                units = batches.cancel(batch_id, actor=self._actions.actor, on_step=on_step)
                changed = was_open or units > 0
            case "retry-failed":
                units = batches.retry_failed(batch_id, actor=self._actions.actor, on_step=on_step)
                changed = units > 0
            case "rm":
                batches.delete(batch_id, on_step=on_step)
                changed = True
            case _:
                hint = f"Verbs: {', '.join(BATCH_ACTIONS)}."
                raise InvalidInput(f"a batch cannot be told to {action[:40]!r}", hint=hint)
        return BatchChanged(batch_id, action, changed, units, note=note)

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

    def perform_on_many(self, action: str, ids: Sequence[BatchId], *, on_step: OnStep = ignore_step) -> BatchesChanged:
        """``cancel`` or ``rm`` batches one after the other. A batch that somebody runs is not deleted.

        Raises:
            Conflict: None of them could change.
        """
        changed: list[BatchId] = []
        left: dict[BatchId, HoldfastError | None] = {}
        units = 0
        for batch_id in ids:
            try:
                answer = self.perform(action, batch_id, on_step=lambda count: on_step(units + count))  # noqa: B023
            except (BatchHeld, NoSuchBatch) as error:
                left[batch_id] = error
                continue
            units += answer.units or 0
            if answer.changed:
                changed.append(batch_id)
            else:
                left[batch_id] = None
        if not changed:
            raise _first_reason(action, left)
        return BatchesChanged(action, len(ids), changed, [*left], units, self._actions.is_dry_run)

    def _how_to_continue(self, batch_id: BatchId) -> str | None:
        """The command that continues a batch, if no worker does."""
        batch = self._store.batches.get(batch_id)
        if batch.state not in (BatchState.STOPPED, BatchState.READY) or sharding_of(batch) is not None:
            return None
        jobs = self._store.views.page(Selector(labels=(batch_label(batch),), kinds=(DRIVER,)), limit=1).jobs
        command = command_of(jobs[0].payload) if jobs else None
        which = f": {mask_text(command)}" if command else ""
        return f"it runs in the foreground, and goes on when its command is run again{which}"

    def _audited(self, action: str, batch_id: BatchId, *, was_open: bool) -> Store:
        """The store for one action. Several transactions may do it, each a step."""

        def changes(answer: Any) -> Changes:
            if isinstance(answer, UnitStep):
                # A batch that was open changes when it is cancelled, even if it has no unit left.
                return answer.changed or was_open
            return answer is None if action == "rm" else changes_of(answer)

        return self._actions.audited(f"batch {action}", f"batch={batch_id}", changes=changes)

    def perform_on_units(self, action: str, batch_id: BatchId, cluster: str, *, dry_run: bool = False) -> BatchChanged:
        """``retry`` or ``skip`` the failed units of one cluster of errors."""
        if action not in ("retry", "skip"):
            raise InvalidInput(f"units cannot be told to {action[:40]!r}", hint="Verbs: retry, skip.")
        keys = self._keys_of(batch_id, cluster)
        actions = self._actions.dry_run(dry_run)
        ledger = actions.audited(f"batch {action}", f"batch={batch_id} cluster={cluster}").ledger
        change = ledger.retry if action == "retry" else ledger.skip
        count = change(batch_id, keys, actor=self._actions.actor)
        return BatchChanged(batch_id, action, count > 0, count, dry_run)

    def _keys_of(self, batch_id: BatchId, cluster: str) -> list[UnitKey]:
        batch = self._store.batches.get(batch_id)
        secrets = batch_secrets(batch)
        keys = []
        for scanned, unit in enumerate(self._store.ledger.all_errors(batch_id)):
            if cluster_key(batch.kind, mask_cut(unit.error, secrets)) == cluster:
                keys.append(unit.key)
            if scanned >= MAX_SCANNED_UNITS or len(keys) >= MAX_SCANNED_UNITS:
                break
        if not keys:
            raise NotFound(f"no failed unit belongs to the cluster {cluster[:40]!r}", hint="It may run again already.")
        return keys


def _first_reason(action: str, left: Mapping[BatchId, HoldfastError | None]) -> HoldfastError:
    """The error for an action that could change none of its batches."""
    (batch_id, error), *others = left.items()
    if error is not None and not others:
        return error
    subject = f"batch {batch_id}" if not others else f"none of these {len(left)} batches"
    state = "is over" if not others else "could change"
    return Conflict(f"{action}: {subject} {state}", hint="holdfast batch show tells its state.", batch_id=batch_id)
