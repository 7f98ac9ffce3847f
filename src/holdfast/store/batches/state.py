"""The state of a batch: its lock, its counters, and the rules that finish it."""

from __future__ import annotations

from msgspec import Struct

from holdfast.domain.batches.batch import AbortedBy, Batch, BatchId, BatchState, state_after
from holdfast.domain.batches.unit import Counters, UnitKey, sum_counters, withdrawal_deltas
from holdfast.domain.jobs.job import ControlRequest, JobId
from holdfast.errors import NoSuchBatch
from holdfast.store.batches.in_flight import count, decode
from holdfast.store.batches.runs import BatchRun, holders_of
from holdfast.store.engine.operation import Operation, query

#: Changes by people are counted under this job id, which no job has.
PEOPLE = JobId(0)


class NamedCount(Struct, frozen=True):
    """A counter of units."""

    name: str
    count: int


def locked(batch_id: BatchId) -> Operation[Batch]:
    """Lock a batch and read it.

    Raises:
        NoSuchBatch: It does not exist.
    """
    rows: list[Batch] = yield query("lock_batch", Batch, id=batch_id)
    if not rows:
        raise NoSuchBatch(f"there is no batch {batch_id}", batch_id=batch_id)
    return rows[0]


def counted(batch_id: BatchId) -> Operation[Counters]:
    rows: list[NamedCount] = yield query("read_unit_counts", NamedCount, batch_id=batch_id)
    return sum_counters({row.name: row.count for row in rows})


def units_in_hand(batch_id: BatchId) -> Operation[list[UnitKey]]:
    """The units that the holders of a batch have in hand. The batch is locked."""
    rows = yield query("list_in_flight", batch_id=batch_id, job_id=PEOPLE)
    return [key for row in rows for key, _ in decode(row[0])]


def cancel_units(batch_id: BatchId) -> Operation[int]:
    """Cancel every unit that no holder has in hand, also units whose results wait in an inbox; returns their number."""
    held = yield from units_in_hand(batch_id)
    units = yield query("cancel_units", batch_id=batch_id, in_flight=held)
    results = yield query("cancel_inbox_results", batch_id=batch_id)
    yield from count(batch_id, PEOPLE, {**withdrawal_deltas(results), "cancelled": len(units) + len(results)})
    return len(units) + len(results)


def conclude(batch: Batch) -> Operation[None]:
    """Finish a running batch without holders, if no unit is left or if a stop was requested."""
    holders = yield from holders_of(batch.id)
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


def conclude_run(run: BatchRun, aborted_by: AbortedBy | None, total: int, *, complete: bool) -> Operation[Counters]:
    """Finish the batch of a foreground run that has left it, unless another holder works on it.

    *total* is the number of known units; *complete*: the run has met every key of its input.
    """
    batch = yield from locked(run.batch.id)
    yield query("delete_in_flight", ids=[run.lease.job_id])
    holders = yield from holders_of(batch.id)
    if batch.requested == ControlRequest.CANCEL:  # the run may not have received the request
        aborted_by = AbortedBy.CANCEL
        yield from cancel_units(batch.id)
    if complete and aborted_by is None and not holders:
        yield from skip_vanished(run)
    now = yield from counted(batch.id)
    if not holders:
        met = now.over + now.in_inbox
        is_final = aborted_by is AbortedBy.CANCEL or (complete and aborted_by is None)
        known = met if is_final else max(total, met)
        state = state_after(now, known, aborted_by)
        if state is BatchState.RUNNING:
            yield query("set_batch_total", id=batch.id, total=known)
        else:
            yield query("finish_batch", id=batch.id, state=state, aborted_by=aborted_by, total=known)
    return now


def skip_vanished(run: BatchRun) -> Operation[None]:
    """Skip units of earlier runs that the input no longer has."""
    rows = yield query("skip_missing_units", batch_id=run.batch.id, run_number=run.batch.run_number)
    yield from count(run.batch.id, run.lease.job_id, {"skipped": len(rows)})
