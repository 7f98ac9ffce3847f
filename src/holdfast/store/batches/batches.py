"""Batches: their identity, their ledger, and who works on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from operator import itemgetter
from typing import Any, TypeVar

from holdfast.domain.batches.batch import (
    AbortedBy,
    Batch,
    BatchId,
    BatchState,
    Counters,
    UnitKey,
    UnitOutcome,
    UnitRow,
    UnitState,
    state_after,
)
from holdfast.domain.batches.sharding import Sharding
from holdfast.domain.jobs.job import ControlRequest, Lease, WorkerId
from holdfast.errors import LeaseLost, NoSuchBatch
from holdfast.store.batches import control, shards
from holdfast.store.batches.finishing import Named, cancel_units, counted, locked
from holdfast.store.batches.in_flight import UnitInFlight, count
from holdfast.store.batches.ledger import NOTHING, Flushed, NextUnits, end_one, flush, plan
from holdfast.store.batches.opening import BatchRun, Holder, RunRequest, open_batch
from holdfast.store.engine.backend import Backend
from holdfast.store.engine.operation import Operation, query
from holdfast.store.jobs.leases import DEFAULT_LEASE

T = TypeVar("T")

FIRST = BatchId(2**62)
#: Keys that are read at a time.
KEYS = 20_000


class Batches:
    """Opens batches, writes their ledgers, and lets people steer them."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    # -- runs ------------------------------------------------------------------------------

    def open(self, opening: RunRequest, *, worker: WorkerId, lease_duration: timedelta = DEFAULT_LEASE) -> BatchRun:
        """Begin a run: go on with the open batch of this identity, or begin a new generation.

        - A batch that ended clean, or was cancelled, is followed by a new generation; one that ended
          with failures is opened again.
        - The run's own job is leased in the same transaction; whoever else works on the batch is a conflict.

        Raises:
            BatchHeld: A live holder works on it, and *join* is not asked for.
            BatchPaused: A person has paused it.
            Drift: The version or an input changed under an open run.
        """
        while True:
            drawn = self._backend.draw_ids(1)
            opened = self._backend.write(open_batch, opening, drawn, worker, lease_duration)
            if opened is not None:
                return opened

    def flush(self, run: BatchRun, ends: Sequence[UnitOutcome] = (), ask_for: NextUnits = NOTHING) -> Flushed:
        """Write how units ended, and take the next: all of it in one transaction, under the run's lease.

        - No unit is taken that is over, or that another holder has in hand.
        - A suspect is taken only when nothing else is in hand, and nothing beside it.
        - While a person wants a pause or a cancel, nothing is taken.

        Raises:
            LeaseLost: The run's job was taken over; nothing was written.
        """
        return self._backend.write(flush, run, list(ends), ask_for)

    def end_on(self, connection: Any, run: BatchRun, end: UnitOutcome) -> None:
        """Write the end of one unit in the caller's transaction: effect and ledger are kept together, or not at all.

        Raises:
            LeaseLost: The run's job was taken over; roll back.
            AlreadyOver: Another holder has ended the unit; roll back.
        """
        self._backend.run_on(connection, end_one(run, end))

    @contextmanager
    def transaction(self, run: BatchRun, end: Callable[[], UnitOutcome]) -> Iterator[Any]:
        """A connection to the store's own database, in a transaction that ends with the unit's row and a commit.

        Raises:
            LeaseLost: The run's job was taken over; nothing was written.
            AlreadyOver: Another holder has ended the unit; nothing was written.
        """
        with self._backend.transaction() as connection:
            yield connection
            self.end_on(connection, run, end())

    def plan(self, run: BatchRun, units: Sequence[UnitInFlight], *, retry_failed: bool = False) -> None:
        """Put keys into the ledger, where they wait; known ones stay as they are, but for failed ones on demand.

        Raises:
            LeaseLost: The run's job was taken over; nothing was written.
        """
        if units:
            self._backend.write(plan, run, list(units), retry_failed)

    def end(self, run: BatchRun, aborted_by: AbortedBy | None, total: int, *, complete: bool) -> tuple[Batch, Counters]:
        """End a run and say where the batch stands. *complete*: the run has met every key of its input.

        - A batch that a person has cancelled ends so, also when the run did not hear of it.

        Raises:
            LeaseLost: The run's job was taken over; nothing was written.
        """
        return self._backend.write(_end, run, aborted_by, total, complete)

    # -- workers ---------------------------------------------------------------------------

    def launch(self, run: BatchRun, sharding: Sharding) -> Batch:
        """Hand a batch whose units are planned over to the workers; those that vanished are skipped.

        Raises:
            LeaseLost: The run's job was taken over; nothing was written.
        """
        return self._notify_after(self._backend.write(shards.launch, run, sharding))

    def join(self, batch_id: BatchId, lease: Lease, *, owner: str) -> BatchRun | None:
        """Begin to work as a shard, under the lease of its job; None: there is nothing to do any more.

        Raises:
            LeaseLost: The shard's job was taken over.
        """
        return self._backend.write(shards.join, batch_id, lease, owner)

    def leave(self, run: BatchRun, aborted_by: AbortedBy | None) -> Batch:
        """End the work of a shard; *aborted_by* stops the others too. The last one says where the batch stands.

        Raises:
            LeaseLost: The shard's job was taken over; nothing was written.
        """
        return self._backend.write(shards.leave, run, aborted_by)

    def abort(self, batch_id: BatchId, why: AbortedBy) -> None:
        """Stop a batch from outside: what runs may end, and it can be resumed."""
        self._backend.write(shards.abort, batch_id, why)

    def revive(self, *, limit: int = 100) -> int:
        """New shards for batches of the workers that have lost all of theirs; answers how many batches."""
        revived = self._backend.write(shards.revive, limit)
        return self._notify_after(revived) if revived else 0

    def _notify_after(self, answer: T) -> T:
        """Tell workers that there may be something to do."""
        self._backend.notify()
        return answer

    def holders(self, batch_id: BatchId) -> list[Holder]:
        """Who works on a batch now."""
        return self._backend.look(query("list_batch_holders", Holder, batch_id=batch_id))

    # -- people ----------------------------------------------------------------------------

    def pause(self, batch_id: BatchId) -> bool:
        """Start nothing more; what runs ends. Answers whether that changed anything."""
        return self._backend.write(control.pause, batch_id)

    def resume(self, batch_id: BatchId) -> bool:
        """Let a paused batch go on: workers do by themselves, a foreground run when it is started again.

        A batch of the workers that was stopped goes on too. Answers whether that changed anything.
        """
        return self._notify_after(self._backend.write(control.resume, batch_id))

    def cancel(self, batch_id: BatchId) -> int:
        """Cancel every unit that has not ended, also of a batch that is paused or not begun; answers how many.

        A unit under way may finish, and its outcome counts. The batch never becomes done.
        """
        return self._backend.write(control.cancel, batch_id)

    def retry_failed(self, batch_id: BatchId) -> int:
        """Let failed units run again, with all their attempts; answers how many. An ended batch is open again."""
        return self._notify_after(self._backend.write(control.retry_failed, batch_id))

    def remove(self, batch_id: BatchId) -> None:
        """Forget a batch with its ledger.

        Raises:
            BatchHeld: Somebody works on it.
        """
        self._backend.write(control.remove, batch_id)

    # -- views -----------------------------------------------------------------------------

    def get(self, batch_id: BatchId) -> Batch:
        """One batch.

        Raises:
            NoSuchBatch: It does not exist.
        """
        return self._backend.read(_get, batch_id)

    def latest(self, identity: str) -> Batch | None:
        """The last generation of an identity."""
        rows: list[Batch] = self._backend.read(_latest, identity)
        return rows[0] if rows else None

    def over(self, batch_id: BatchId, keys: Sequence[UnitKey], *, retry_failed: bool = True) -> int:
        """How many of these units a run would not run."""
        rows: list[UnitRow] = self._backend.look(query("get_units", UnitRow, batch_id=batch_id, keys=list(keys)))
        again = (UnitState.PENDING, UnitState.FAILED) if retry_failed else (UnitState.PENDING,)
        return sum(unit.state not in again for unit in rows)

    def keys_over(self, batch_id: BatchId) -> Iterator[UnitKey]:
        """The keys of all units that are over, whatever comes, by key."""
        after = ""
        while rows := self._backend.look(query("list_finished_keys", batch_id=batch_id, after=after, limit=KEYS)):
            yield from map(itemgetter(0), rows)
            after = rows[-1][0]

    def page(self, *, before: BatchId = FIRST, limit: int = 50) -> list[Batch]:
        """Batches, the newest first."""
        return self._backend.look(query("list_batches", Batch, before=before, limit=limit))

    def counters(self, batch_id: BatchId) -> Counters:
        """How many units stand where; equal to a recount at every commit."""
        return self._backend.read(counted, batch_id)

    def recount(self, batch_id: BatchId) -> dict[str, int]:
        """The units of the ledger, counted one by one."""
        rows: list[Named] = self._backend.look(query("recount_units", Named, batch_id=batch_id))
        return {row.name: row.count for row in rows}

    def units(
        self, batch_id: BatchId, *, state: UnitState | None = None, after: UnitKey | str = "", limit: int = 500
    ) -> list[UnitRow]:
        """A page of the ledger, by key."""
        told = {"batch_id": batch_id, "state": state, "after": after, "limit": limit}
        return self._backend.look(query("list_units", UnitRow, **told))


def _latest(identity: str) -> Operation[list[Batch]]:
    return (yield query("get_latest_batch", Batch, identity=identity))


def _get(batch_id: BatchId) -> Operation[Batch]:
    rows: list[Batch] = yield query("get_batch", Batch, id=batch_id)
    if not rows:
        raise NoSuchBatch(f"there is no batch {batch_id}", batch_id=batch_id)
    return rows[0]


def _end(run: BatchRun, aborted_by: AbortedBy | None, total: int, complete: bool) -> Operation[tuple[Batch, Counters]]:  # noqa: FBT001
    rows = yield query("lock_lease", id=run.lease.job_id, token=run.lease.token)
    if not rows:
        raise LeaseLost.of(run.lease.job_id, run.lease.token)
    batch = yield from locked(run.batch.id)
    yield query("delete_in_flight", ids=[run.lease.job_id])
    holders: list[Holder] = yield query("list_batch_holders", Holder, batch_id=batch.id)
    if batch.requested == ControlRequest.CANCEL:  # the run had taken its last unit, and did not hear of it
        aborted_by = AbortedBy.CANCEL
        yield from cancel_units(batch.id)
    if complete and aborted_by is None and not holders:
        gone = yield query("skip_missing_units", batch_id=batch.id, run_number=batch.run_number)
        yield from count(batch.id, run.lease.job_id, {"skipped": len(gone)})
    now = yield from counted(batch.id)
    if not holders:
        met = now.over + now.in_inbox
        over = aborted_by is AbortedBy.CANCEL or (complete and aborted_by is None)
        known = met if over else max(total, met)
        state = state_after(now, known, aborted_by)
        if state is BatchState.RUNNING:
            yield query("set_batch_total", id=batch.id, total=known)
        else:
            yield query("finish_batch", id=batch.id, state=state, aborted_by=aborted_by, total=known)
    return (yield from _get(batch.id)), now
