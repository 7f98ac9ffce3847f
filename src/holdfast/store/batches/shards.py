"""Shards: jobs that work on a batch on the workers, and take units of its ledger until none is left."""

from __future__ import annotations

import msgspec

from holdfast.domain.batches.batch import AbortedBy, Batch, BatchId, BatchState, Sharding, shard_jobs, sharding_of
from holdfast.domain.batches.unit import UnitRow
from holdfast.domain.jobs.job import Lease
from holdfast.store.batches.in_flight import hold
from holdfast.store.batches.ledger import write_ends
from holdfast.store.batches.runs import BatchRun, check_lease, holders_of
from holdfast.store.batches.state import conclude, locked, skip_vanished
from holdfast.store.engine.operation import Operation, query
from holdfast.store.jobs.enqueue import enqueue_operation


def launch(run: BatchRun, sharding: Sharding) -> Operation[Batch]:
    """Hand a batch whose units are planned to the workers; units that have vanished are skipped.

    Raises:
        LeaseLost: The run's job was taken over; nothing was written.
    """
    yield from write_ends(run, [])
    yield from skip_vanished(run)
    yield query("delete_in_flight", ids=[run.lease.job_id])
    planned = yield query("recount_units", batch_id=run.batch.id)
    total = sum(n for _, n in planned)
    yield query("start_batch_shards", id=run.batch.id, options=msgspec.json.encode(sharding).decode(), total=total)
    batch = yield from locked(run.batch.id)
    yield from conclude(batch)
    yield from start_shards(batch)
    return (yield from locked(run.batch.id))


def start_shards(batch: Batch) -> Operation[bool]:
    """Start the missing shards of a batch that has pending units; whether one was missing."""
    sharding = sharding_of(batch)
    if sharding is None:
        return False
    pending: list[UnitRow] = yield query("read_pending_units", UnitRow, batch_id=batch.id, limit=1)
    if not pending:
        return False
    shards = yield from enqueue_operation(shard_jobs(batch, sharding), None)
    return any(shard.created for shard in shards)


def join(batch_id: BatchId, lease: Lease, *, owner: str) -> Operation[BatchRun | None]:
    """Begin to work as a shard, under the lease of its job; None: the batch has no more work.

    Raises:
        LeaseLost: The shard's job was taken over.
    """
    yield from check_lease(lease)
    rows: list[Batch] = yield query("lock_batch", Batch, id=batch_id)
    if not rows or not is_on_workers(rows[0]):
        return None
    yield from hold(rows[0], lease, [], owner=owner)
    return BatchRun(rows[0], lease, created=False, edited=False)


def is_on_workers(batch: Batch) -> bool:
    """Whether the workers run the batch, or will."""
    is_running = batch.state is BatchState.RUNNING and not batch.requested and not batch.aborted_by
    return is_running and sharding_of(batch) is not None


def leave(run: BatchRun, aborted_by: AbortedBy | None) -> Operation[Batch]:
    """Finish the work of a shard; *aborted_by* stops the other shards too. The last shard finishes the batch.

    Raises:
        LeaseLost: The shard's job was taken over; nothing was written.
    """
    yield from write_ends(run, [])
    yield query("delete_in_flight", ids=[run.lease.job_id])
    if aborted_by is not None and aborted_by not in (AbortedBy.PAUSE, AbortedBy.CANCEL):
        yield query("abort_batch", id=run.batch.id, aborted_by=aborted_by)
    yield from conclude((yield from locked(run.batch.id)))
    return (yield from locked(run.batch.id))


def abort(batch_id: BatchId, why: AbortedBy) -> Operation[None]:
    """Stop a batch from outside: running units may finish, and the batch can be resumed."""
    yield from locked(batch_id)
    yield query("abort_batch", id=batch_id, aborted_by=why)
    yield from conclude((yield from locked(batch_id)))


def revive(*, limit: int = 100) -> Operation[int]:
    """Start new shards for batches on the workers that have lost all of theirs; returns the number of batches."""
    rows = yield query("list_batches_without_shards", limit=limit)
    revived = 0
    for (batch_id,) in rows:
        batch = yield from locked(BatchId(batch_id))
        holders = yield from holders_of(batch.id)
        if batch.state is BatchState.RUNNING and not holders:
            yield from conclude(batch)
            revived += yield from start_shards((yield from locked(batch.id)))
    return revived


def reopen(batch: Batch) -> Operation[None]:
    """Reopen a stopped batch: workers continue it at once, a foreground run when it is started again."""
    if sharding_of(batch) is None:
        yield query("set_batch_state", id=batch.id, state=BatchState.STOPPED if batch.run_number else BatchState.READY)
    else:
        yield query("reopen_batch", id=batch.id)
        yield from conclude((yield from locked(batch.id)))
        yield from start_shards(batch)
