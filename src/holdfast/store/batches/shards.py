"""Batches on workers: their shards are jobs, which take units of the ledger until none is left."""

from __future__ import annotations

import msgspec

from holdfast.domain.batches.batch import AbortedBy, Batch, BatchId, BatchState, UnitRow
from holdfast.domain.batches.sharding import Sharding, shard_jobs, sharding_of
from holdfast.domain.jobs.job import Lease
from holdfast.errors import LeaseLost
from holdfast.store.batches.finishing import conclude, locked
from holdfast.store.batches.in_flight import count, hold
from holdfast.store.batches.ledger import write_ends
from holdfast.store.batches.opening import BatchRun, Holder
from holdfast.store.engine.operation import Operation, query
from holdfast.store.jobs.enqueue import enqueue_flow


def launch(run: BatchRun, sharding: Sharding) -> Operation[Batch]:
    """Hand a batch whose units are planned over to the workers."""
    yield from write_ends(run, [])
    gone = yield query("skip_missing_units", batch_id=run.batch.id, run_number=run.batch.run_number)
    yield from count(run.batch.id, run.lease.job_id, {"skipped": len(gone)})
    yield query("delete_in_flight", ids=[run.lease.job_id])
    planned = yield query("recount_units", batch_id=run.batch.id)
    total = sum(n for _, n in planned)
    yield query("start_batch_shards", id=run.batch.id, options=msgspec.json.encode(sharding).decode(), total=total)
    batch = yield from locked(run.batch.id)
    yield from conclude(batch)
    yield from start_shards(batch)
    return (yield from locked(run.batch.id))


def start_shards(batch: Batch) -> Operation[bool]:
    """See to it that a batch of the workers that has pending units has its shards; whether one was missing."""
    sharding = sharding_of(batch)
    if sharding is None:
        return False
    pending: list[UnitRow] = yield query("read_pending_units", UnitRow, batch_id=batch.id, limit=1)
    if not pending:
        return False
    made = yield from enqueue_flow(shard_jobs(batch, sharding), None)
    return any(each.created for each in made)


def join(batch_id: BatchId, lease: Lease, owner: str) -> Operation[BatchRun | None]:
    """A shard begins to work; there may be nothing to do any more."""
    rows = yield query("lock_lease", id=lease.job_id, token=lease.token)
    if not rows:
        raise LeaseLost.of(lease.job_id, lease.token)
    found: list[Batch] = yield query("lock_batch", Batch, id=batch_id)
    if not found or not is_on_workers(found[0]):
        return None
    yield from hold(found[0], lease, [], owner=owner)
    return BatchRun(found[0], lease, created=False, edited=False)


def is_on_workers(batch: Batch) -> bool:
    """Whether the workers run it, or will."""
    is_running = batch.state is BatchState.RUNNING and not batch.requested and not batch.aborted_by
    return is_running and sharding_of(batch) is not None


def leave(run: BatchRun, aborted_by: AbortedBy | None) -> Operation[Batch]:
    """A shard ends; *aborted_by* stops the others too. The last one says where the batch stands."""
    yield from write_ends(run, [])
    yield query("delete_in_flight", ids=[run.lease.job_id])
    if aborted_by is not None and aborted_by not in (AbortedBy.PAUSE, AbortedBy.CANCEL):
        yield query("abort_batch", id=run.batch.id, aborted_by=aborted_by)
    yield from conclude((yield from locked(run.batch.id)))
    return (yield from locked(run.batch.id))


def abort(batch_id: BatchId, why: AbortedBy) -> Operation[None]:
    """Stop a batch from outside: what runs may end, and it can be resumed."""
    yield from locked(batch_id)
    yield query("abort_batch", id=batch_id, aborted_by=why)
    yield from conclude((yield from locked(batch_id)))


def revive(limit: int) -> Operation[int]:
    """Shards for batches of the workers that have lost all of theirs."""
    rows = yield query("list_batches_without_shards", limit=limit)
    revived = 0
    for (batch_id,) in rows:
        batch = yield from locked(BatchId(batch_id))
        holders: list[Holder] = yield query("list_batch_holders", Holder, batch_id=batch.id)
        if batch.state is BatchState.RUNNING and not holders:
            yield from conclude(batch)
            revived += yield from start_shards((yield from locked(batch.id)))
    return revived


def reopen(batch: Batch) -> Operation[None]:
    """Let a batch that had stopped go on: the workers do, a foreground run when it is started again."""
    if sharding_of(batch) is None:
        yield query("set_batch_state", id=batch.id, state=BatchState.STOPPED if batch.run_number else BatchState.READY)
    else:
        yield query("reopen_batch", id=batch.id)
        yield from conclude((yield from locked(batch.id)))
        yield from start_shards(batch)
