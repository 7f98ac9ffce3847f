"""Runs of batches: in the foreground, or as shards on the workers, which take units until none is left."""

from __future__ import annotations

from datetime import timedelta

import msgspec
from msgspec import Struct, structs

from holdfast.domain.batches.batch import (
    DRIVER,
    DRIVER_QUEUE,
    AbortedBy,
    Batch,
    BatchId,
    BatchState,
    Sharding,
    batch_label,
    shard_job,
    shard_key,
    sharding_of,
    state_after,
)
from holdfast.domain.batches.history import BatchEventName
from holdfast.domain.batches.unit import UnitRow
from holdfast.domain.fleet.stop_switch import StopSwitch
from holdfast.domain.jobs.job import ControlRequest, JobId, Lease, OnLost, State, Token, WorkerId
from holdfast.domain.jobs.new_job import NewJob
from holdfast.errors import BatchHeld, BatchPaused, Drift, LeaseLost
from holdfast.store.batches.events import finish, record_change
from holdfast.store.batches.ledger import lock_run
from holdfast.store.batches.state import BatchRun, conclude, counted, hold, holders_of, locked
from holdfast.store.engine.operation import Operation, query, read_now
from holdfast.store.fleet.stop_switch import refuse_if_stopped
from holdfast.store.jobs.enqueue import enqueue_operation
from holdfast.store.jobs.settlement import seize

#: States of a batch that is followed by a new generation.
FOLLOWED = (BatchState.DONE, BatchState.CANCELLED)


class RunRequest(Struct, frozen=True, kw_only=True):
    """The request for a run. *dead* are jobs whose holders are known to be dead, even if their leases are valid."""

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
    #: Where the function lives.
    origin: str | None = None
    total: int | None = None
    fresh: bool = False
    join: bool = False
    accept_drift: bool = False
    dead: tuple[JobId, ...] = ()
    #: The run only plans units for the workers, so it may begin while the store is stopped.
    submits: bool = False


def check_lease(lease: Lease) -> Operation[None]:
    rows = yield query("lock_lease", **lease.fence)
    if not rows:
        raise LeaseLost.of(lease.job_id, lease.token)


def open_batch(request: RunRequest, worker: WorkerId, lease_duration: timedelta) -> Operation[BatchRun | None]:
    """Begin a run; None if another process created the batch at the same time: try again."""
    switches: list[StopSwitch] = yield query("read_stop_switch", StopSwitch)
    if switches and not request.submits:
        refuse_if_stopped(switches[0])
    rows: list[Batch] = yield query("lock_latest_batch", Batch, identity=request.identity)
    latest = rows[0] if rows else None
    if latest is not None:
        refuse_elsewhere(latest, request.origin, accept_drift=request.accept_drift)
    on_workers = latest is not None and latest.state is BatchState.RUNNING and sharding_of(latest) is not None
    if latest is not None and on_workers and not request.join:
        raise BatchHeld(f"batch {latest.id} is on the workers", batch_id=latest.id, owner={})
    if latest is None or request.fresh or latest.state in FOLLOWED:
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
        values = {name: getattr(request, name) for name in ("total", "version", "inputs", "code", "origin")}
        yield query("start_batch_run", id=batch.id, **values)
    begun: list[Batch] = yield query("get_batch", Batch, id=batch.id)
    lease = yield from _lease(request, begun[0], worker, lease_duration)
    yield from hold(begun[0], lease, [], owner=request.owner)
    name = BatchEventName.STARTED if alone else BatchEventName.JOINED
    yield from record_change(begun[0], name, actor=request.actor, owner=msgspec.Raw(request.owner.encode()))
    edited = batch.run_number > 0 and request.code is not None and batch.code not in (None, request.code)
    return BatchRun(begun[0], lease, worker, batch is not latest, edited)


def _new_batch(request: RunRequest, latest: Batch | None) -> Operation[Batch | None]:
    values = {name: getattr(request, name) for name in ("identity", "kind", "arguments", "source", "name")}
    generation = 1 if latest is None else latest.generation + 1
    rows = yield query("insert_batch", generation=generation, actor=request.actor, **values)
    if not rows:
        return None
    created: list[Batch] = yield query("lock_batch", Batch, id=rows[0][0])
    return created[0]


def refuse_elsewhere(latest: Batch, origin: str | None, *, accept_drift: bool) -> None:
    """Refuse to continue an open batch, or to replace it, with a function of the same name from another place.

    Raises:
        Drift: The last run was made by another function, or this one has moved.
    """
    if not accept_drift and latest.state not in FOLLOWED and latest.is_elsewhere(origin):
        hint = "If the function has moved, add --accept-drift. If these are two functions, give one of them a name=."
        text = f"batch {latest.id} was run by {latest.origin}, and this is {origin}"
        raise Drift(text, hint=hint, batch_id=latest.id, before=latest.origin, now=origin)


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
        yield from seize(dead)
    alive = [holder for holder in holders if holder not in dead]
    if alive and not request.join:
        raise BatchHeld(
            f"batch {batch.id} is held by another run", batch_id=batch.id, owner=msgspec.json.decode(alive[0].owner)
        )
    return not alive


def _lease(request: RunRequest, batch: Batch, worker: WorkerId, lease_duration: timedelta) -> Operation[Lease]:
    job = NewJob(
        kind=DRIVER,
        queue=DRIVER_QUEUE,
        payload=request.owner,
        label=batch_label(batch),
        max_attempts=None,
        max_crashes=None,
        on_lost=OnLost.DEAD,
    )
    (created,) = yield from enqueue_operation([job])
    ((token,),) = yield query("claim_driver", id=created.id, worker=worker, lease_duration=lease_duration)
    return Lease(
        job_id=created.id,
        token=Token(token),
        kind=DRIVER,
        queue=job.queue,
        payload=job.payload,
        attempt=1,
        no_prefetch=True,
        losses=0,
        priority=0,
        due_at=batch.created_at,
        checkpoint=None,
        worker=worker,
    )


def launch(run: BatchRun, sharding: Sharding) -> Operation[Batch]:
    """Hand a batch whose units are planned to the workers.

    Raises:
        LeaseLost: The run's job was taken over; nothing was written.
    """
    yield from lock_run(run)
    yield query("delete_in_flight", ids=[run.lease.job_id])
    ((pending,),) = yield query("count_pending_units", batch_id=run.batch.id)
    now = yield from counted(run.batch.id)
    total = pending + now.over + now.in_inbox
    yield query("start_batch_shards", id=run.batch.id, options=msgspec.json.encode(sharding).decode(), total=total)
    batch = yield from locked(run.batch.id)
    yield from record_change(batch, BatchEventName.SUBMITTED, shards=sharding.shards, queue=sharding.queue)
    yield from conclude(batch)
    yield from start_shard(batch)
    return (yield from locked(run.batch.id))


def start_shard(batch: Batch) -> Operation[bool]:
    """Start a missing shard of a batch that has pending units, unless a shard waits; whether one was started.

    Each shard starts the next one when it begins. So a batch has one waiting shard at most, however many it may have:
    jobs that are enqueued later wait behind one of them, not behind all.
    """
    sharding = sharding_of(batch)
    pending: list[UnitRow] = yield query("read_pending_units", UnitRow, batch_id=batch.id, limit=1)
    if sharding is None or not pending:
        return False
    keys = [shard_key(batch, number) for number in range(sharding.shards)]
    states = dict((yield query("list_shards", kind=sharding.kind, keys=keys)))
    missing = [number for number, key in enumerate(keys) if key not in states]
    if not missing or not {State.READY, State.SCHEDULED}.isdisjoint(states.values()):
        return False
    (shard,) = yield from enqueue_operation([shard_job(batch, sharding, missing[0])])
    return shard.created


def continue_shards(batch: Batch) -> Operation[None]:
    """Start a shard for units that a person retries. A deadline that has passed does not stop them."""
    sharding = sharding_of(batch)
    if sharding is not None and sharding.until is not None and sharding.until <= (yield from read_now()):
        options = msgspec.json.encode(structs.replace(sharding, until=None)).decode()
        yield query("start_batch_shards", id=batch.id, options=options, total=batch.total)
    yield from start_shard(batch)


def join(batch_id: BatchId, lease: Lease, *, owner: str, worker: WorkerId) -> Operation[BatchRun | None]:
    """Begin to work as a shard, under the lease of its job, and start the next shard; None: there is no more work.

    Raises:
        LeaseLost: The shard's job was taken over.
    """
    yield from check_lease(lease)
    rows: list[Batch] = yield query("lock_batch", Batch, id=batch_id)
    if not rows or not is_on_workers(rows[0]):
        return None
    yield from hold(rows[0], lease, [], owner=owner)
    yield from start_shard(rows[0])
    return BatchRun(rows[0], lease, worker, created=False, edited=False)


def is_on_workers(batch: Batch) -> bool:
    """Whether the workers run the batch, or will."""
    is_running = batch.state is BatchState.RUNNING and not batch.requested and not batch.aborted_by
    return is_running and sharding_of(batch) is not None


def leave(run: BatchRun, aborted_by: AbortedBy | None) -> Operation[Batch]:
    """Finish the work of a shard; *aborted_by* stops the other shards too. The last shard finishes the batch.

    Raises:
        LeaseLost: The shard's job was taken over; nothing was written.
    """
    yield from lock_run(run)
    yield query("delete_in_flight", ids=[run.lease.job_id])
    if aborted_by not in (None, AbortedBy.PAUSE, AbortedBy.CANCEL, AbortedBy.STOP_SWITCH):
        yield query("abort_batch", id=run.batch.id, aborted_by=aborted_by, failures=None)
    yield from conclude((yield from locked(run.batch.id)))
    return (yield from locked(run.batch.id))


def abort(batch_id: BatchId, why: AbortedBy) -> Operation[None]:
    """Stop a batch from outside: running units may finish, and the batch can be resumed."""
    yield from locked(batch_id)
    yield query("abort_batch", id=batch_id, aborted_by=why, failures=None)
    yield from conclude((yield from locked(batch_id)))


def revive(after: BatchId, limit: int) -> Operation[tuple[int, BatchId | None]]:
    """Start a shard for batches on the workers that have lost all of theirs; one page of them.

    Returns the number of batches that had none, and the start of the next page.
    """
    rows = yield query("list_batches_without_shards", after=after, limit=limit)
    revived = 0
    for (batch_id,) in rows:
        batch = yield from locked(BatchId(batch_id))
        holders = yield from holders_of(batch.id)
        if batch.state is BatchState.RUNNING and not holders:
            yield from conclude(batch)
            revived += yield from start_shard((yield from locked(batch.id)))
    return revived, BatchId(rows[-1][0]) if len(rows) == limit else None


def reopen(batch: Batch) -> Operation[None]:
    """Reopen a stopped batch: workers continue it at once, a foreground run when it is started again."""
    if sharding_of(batch) is None:
        yield query("set_batch_state", id=batch.id, state=BatchState.STOPPED if batch.run_number else BatchState.READY)
    else:
        yield query("reopen_batch", id=batch.id)
        yield from conclude((yield from locked(batch.id)))
        yield from continue_shards(batch)


def judge_again(batch: Batch, *, actor: str | None) -> Operation[None]:
    """Mark a finished batch as done if its last failed unit was skipped."""
    now = yield from counted(batch.id)
    state = state_after(now, now.over, None)
    if state is not batch.state:
        yield from finish(batch, state, batch.aborted_by, batch.total, actor=actor)
