"""Runs of batches: the request for a run, its holders, and the operation that begins it."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec import Struct

from holdfast.domain.batches.batch import DRIVER, Batch, BatchId, BatchState, sharding_of
from holdfast.domain.jobs.job import ControlRequest, JobId, Lease, OnLost, Token, WorkerId
from holdfast.domain.jobs.new_job import NewJob
from holdfast.errors import BatchHeld, BatchPaused, Drift, LeaseLost
from holdfast.store.batches.in_flight import hold
from holdfast.store.engine.operation import Operation, query
from holdfast.store.jobs.enqueue import enqueue_operation
from holdfast.store.jobs.settlement import seize


class RunRequest(Struct, frozen=True, kw_only=True):
    """The request for a run. *dead* are jobs whose holders the caller knows to be dead, whatever their leases say."""

    identity: str
    kind: str
    arguments: str
    source: str
    name: str | None = None
    actor: str
    owner: str
    version: str | None = None
    inputs: str | None = None
    code: str | None = None
    total: int | None = None
    fresh: bool = False
    join: bool = False
    accept_drift: bool = False
    dead: tuple[JobId, ...] = ()


class Holder(Struct, frozen=True):
    """A process that works on a batch. *owner* is JSON: host, pid, command."""

    job_id: JobId
    token: Token
    owner: str
    claimed_at: datetime
    remaining: timedelta


class BatchRun(Struct, frozen=True):
    """A run: its batch, the lease of its own job, and whether the code changed since the last run."""

    batch: Batch
    lease: Lease
    created: bool
    edited: bool


def check_lease(lease: Lease) -> Operation[None]:
    """Lock the job of a run.

    Raises:
        LeaseLost: The job was taken over.
    """
    rows = yield query("lock_lease", id=lease.job_id, token=lease.token)
    if not rows:
        raise LeaseLost.of(lease.job_id, lease.token)


def holders_of(batch_id: BatchId) -> Operation[list[Holder]]:
    return (yield query("list_batch_holders", Holder, batch_id=batch_id))


def open_batch(
    request: RunRequest, drawn: list[JobId] | None, worker: WorkerId, lease_duration: timedelta
) -> Operation[BatchRun | None]:
    """Begin a run; None if another process created the batch at the same time: try again."""
    rows: list[Batch] = yield query("lock_latest_batch", Batch, identity=request.identity)
    latest = rows[0] if rows else None
    on_workers = latest is not None and latest.state is BatchState.RUNNING and sharding_of(latest) is not None
    if latest is not None and on_workers and not request.join:
        raise BatchHeld(f"batch {latest.id} is on the workers", batch_id=latest.id, owner="{}")
    if latest is None or request.fresh or latest.state in (BatchState.DONE, BatchState.CANCELLED):
        batch = yield from _new_batch(request, latest)
        if batch is None:
            return None
    else:
        batch = latest
        if batch.state is BatchState.PAUSED or batch.requested == ControlRequest.PAUSE:
            raise BatchPaused(f"batch {batch.id} is paused", batch_id=batch.id)
        _check_drift(request, batch)
    alone = yield from _is_alone(request, batch)
    if alone and not on_workers:
        values = {name: getattr(request, name) for name in ("total", "version", "inputs", "code")}
        yield query("start_batch_run", id=batch.id, **values)
    begun: list[Batch] = yield query("get_batch", Batch, id=batch.id)
    lease = yield from _lease(request, begun[0], drawn, worker, lease_duration)
    yield from hold(begun[0], lease, [], owner=request.owner)
    edited = batch.run_number > 0 and request.code is not None and batch.code not in (None, request.code)
    return BatchRun(begun[0], lease, batch is not latest, edited)


def _new_batch(request: RunRequest, latest: Batch | None) -> Operation[Batch | None]:
    values = {name: getattr(request, name) for name in ("identity", "kind", "arguments", "source", "name")}
    generation = 1 if latest is None else latest.generation + 1
    rows = yield query("insert_batch", generation=generation, actor=request.actor, **values)
    if not rows:
        return None
    created: list[Batch] = yield query("lock_batch", Batch, id=rows[0][0])
    return created[0]


def _check_drift(request: RunRequest, batch: Batch) -> None:
    if batch.run_number == 0 or request.accept_drift:
        return
    for name in ("version", "inputs"):
        before, now = getattr(batch, name), getattr(request, name)
        if before != now:
            raise Drift(f"{name} of {batch.kind!r} changed under batch {batch.id}: {before} then, {now} now")


def _is_alone(request: RunRequest, batch: Batch) -> Operation[bool]:
    """Whether no other holder works on the batch. The units of dead holders are returned to the ledger."""
    holders = yield from holders_of(batch.id)
    dead = [holder for holder in holders if holder.job_id in request.dead or holder.remaining <= timedelta(0)]
    if dead:
        yield from seize([(holder.job_id, holder.token) for holder in dead])
    alive = [holder for holder in holders if holder not in dead]
    if alive and not request.join:
        raise BatchHeld(f"batch {batch.id} is held by another run", batch_id=batch.id, owner=alive[0].owner)
    return not alive


def _lease(
    request: RunRequest, batch: Batch, drawn: list[JobId] | None, worker: WorkerId, lease_duration: timedelta
) -> Operation[Lease]:
    job = NewJob(
        kind=DRIVER,
        payload=request.owner,
        label=f"batch-{batch.id}",
        max_attempts=None,
        max_crashes=None,
        on_lost=OnLost.DEAD,
    )
    (created,) = yield from enqueue_operation([job], drawn)
    ((token,),) = yield query("claim_driver", id=created.id, worker=worker, lease_duration=lease_duration)
    return Lease(
        job_id=created.id,
        token=Token(token),
        kind=DRIVER,
        queue=job.queue,
        payload=job.payload,
        attempt=1,
        started=True,
        poison_suspect=False,
        priority=0,
        due_at=batch.created_at,
        checkpoint=None,
    )
