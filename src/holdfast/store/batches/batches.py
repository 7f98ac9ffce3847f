"""Batches: runs on them, and their counters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from operator import itemgetter
from typing import Any

from msgspec import Struct

from holdfast.domain.batches.batch import AbortedBy, Batch, BatchId, Sharding
from holdfast.domain.batches.batch_filter import ALL_BATCHES, BatchFilter
from holdfast.domain.batches.turns import ClaimableJob
from holdfast.domain.batches.unit import (
    REOPENED_UNITS,
    RUNNABLE_UNITS,
    Counters,
    UnitKey,
    UnitOutcome,
    UnitRow,
    UnitState,
)
from holdfast.domain.jobs.job import JobId, WorkerId
from holdfast.errors import NoSuchBatch
from holdfast.store.batches import ledger, runs
from holdfast.store.batches.control import BatchControl
from holdfast.store.batches.runs import RunRequest, check_lease, open_batch
from holdfast.store.batches.state import BatchRun, Holder, UnitInFlight, conclude_run, counted
from holdfast.store.engine.changes import JOBS
from holdfast.store.engine.operation import ById, Operation, Query, delegate, query, read, transaction
from holdfast.store.jobs.leases import DEFAULT_LEASE

FIRST = BatchId(2**62)
BEFORE_ALL = BatchId(0)
#: Keys that one statement reads.
KEY_PAGE_SIZE = 20_000
#: Generations of one identity that are read.
MAX_GENERATIONS = 20
#: Batches that one filtered page examines.
WINDOW_SIZE = 5000


class BatchPage(Struct, frozen=True):
    """Some batches, newest first, and the start of the next page."""

    batches: list[Batch]
    next: BatchId | None


class Batches(BatchControl):
    """Opens batches, writes their ledgers, and reads them."""

    def open(self, request: RunRequest, *, worker: WorkerId, lease_duration: timedelta = DEFAULT_LEASE) -> BatchRun:
        """Begin a run: continue the open batch of this identity, or begin a new generation.

        - A batch that finished without failures, or was cancelled, is followed by a new generation.
          A batch that finished with failures is opened again.
        - The run's own job is leased in the same transaction. Another holder of the batch is a conflict.

        Raises:
            BatchHeld: A live holder works on it, and *join* is false.
            BatchPaused: A person has paused it.
            StoreStopped: The stop switch is set, and the run does not only submit units to the workers.
            Drift: Since the last run of an open batch the version or an input changed, or a function from another place
                made that run.
        """
        while True:
            run = self._backend.write(open_batch, request, worker, lease_duration)
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
            StoreUnavailable: The connection broke; only if it broke at the end may anything have been written.
        """
        raised: BaseException | None = None
        try:
            with self._backend.transaction() as connection:
                try:
                    with self._backend.guard(connection):
                        yield connection
                except BaseException as error:
                    raised = error
                    raise
                self.end_on(connection, run, end())
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
        self, run: BatchRun, aborted_by: AbortedBy | None, total: int, *, complete: bool, sized: bool | None = None
    ) -> Operation[tuple[Batch, Counters]]:
        """Finish a run and return the state of its batch. *complete*: the run has met every key of its input.

        *sized*: *total* counts the keys that the run has not met too; by default if it is the number that the run began
        with. Otherwise the batch has no total, unless the run is complete.

        - A batch that a person has cancelled is cancelled, even if the run did not receive the request.

        Raises:
            LeaseLost: The run's job was taken over; nothing was written.
        """
        yield from check_lease(run.lease)
        if sized is None:
            sized = run.batch.total is not None and total <= run.batch.total
        counters = yield from conclude_run(run, aborted_by, total, complete=complete, sized=sized)
        return (yield from Batches.get.operation(self, run.batch.id)), counters

    def launch(self, run: BatchRun, sharding: Sharding) -> Batch:
        """Hand a batch whose units are planned to the workers; units that have vanished are skipped before, in steps.

        Raises:
            LeaseLost: The run's job was taken over.
        """
        self.skip_missing(run)
        return self._wake(self._backend.write(runs.launch, run, sharding))

    join = delegate(runs.join, wakes=JOBS)
    leave = delegate(runs.leave)
    abort = delegate(runs.abort)

    def revive(self, *, after: BatchId = BEFORE_ALL, limit: int = 100) -> tuple[int, BatchId | None]:
        """Start a shard for batches on the workers that have lost all of theirs, in one page of such batches.

        Returns the number of batches that had none, and the start of the next page: whoever passes it on examines
        every batch, however many have waiting shards.
        """
        revived, following = self._backend.write(runs.revive, after, limit)
        return self._wake(revived), following

    def waiting_jobs(
        self,
        worker: WorkerId,
        *,
        queues: Sequence[str],
        kinds: Sequence[str],
        shards: Mapping[str, int],
        build: str = "",
        unfinished: Sequence[JobId] = (),
        limit: int = 100,
    ) -> list[ClaimableJob]:
        """The best ready jobs that *worker* could claim if its *shards*, counted by queue, made room.

        Jobs of paused queues, of other kinds, and of full queues without a shard of this worker are left out.
        """
        values: dict[str, Any] = {"worker": worker, "queues": list(queues), "kinds": list(kinds)}
        values["shards"] = ById(id=list(shards), count=list(shards.values()))
        values |= {"build": build, "unfinished": list(unfinished), "few": 1, "alone": 1, "limit": limit}
        return self._fetch("list_claimable", ClaimableJob, **values)

    def paused_queues(self, queues: Sequence[str]) -> set[str]:
        """Those of *queues* that a person has paused."""
        return {row[0] for row in self._fetch("list_paused_queues", queues=list(queues))}

    def holders(self, batch_id: BatchId) -> list[Holder]:
        """The current holders of a batch."""
        return self._fetch("list_batch_holders", Holder, batch_id=batch_id)

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

    def latest(self, identity: str) -> Batch | None:
        """The last generation of an identity."""
        return next(iter(self.generations(identity)), None)

    def generations(self, identity: str) -> list[Batch]:
        """The generations of an identity, newest first: the last 20."""
        return self._fetch("list_generations", Batch, identity=identity, limit=MAX_GENERATIONS)

    def count_finished(
        self, batch_id: BatchId, keys: Sequence[UnitKey], *, retry_failed: bool = True, again: bool = False
    ) -> int:
        """The number of these units that a run would not run. With *again*, it overrules the ledger."""
        rows: list[UnitRow] = self._fetch("get_units", UnitRow, batch_id=batch_id, keys=list(keys))
        runnable = RUNNABLE_UNITS if retry_failed else {UnitState.PENDING}
        runnable = runnable | REOPENED_UNITS if again else runnable
        return sum(unit.state not in runnable for unit in rows)

    def finished_keys(self, batch_id: BatchId) -> Iterator[UnitKey]:
        """The keys of all units that no run would run again, by key."""
        after = ""
        while rows := self._fetch("list_finished_keys", batch_id=batch_id, after=after, limit=KEY_PAGE_SIZE):
            yield from map(itemgetter(0), rows)
            after = rows[-1][0]

    @read
    def page(
        self, chosen: BatchFilter = ALL_BATCHES, *, before: BatchId = FIRST, limit: int = 50
    ) -> Operation[BatchPage]:
        """Batches that match, newest first; *before* is the ``next`` of the previous page.

        With a filter a page examines 5,000 batches. So it may be short or empty and still have a next.
        """
        window = max(limit, WINDOW_SIZE) if chosen.where else limit
        values = {**chosen.values, "before": before, "window": window, "limit": limit}
        batches: list[Batch] = yield Query("list_batches", values, Batch, chosen.where)
        if len(batches) == limit:
            return BatchPage(batches, batches[-1].id)
        rows = yield query("get_batch_window_end", before=before, window=window)
        return BatchPage(batches, BatchId(rows[0][0]) if rows else None)

    def all(self, chosen: BatchFilter = ALL_BATCHES, *, limit: int = 500) -> Iterator[Batch]:
        """All batches that match, newest first, page by page."""
        before: BatchId | None = FIRST
        while before is not None:
            page = self.page(chosen, before=before, limit=limit)
            yield from page.batches
            before = page.next

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
