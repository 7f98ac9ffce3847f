"""What people do to batches: pause, resume, cancel, retry, remove."""

from __future__ import annotations

from holdfast.domain.batches.batch import AbortedBy, BatchId, BatchState, UnitState
from holdfast.domain.batches.sharding import sharding_of
from holdfast.domain.jobs.job import ControlRequest
from holdfast.errors import BatchHeld
from holdfast.store.batches.finishing import PEOPLE, cancel_units, counted, locked, units_in_hand
from holdfast.store.batches.in_flight import count
from holdfast.store.batches.opening import Holder
from holdfast.store.batches.shards import is_on_workers, reopen
from holdfast.store.engine.operation import Operation, query


def pause(batch_id: BatchId) -> Operation[bool]:
    batch = yield from locked(batch_id)
    if batch.state.finished or batch.state is BatchState.PAUSED or batch.requested is not None:
        return False
    holders: list[Holder] = yield query("list_batch_holders", Holder, batch_id=batch_id)
    if holders:
        yield query("request_batch_control", id=batch_id, requested=ControlRequest.PAUSE)
    else:
        yield query("finish_batch", id=batch_id, state=BatchState.PAUSED, aborted_by=AbortedBy.PAUSE, total=batch.total)
    return True


def resume(batch_id: BatchId) -> Operation[bool]:
    batch = yield from locked(batch_id)
    if batch.requested == ControlRequest.PAUSE and batch.state is BatchState.RUNNING:
        yield query("reopen_batch", id=batch_id)
        return True
    on_workers = sharding_of(batch) is not None and batch.state is BatchState.STOPPED
    if batch.state is not BatchState.PAUSED and not on_workers:
        return False
    yield from reopen(batch)
    return True


def cancel(batch_id: BatchId) -> Operation[int]:
    batch = yield from locked(batch_id)
    if batch.state.finished and batch.state is not BatchState.CANCELLED:
        return 0
    cancelled = yield from cancel_units(batch_id)
    holders: list[Holder] = yield query("list_batch_holders", Holder, batch_id=batch_id)
    if holders:
        yield query("request_batch_control", id=batch_id, requested=ControlRequest.CANCEL)
    else:
        now = yield from counted(batch_id)
        facts = {"state": BatchState.CANCELLED, "aborted_by": AbortedBy.CANCEL, "total": now.over}
        yield query("finish_batch", id=batch_id, **facts)
    return cancelled


def retry_failed(batch_id: BatchId) -> Operation[int]:
    batch = yield from locked(batch_id)
    if batch.state is BatchState.CANCELLED:
        return 0
    reopened = {}
    held = yield from units_in_hand(batch_id)
    for state in (UnitState.FAILED, UnitState.IN_DOUBT):
        rows = yield query("reopen_units", batch_id=batch_id, state=state, in_flight=held)
        reopened[str(state)] = -len(rows)
    yield from count(batch_id, PEOPLE, reopened)
    found = -sum(reopened.values())
    if found and batch.state.finished:
        yield from reopen(batch)
    return found


def remove(batch_id: BatchId) -> Operation[None]:
    batch = yield from locked(batch_id)
    holders: list[Holder] = yield query("list_batch_holders", Holder, batch_id=batch_id)
    if holders or is_on_workers(batch):
        who = holders[0].owner if holders else "{}"
        what = "is held by a run" if holders else "is on the workers"
        hint = "Cancel it first, and wait until it has ended."
        raise BatchHeld(f"batch {batch_id} {what}", hint=hint, batch_id=batch_id, owner=who)
    yield query("delete_batch", id=batch_id)
