"""Where a batch stands when nobody works on it any more."""

from __future__ import annotations

from msgspec import Struct

from holdfast.domain.batches.batch import (
    AbortedBy,
    Batch,
    BatchId,
    BatchState,
    Counters,
    UnitKey,
    counters,
    state_after,
    undone,
)
from holdfast.domain.jobs.job import ControlRequest, JobId
from holdfast.errors import NoSuchBatch
from holdfast.store.batches.in_flight import count, decode
from holdfast.store.batches.opening import Holder
from holdfast.store.engine.operation import Operation, query

#: Changes that people make are counted under this job, which never exists.
PEOPLE = JobId(0)


class Named(Struct, frozen=True):
    """A counter."""

    name: str
    count: int


def locked(batch_id: BatchId) -> Operation[Batch]:
    rows: list[Batch] = yield query("lock_batch", Batch, id=batch_id)
    if not rows:
        raise NoSuchBatch(f"there is no batch {batch_id}", batch_id=batch_id)
    return rows[0]


def counted(batch_id: BatchId) -> Operation[Counters]:
    rows: list[Named] = yield query("read_unit_counts", Named, batch_id=batch_id)
    return counters({row.name: row.count for row in rows})


def units_in_hand(batch_id: BatchId) -> Operation[list[UnitKey]]:
    """What the holders of a batch have in hand, which is locked."""
    rows = yield query("list_in_flight", batch_id=batch_id, job_id=PEOPLE)
    return [key for row in rows for key, _ in decode(row[0])]


def cancel_units(batch_id: BatchId) -> Operation[int]:
    """Cancel every unit that nobody has in hand, also those whose results wait in an inbox."""
    held = yield from units_in_hand(batch_id)
    gone = yield query("cancel_units", batch_id=batch_id, in_flight=held)
    handed = yield query("cancel_inbox_results", batch_id=batch_id)
    yield from count(batch_id, PEOPLE, {**undone(handed), "cancelled": len(gone) + len(handed)})
    return len(gone) + len(handed)


def conclude(batch: Batch) -> Operation[None]:
    """If nobody works on a running batch: end it when nothing is left, or when it was told to stop."""
    holders: list[Holder] = yield query("list_batch_holders", Holder, batch_id=batch.id)
    if holders or batch.state is not BatchState.RUNNING:
        return
    why = batch.aborted_by if batch.requested is None else AbortedBy(batch.requested)
    if batch.requested == ControlRequest.CANCEL:
        yield from cancel_units(batch.id)
    now = yield from counted(batch.id)
    total = max(batch.total or 0, now.over)
    state = state_after(now, total, why)
    if why is not None or state.finished:
        yield query("finish_batch", id=batch.id, state=state, aborted_by=why, total=total)
