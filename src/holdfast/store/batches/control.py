"""Control of batches by people: pause, resume, cancel, retry, delete."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.domain.batches.batch import AbortedBy, BatchId, BatchState, sharding_of
from holdfast.domain.batches.history import BatchEventName
from holdfast.domain.batches.unit import UnitKey, UnitState
from holdfast.domain.jobs.job import ControlRequest
from holdfast.store.batches import runs, state, unit_steps
from holdfast.store.batches.events import finish, record_change
from holdfast.store.batches.state import BatchRun, UnitCursor, UnitStep, holders_of, locked
from holdfast.store.engine.changes import JOBS
from holdfast.store.engine.operation import Noun, Operation, query, transaction

#: Called after each step of a change with the number of units so far.
OnStep = Callable[[int], object]


def ignore_step(_: int) -> None:
    """Report no progress."""


class BatchControl(Noun):
    """Changes batches for people. What concerns many units is done in steps, each in its own transaction."""

    @transaction()
    def pause(self, batch_id: BatchId, *, actor: str | None = None) -> Operation[bool]:
        """Start no more units; running ones finish. Returns whether anything changed."""
        batch = yield from locked(batch_id)
        if batch.state.finished or batch.state is BatchState.PAUSED or batch.requested is not None:
            return False
        holders = yield from holders_of(batch_id)
        if holders:
            yield query("request_batch_control", id=batch_id, requested=ControlRequest.PAUSE)
            yield from record_change(batch, BatchEventName.PAUSE_REQUESTED, actor=actor)
        else:
            yield from finish(batch, BatchState.PAUSED, AbortedBy.PAUSE, batch.total, actor=actor)
        return True

    @transaction(wakes=JOBS)
    def resume(self, batch_id: BatchId, *, actor: str | None = None) -> Operation[bool]:
        """Continue a paused batch: workers continue it at once, a foreground run when it is started again.

        A stopped batch on the workers continues too. Returns whether anything changed.
        """
        batch = yield from locked(batch_id)
        if batch.requested == ControlRequest.CANCEL:
            return False  # a cancel is never withdrawn
        if batch.requested == ControlRequest.PAUSE and batch.state is BatchState.RUNNING:
            yield from record_change(batch, BatchEventName.RESUMED, actor=actor)
            yield query("reopen_batch", id=batch_id)
            yield from runs.continue_shards(batch)  # others have obeyed, and left
            return True
        on_workers = sharding_of(batch) is not None and batch.state is BatchState.STOPPED
        if batch.state is not BatchState.PAUSED and not on_workers:
            return False
        yield from record_change(batch, BatchEventName.RESUMED, actor=actor)
        yield from runs.reopen(batch)
        return True

    def cancel(self, batch_id: BatchId, *, actor: str | None = None, on_step: OnStep = ignore_step) -> int:
        """Cancel every unfinished unit, also of a batch that is paused or not begun; returns their number.

        A running unit may finish, and its outcome counts. The batch never becomes done. Units are cancelled in steps;
        *on_step* is called with their number after each. If this process dies, a worker continues.
        """
        return self._in_steps(unit_steps.cancel_step, batch_id, actor, on_step=on_step)

    def continue_cancel(self) -> int:
        """Do a step for a batch whose cancel was left; returns the number of units, 0 without such a batch."""
        return self._backend.write(unit_steps.continue_cancel, state.STEP_SIZE)

    def retry_failed(self, batch_id: BatchId, *, actor: str | None = None, on_step: OnStep = ignore_step) -> int:
        """Make failed units pending again, with all their attempts; returns their number. A finished batch reopens.

        Units change in steps, as in :meth:`cancel`; a second call continues. Workers begin at once.
        """
        total = 0
        for each in (UnitState.FAILED, UnitState.IN_DOUBT):
            total = self._in_steps(unit_steps.retry_step, batch_id, each, actor, on_step=on_step, total=total)
        return total

    def skip_missing(self, run: BatchRun) -> int:
        """Skip pending units of earlier runs that the input no longer has, unless others work on the batch.

        Raises:
            LeaseLost: The run's job was taken over.
        """
        if run.batch.run_number == 1:
            return 0
        return self._in_steps(unit_steps.skip_missing_step, run, on_step=ignore_step)

    def skip_gone(self, run: BatchRun, keys: Sequence[UnitKey]) -> int:
        """Skip failed units among *keys*, which the input no longer has, unless others work on the batch.

        Raises:
            LeaseLost: The run's job was taken over.
        """
        total = 0
        for start in range(0, len(keys), state.STEP_SIZE):
            chunk = list(keys[start : start + state.STEP_SIZE])
            total += self._backend.write(unit_steps.skip_gone_step, run, chunk)
        return total

    def _in_steps(
        self, operation: Callable[..., Operation[UnitStep]], *args: Any, on_step: OnStep, total: int = 0
    ) -> int:
        """Run the steps of a change, each in its own transaction; returns *total* and the number of units."""
        cursor: UnitCursor | None = state.START
        while cursor is not None:
            step = self._backend.write(operation, *args, cursor, state.STEP_SIZE)
            total, cursor = total + self._wake(step.changed), step.cursor
            on_step(total)
        return total

    def delete(self, batch_id: BatchId, *, on_step: OnStep = ignore_step) -> None:
        """Delete a batch with its ledger. The batch is gone at once, its units in steps, as in :meth:`cancel`.

        Raises:
            BatchHeld: A holder works on it.
        """
        self._backend.write(unit_steps.delete, batch_id)
        total = 0
        while deleted := self._backend.write(unit_steps.delete_step, batch_id, state.STEP_SIZE):
            total += deleted
            on_step(total)
