"""Begin a run of a batch: go on with an open one, or begin a new generation."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec import Struct

from holdfast.domain.batches.batch import DRIVER, Batch, BatchState
from holdfast.domain.batches.sharding import sharding_of
from holdfast.domain.jobs.job import ControlRequest, JobId, Lease, OnLost, Token, WorkerId
from holdfast.domain.jobs.new_job import NewJob
from holdfast.errors import BatchHeld, BatchPaused, Drift
from holdfast.store.batches.in_flight import hold
from holdfast.store.engine.operation import Operation, query
from holdfast.store.jobs.enqueue import enqueue_flow
from holdfast.store.jobs.settlement import seize


class RunRequest(Struct, frozen=True, kw_only=True):
    """What a run asks for. *dead* are holders that the caller knows to be gone, whatever their leases say."""

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
    """Somebody who works on a batch. *owner* is JSON: host, pid, command."""

    job_id: JobId
    token: Token
    owner: str
    claimed_at: datetime
    remaining: timedelta


class BatchRun(Struct, frozen=True):
    """A run: its batch, the lease of its own job, and whether the code was edited under it."""

    batch: Batch
    lease: Lease
    created: bool
    edited: bool


def open_batch(
    opening: RunRequest, drawn: list[JobId] | None, worker: WorkerId, lease_duration: timedelta
) -> Operation[BatchRun | None]:
    found: list[Batch] = yield query("lock_latest_batch", Batch, identity=opening.identity)
    latest = found[0] if found else None
    on_workers = latest is not None and latest.state is BatchState.RUNNING and sharding_of(latest) is not None
    if latest is not None and on_workers and not opening.join:
        raise BatchHeld(f"batch {latest.id} is on the workers", batch_id=latest.id, owner="{}")
    if latest is None or opening.fresh or latest.state in (BatchState.DONE, BatchState.CANCELLED):
        batch = yield from _new_batch(opening, latest)
        if batch is None:
            return None  # somebody else made it just now: look again
    else:
        batch = latest
        if batch.state is BatchState.PAUSED or batch.requested == ControlRequest.PAUSE:
            raise BatchPaused(f"batch {batch.id} is paused", batch_id=batch.id)
        _check_drift(opening, batch)
    alone = yield from _other_holders(opening, batch)
    if alone and not on_workers:
        told = {"total": opening.total, "version": opening.version, "inputs": opening.inputs, "code": opening.code}
        yield query("start_batch_run", id=batch.id, **told)
    begun: list[Batch] = yield query("get_batch", Batch, id=batch.id)
    lease = yield from _lease(opening, begun[0], drawn, worker, lease_duration)
    yield from hold(begun[0], lease, [], owner=opening.owner)
    edited = batch.run_number > 0 and opening.code is not None and batch.code not in (None, opening.code)
    return BatchRun(begun[0], lease, batch is not latest, edited)


def _new_batch(opening: RunRequest, latest: Batch | None) -> Operation[Batch | None]:
    facts = {name: getattr(opening, name) for name in ("identity", "kind", "arguments", "source", "name")}
    generation = 1 if latest is None else latest.generation + 1
    rows = yield query("insert_batch", generation=generation, actor=opening.actor, **facts)
    if not rows:
        return None
    made: list[Batch] = yield query("lock_batch", Batch, id=rows[0][0])
    return made[0]


def _check_drift(opening: RunRequest, batch: Batch) -> None:
    if batch.run_number == 0 or opening.accept_drift:
        return
    for name in ("version", "inputs"):
        before, now = getattr(batch, name), getattr(opening, name)
        if before != now:
            raise Drift(f"{name} of {batch.kind!r} changed under batch {batch.id}: {before} then, {now} now")


def _other_holders(opening: RunRequest, batch: Batch) -> Operation[bool]:
    """Whether nobody else works on the batch; what the dead had in hand comes back."""
    holders: list[Holder] = yield query("list_batch_holders", Holder, batch_id=batch.id)
    gone = [holder for holder in holders if holder.job_id in opening.dead or holder.remaining <= timedelta(0)]
    if gone:
        yield from seize([(holder.job_id, holder.token) for holder in gone])
    alive = [holder for holder in holders if holder not in gone]
    if alive and not opening.join:
        raise BatchHeld(f"batch {batch.id} is held by another run", batch_id=batch.id, owner=alive[0].owner)
    return not alive


def _lease(
    opening: RunRequest, batch: Batch, drawn: list[JobId] | None, worker: WorkerId, lease_duration: timedelta
) -> Operation[Lease]:
    request = NewJob(
        kind=DRIVER,
        payload=opening.owner,
        label=f"batch-{batch.id}",
        max_attempts=None,
        max_crashes=None,
        on_lost=OnLost.DEAD,
    )
    (made,) = yield from enqueue_flow([request], drawn)
    ((token,),) = yield query("claim_driver", id=made.id, worker=worker, lease_duration=lease_duration)
    return Lease(
        job_id=made.id,
        token=Token(token),
        kind=DRIVER,
        queue=request.queue,
        payload=request.payload,
        attempt=1,
        started=True,
        poison_suspect=False,
        priority=0,
        due_at=batch.created_at,
        checkpoint=None,
    )
