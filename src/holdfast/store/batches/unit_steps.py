"""Changes of many units by people, in steps: each is a transaction of its own, and a later call continues."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from holdfast.domain.batches.batch import AbortedBy, Batch, BatchId, BatchState
from holdfast.domain.batches.history import BatchEventName
from holdfast.domain.batches.unit import UnitKey, UnitState
from holdfast.domain.jobs.job import ControlRequest
from holdfast.errors import BatchHeld
from holdfast.store.batches import runs
from holdfast.store.batches.events import finish, record_change
from holdfast.store.batches.state import (
    PEOPLE,
    START,
    BatchRun,
    UnitCursor,
    UnitStep,
    after,
    cancel_units,
    count,
    counted,
    holders_of,
    locked,
    units_in_hand,
)
from holdfast.store.engine.operation import Operation, query


def cancel_step(batch_id: BatchId, actor: str | None, cursor: UnitCursor, limit: int) -> Operation[UnitStep]:
    """Cancel some units that are not in flight. The last step cancels the batch, unless a holder will do so.

    From the first step on the cancel is requested, so no run and no shard begins a unit.
    """
    batch = yield from locked(batch_id)
    if batch.state.finished and batch.state is not BatchState.CANCELLED:
        return UnitStep(0, None)
    step = yield from cancel_units(batch_id, cursor, limit)
    holders = yield from holders_of(batch_id)
    if holders or step.cursor is not None:
        if (yield query("request_batch_control", id=batch_id, requested=ControlRequest.CANCEL)):
            yield from record_change(batch, BatchEventName.CANCEL_REQUESTED, actor=actor)
    else:
        now = yield from counted(batch_id)
        yield from finish(batch, BatchState.CANCELLED, AbortedBy.CANCEL, now.over, actor=actor)
    return step


def continue_cancel(limit: int) -> Operation[int]:
    """Do a step for a batch whose cancel was left; returns the number of units, at least 1 if there was one."""
    rows = yield query("lock_cancelled_batch")
    if not rows:
        return 0
    step = yield from cancel_step(BatchId(rows[0][0]), None, START, limit)
    return max(1, step.changed)


def retry_step(
    batch_id: BatchId, state: UnitState, actor: str | None, cursor: UnitCursor, limit: int
) -> Operation[UnitStep]:
    """Make some units of one state pending again, with all their attempts. A finished batch reopens."""
    batch = yield from locked(batch_id)
    if batch.state is BatchState.CANCELLED or batch.requested == ControlRequest.CANCEL:
        return UnitStep(0, None)
    held = set((yield from units_in_hand(batch_id)))
    rows = yield query("list_unit_keys", batch_id=batch_id, state=state, after=cursor.key, limit=limit)
    keys = [row[0] for row in rows if row[0] not in held]
    reopened = yield query("reopen_units", batch_id=batch_id, state=state, keys=keys)
    yield from count(batch_id, PEOPLE, {str(state): -len(reopened)})
    if reopened:
        yield from record_change(batch, BatchEventName.RETRIED, actor=actor, units=len(reopened))
        yield from _continue_batch(batch)
    following = UnitCursor(key=rows[-1][0]) if len(rows) == limit else None
    return UnitStep(len(reopened), following)


def _continue_batch(batch: Batch) -> Operation[None]:
    """Reopen a batch that is finished; on the workers, start a shard for the units that are pending now."""
    if batch.state.finished:
        yield from runs.reopen(batch)
    elif runs.is_on_workers(batch):
        yield from runs.continue_shards(batch)


def change_units(
    batch_id: BatchId, keys: list[UnitKey], state: UnitState, label: str | None, actor: str | None
) -> Operation[int]:
    """Retry or skip chosen units that failed or are in doubt; returns their number."""
    batch = yield from locked(batch_id)
    if batch.state is BatchState.CANCELLED or batch.requested == ControlRequest.CANCEL:
        return 0
    values = {"batch_id": batch_id, "keys": keys, "state": state, "label": label}
    deltas = {}
    for before in (UnitState.FAILED, UnitState.IN_DOUBT):
        rows = yield query("change_failed_units", before=before, **values)
        deltas[str(before)] = -len(rows)
    changed = -sum(deltas.values())
    if state is UnitState.SKIPPED:
        deltas["skipped"] = changed
        deltas[f"label:{label}"] = changed
    yield from count(batch_id, PEOPLE, deltas)
    if changed:
        name = BatchEventName.RETRIED if state is UnitState.PENDING else BatchEventName.SKIPPED
        yield from record_change(batch, name, actor=actor, units=changed)
    if changed and state is UnitState.PENDING:
        yield from _continue_batch(batch)
    elif changed and batch.state.finished:
        yield from runs.judge_again(batch, actor=actor)
    return changed


def skip_missing_step(run: BatchRun, cursor: UnitCursor, limit: int) -> Operation[UnitStep]:
    """Skip some pending units of earlier runs that the input of this run no longer has.

    Raises:
        LeaseLost: The run's job was taken over; nothing was written.
    """
    batch_id = run.batch.id
    if not (yield from _is_only_holder(run)):
        return UnitStep(0, None)
    pending = yield query("list_pending_keys", batch_id=batch_id, limit=limit, **after(cursor.place))
    values = {"batch_id": batch_id, "run_number": run.batch.run_number, "keys": [key for _, _, key in pending]}
    rows = yield query("skip_outdated_units", **values)
    yield from count(batch_id, run.lease.job_id, {"skipped": len(rows)})
    return UnitStep(len(rows), UnitCursor(place=pending[-1]) if len(pending) == limit else None)


def skip_gone_step(run: BatchRun, keys: list[UnitKey]) -> Operation[int]:
    """Skip some failed units that the input of this run no longer has; returns their number.

    Raises:
        LeaseLost: The run's job was taken over; nothing was written.
    """
    if not (yield from _is_only_holder(run)):
        return 0
    values = {"batch_id": run.batch.id, "keys": keys, "state": UnitState.SKIPPED, "label": "gone"}
    rows = yield query("change_failed_units", before=UnitState.FAILED, **values)
    yield from count(run.batch.id, run.lease.job_id, {"failed": -len(rows), "skipped": len(rows)})
    return len(rows)


def _is_only_holder(run: BatchRun) -> Operation[bool]:
    yield from runs.check_lease(run.lease)
    yield from locked(run.batch.id)
    holders = yield from holders_of(run.batch.id)
    return all(holder.job_id == run.lease.job_id for holder in holders)


def delete(batch_id: BatchId) -> Operation[None]:
    """Delete a batch. Its units, counters and results are out of reach from now on; :func:`delete_step` deletes them.

    Raises:
        BatchHeld: A holder works on it.
    """
    batch = yield from locked(batch_id)
    holders = yield from holders_of(batch_id)
    if holders or runs.is_on_workers(batch):
        owner = msgspec.json.decode(holders[0].owner) if holders else {}
        place = "is held by a run" if holders else "is on the workers"
        hint = "Cancel it first, and wait until it has finished."
        raise BatchHeld(f"batch {batch_id} {place}", hint=hint, batch_id=batch_id, owner=owner)
    yield from _delete_rows([batch_id])


def delete_step(batch_id: BatchId | None, limit: int) -> Operation[int]:
    """Delete some units and results of a deleted batch, or of any; returns their number, 0 when nothing is left."""
    rows = yield query("lock_deleted_batch", id=batch_id)
    if not rows:
        return 0
    values = {"batch_id": rows[0][0], "limit": limit}
    deleted = len((yield query("delete_units", **values)))
    if deleted < limit:
        deleted += len((yield query("delete_batch_results", **values)))
    if deleted < limit:
        yield query("finish_batch_deletion", id=rows[0][0])
    return max(1, deleted)


def prune_units(_: timedelta, limit: int) -> Operation[int]:
    """Delete some units and results of deleted batches; returns their number."""
    total = 0
    while total < limit and (deleted := (yield from delete_step(None, limit - total))):
        total += deleted
    return total


def prune_batches(age: timedelta, limit: int) -> Operation[int]:
    """Delete finished batches past their age; returns their number."""
    rows = yield query("lock_expired_batches", age=age, limit=limit)
    if rows:
        yield from _delete_rows([BatchId(row[0]) for row in rows])
    return len(rows)


def _delete_rows(ids: list[BatchId]) -> Operation[None]:
    yield query("insert_deleted_batches", ids=ids)
    yield query("delete_batches", ids=ids)
