"""Batches: runs on them, control by people, and their counters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from operator import itemgetter
from typing import Any

from holdfast.domain.batches.batch import AbortedBy, Batch, BatchId, BatchState, sharding_of
from holdfast.domain.batches.unit import Counters, UnitKey, UnitOutcome, UnitRow, UnitState
from holdfast.domain.jobs.job import ControlRequest, WorkerId
from holdfast.errors import BatchHeld, NoSuchBatch, NoTransaction
from holdfast.store.batches import ledger, runs
from holdfast.store.batches.runs import RunRequest, check_lease, open_batch
from holdfast.store.batches.state import (
    PEOPLE,
    BatchRun,
    Holder,
    UnitInFlight,
    cancel_units,
    conclude_run,
    count,
    counted,
    holders_of,
    locked,
    units_in_hand,
)
from holdfast.store.engine.changes import JOBS
from holdfast.store.engine.operation import Noun, Operation, delegate, query, read, transaction
from holdfast.store.jobs.leases import DEFAULT_LEASE

FIRST = BatchId(2**62)
#: Keys that one statement reads.
KEY_PAGE_SIZE = 20_000


class Batches(Noun):
    """Opens batches, writes their ledgers, and controls them."""

    def open(self, request: RunRequest, *, worker: WorkerId, lease_duration: timedelta = DEFAULT_LEASE) -> BatchRun:
        """Begin a run: continue the open batch of this identity, or begin a new generation.

        - A batch that finished without failures, or was cancelled, is followed by a new generation.
          A batch that finished with failures is opened again.
        - The run's own job is leased in the same transaction. Another holder of the batch is a conflict.

        Raises:
            BatchHeld: A live holder works on it, and *join* is false.
            BatchPaused: A person has paused it.
            StoreStopped: The stop switch is set, and the run does not only submit units to the workers.
            Drift: The version or an input changed since the last run of an open batch.
        """
        while True:
            drawn = self._backend.draw_ids(1)
            run = self._backend.write(open_batch, request, drawn, worker, lease_duration)
            if run is not None:
                return run

    flush = delegate(ledger.flush)

    def end_on(self, connection: Any, run: BatchRun, end: UnitOutcome) -> None:
        """Write the outcome of one unit in the caller's transaction: effect and ledger are kept together, or neither.

        Raises:
            LeaseLost: The run's job was taken over; roll back.
            AlreadyFinished: Another holder has finished the unit; roll back.
        """
        self._backend.run_on(connection, ledger.end_one(run, end))

    @contextmanager
    def unit_transaction(self, run: BatchRun, end: Callable[[], UnitOutcome]) -> Iterator[Any]:
        """A connection to the store's database, in a transaction that closes with the unit's row and a commit.

        Errors of the caller's block are raised as they are.

        Raises:
            LeaseLost: The run's job was taken over; nothing was written.
            AlreadyFinished: Another holder has finished the unit; nothing was written.
            NoTransaction: The caller's code has ended the transaction, or tried to.
        """
        raised: BaseException | None = None
        try:
            with self._backend.transaction() as connection:
                with self._backend.guard(connection):
                    try:
                        yield connection
                    except BaseException as error:
                        raised = error
                        raise
                self.end_on(connection, run, end())
        except NoTransaction:
            raise
        except BaseException:
            if raised is not None:
                raise raised from raised.__cause__  # not in the words of the store
            raise

    def plan(self, run: BatchRun, units: Sequence[UnitInFlight], *, retry_failed: bool = False) -> None:
        """Add pending units to the ledger; known units stay as they are, except failed ones with *retry_failed*.

        Raises:
            LeaseLost: The run's job was taken over; nothing was written.
        """
        if units:
            self._backend.write(ledger.plan, run, units, retry_failed=retry_failed)

    @transaction()
    def end(
        self, run: BatchRun, aborted_by: AbortedBy | None, total: int, *, complete: bool
    ) -> Operation[tuple[Batch, Counters]]:
        """Finish a run and return the state of its batch. *complete*: the run has met every key of its input.

        - A batch that a person has cancelled is cancelled, even if the run did not receive the request.

        Raises:
            LeaseLost: The run's job was taken over; nothing was written.
        """
        yield from check_lease(run.lease)
        counters = yield from conclude_run(run, aborted_by, total, complete=complete)
        return (yield from Batches.get.operation(self, run.batch.id)), counters

    launch = delegate(runs.launch, wakes=JOBS)
    join = delegate(runs.join)
    leave = delegate(runs.leave)
    abort = delegate(runs.abort)
    revive = delegate(runs.revive, wakes=JOBS)

    def holders(self, batch_id: BatchId) -> list[Holder]:
        """The current holders of a batch."""
        return self._fetch("list_batch_holders", Holder, batch_id=batch_id)

    @transaction()
    def pause(self, batch_id: BatchId) -> Operation[bool]:
        """Start no more units; running ones finish. Returns whether anything changed."""
        batch = yield from locked(batch_id)
        if batch.state.finished or batch.state is BatchState.PAUSED or batch.requested is not None:
            return False
        holders = yield from holders_of(batch_id)
        if holders:
            yield query("request_batch_control", id=batch_id, requested=ControlRequest.PAUSE)
        else:
            values = {"state": BatchState.PAUSED, "aborted_by": AbortedBy.PAUSE, "total": batch.total}
            yield query("finish_batch", id=batch_id, **values)
        return True

    @transaction(wakes=JOBS)
    def resume(self, batch_id: BatchId) -> Operation[bool]:
        """Continue a paused batch: workers continue it at once, a foreground run when it is started again.

        A stopped batch on the workers continues too. Returns whether anything changed.
        """
        batch = yield from locked(batch_id)
        if batch.requested == ControlRequest.PAUSE and batch.state is BatchState.RUNNING:
            yield query("reopen_batch", id=batch_id)
            return True
        on_workers = sharding_of(batch) is not None and batch.state is BatchState.STOPPED
        if batch.state is not BatchState.PAUSED and not on_workers:
            return False
        yield from runs.reopen(batch)
        return True

    @transaction()
    def cancel(self, batch_id: BatchId) -> Operation[int]:
        """Cancel every unfinished unit, also of a batch that is paused or not begun; returns their number.

        A running unit may finish, and its outcome counts. The batch never becomes done.
        """
        batch = yield from locked(batch_id)
        if batch.state.finished and batch.state is not BatchState.CANCELLED:
            return 0
        cancelled = yield from cancel_units(batch_id)
        holders = yield from holders_of(batch_id)
        if holders:
            yield query("request_batch_control", id=batch_id, requested=ControlRequest.CANCEL)
        else:
            now = yield from counted(batch_id)
            values = {"state": BatchState.CANCELLED, "aborted_by": AbortedBy.CANCEL, "total": now.over}
            yield query("finish_batch", id=batch_id, **values)
        return cancelled

    @transaction(wakes=JOBS)
    def retry_failed(self, batch_id: BatchId) -> Operation[int]:
        """Make failed units pending again, with all their attempts; returns their number. A finished batch reopens."""
        batch = yield from locked(batch_id)
        if batch.state is BatchState.CANCELLED:
            return 0
        held = yield from units_in_hand(batch_id)
        reopened = {}
        for state in (UnitState.FAILED, UnitState.IN_DOUBT):
            rows = yield query("reopen_units", batch_id=batch_id, state=state, in_flight=held)
            reopened[str(state)] = -len(rows)
        yield from count(batch_id, PEOPLE, reopened)
        total = -sum(reopened.values())
        if total and batch.state.finished:
            yield from runs.reopen(batch)
        return total

    @transaction()
    def delete(self, batch_id: BatchId) -> Operation[None]:
        """Delete a batch with its ledger.

        Raises:
            BatchHeld: A holder works on it.
        """
        batch = yield from locked(batch_id)
        holders = yield from holders_of(batch_id)
        if holders or runs.is_on_workers(batch):
            owner = holders[0].owner if holders else "{}"
            place = "is held by a run" if holders else "is on the workers"
            hint = "Cancel it first, and wait until it has ended."
            raise BatchHeld(f"batch {batch_id} {place}", hint=hint, batch_id=batch_id, owner=owner)
        yield query("delete_batch", id=batch_id)

    @read
    def get(self, batch_id: BatchId) -> Operation[Batch]:
        """One batch.

        Raises:
            NoSuchBatch: It does not exist.
        """
        rows: list[Batch] = yield query("get_batch", Batch, id=batch_id)
        if not rows:
            raise NoSuchBatch(f"there is no batch {batch_id}", batch_id=batch_id)
        return rows[0]

    @read
    def latest(self, identity: str) -> Operation[Batch | None]:
        """The last generation of an identity."""
        rows: list[Batch] = yield query("get_latest_batch", Batch, identity=identity)
        return rows[0] if rows else None

    def count_finished(self, batch_id: BatchId, keys: Sequence[UnitKey], *, retry_failed: bool = True) -> int:
        """The number of these units that a run would not run."""
        rows: list[UnitRow] = self._fetch("get_units", UnitRow, batch_id=batch_id, keys=list(keys))
        again = (UnitState.PENDING, UnitState.FAILED) if retry_failed else (UnitState.PENDING,)
        return sum(unit.state not in again for unit in rows)

    def finished_keys(self, batch_id: BatchId) -> Iterator[UnitKey]:
        """The keys of all units that no run would run again, by key."""
        after = ""
        while rows := self._fetch("list_finished_keys", batch_id=batch_id, after=after, limit=KEY_PAGE_SIZE):
            yield from map(itemgetter(0), rows)
            after = rows[-1][0]

    def page(self, *, before: BatchId = FIRST, limit: int = 50) -> list[Batch]:
        """Batches, newest first."""
        return self._fetch("list_batches", Batch, before=before, limit=limit)

    @read
    def counters(self, batch_id: BatchId) -> Operation[Counters]:
        """The number of units in each state; equal to a recount at every commit."""
        return counted(batch_id)

    def recount(self, batch_id: BatchId) -> dict[str, int]:
        """The units of the ledger by state, counted one by one."""
        return dict(self._fetch("recount_units", batch_id=batch_id))

    def units(
        self, batch_id: BatchId, *, state: UnitState | None = None, after: UnitKey | str = "", limit: int = 500
    ) -> list[UnitRow]:
        """A page of the ledger, by key."""
        values = {"batch_id": batch_id, "state": state, "after": after, "limit": limit}
        return self._fetch("list_units", UnitRow, **values)
