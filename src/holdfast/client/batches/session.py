"""Batch sessions: batches as a loop of the caller."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, NoReturn, Self

import msgspec
from msgspec import structs

from holdfast.client.batches.batch_claim import length_of
from holdfast.client.batches.function import BoundFunction
from holdfast.client.batches.keys import checked_keys, input_error
from holdfast.client.batches.local import LocalRun, run_plan, signal_handlers
from holdfast.client.batches.options import RunOptions
from holdfast.client.batches.report import BatchResult
from holdfast.client.batches.run import exit_on_error
from holdfast.domain.batches.batch import AbortedBy, Summary
from holdfast.domain.batches.unit import TakenUnit, UnitKey, UnitRow, row_of, unit_key
from holdfast.domain.jobs.verdict import Done
from holdfast.errors import HoldfastError, InvalidInput
from holdfast.errors.frames import short_error, user_place
from holdfast.output.printer import SilentOutput
from holdfast.store import Store
from holdfast.worker.batches.outages import outlast
from holdfast.worker.batches.source import InputKeys
from holdfast.worker.batches.unit import Unit
from holdfast.worker.batches.writer import LedgerWriter


class BatchSession:
    """A batch as your own loop, which becomes resumable.

    ::

        with app.session("resync") as run:
            for key in run.pending(keys):
                with run.unit(key):
                    ...

    Units run where the loop runs, one after the other. An exception within ``run.unit`` fails that unit alone, and the
    loop goes on until the breaker trips. The first signal ends the loop after the current unit, the second one ends
    the process. After the ``with``, ``summary`` and ``exit_code`` are set.
    """

    def __init__(self, store: Store, bound: BoundFunction, options: RunOptions) -> None:
        self._store = store
        self._options = options
        # A loop decides by itself how fast it is: it gets no more keys at a time than the interval says.
        plan = run_plan(bound, options)
        checkpoint = structs.replace(plan.checkpoint, grows=False)
        self._plan = structs.replace(plan, checkpoint=checkpoint)
        self._run = LocalRun.begin(store, bound, iter(()), options)
        self._opened = self._run.opened
        self._stopping = self._run.runner.stopping
        self._source = InputKeys((), checkpoint)
        self._writer = LedgerWriter(
            store, self._opened, self._run.runner, self._plan, self._source, on_written=self._run.report.units
        )
        #: Units that were taken and have not begun.
        self._offered: dict[UnitKey, UnitRow] = {}
        self._total = 0
        #: Whether the total counts every key: also those that the loop did not reach.
        self._sized = True
        self._incomplete = True
        self._stack = ExitStack()
        self.summary: Summary | None = None
        self.exit_code: int | None = None

    def __enter__(self) -> Self:
        heartbeat = self._run.heartbeat(self._store, self.stop)
        heartbeat.start()
        self._stack.callback(heartbeat.stop, timeout=1)
        self._stack.enter_context(signal_handlers(self.stop))
        self._stack.enter_context(self._run.report)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        """End the run. An exception that leaves the loop stops the batch, and propagates.

        An error of Holdfast is printed instead, and ends the program with its exit code, unless nothing is printed.
        """
        own = error if isinstance(error, HoldfastError) else None
        # An exception of the loop says more than an error of the store after it.
        with nullcontext() if error is not None and own is None else exit_on_error(self._options), self._stack:
            if error is not None:
                self.stop(AbortedBy.FATAL)
            self._writer.finish()
            aborted_by, complete = self._writer.aborted_by, not self._incomplete
            aborted_by = None if aborted_by is AbortedBy.LIMIT and complete else aborted_by
            if complete and aborted_by is None:
                self._store.batches.skip_missing(self._opened)
            batch, counters = outlast(
                lambda: self._store.batches.end(
                    self._opened, aborted_by, self._total, complete=complete, sized=self._sized
                )
            )
            outlast(lambda: self._store.leases.settle(self._opened.lease, Done()))
        result = structs.replace(BatchResult.after(batch, counters, aborted_by), error=own)
        result = self._run.report.finish(result, cause=_cause_of(error))
        self.summary, self.exit_code = result.summary, result.exit_code
        if own is not None and not isinstance(self._options.printer(), SilentOutput):
            raise SystemExit(own.exit_code) from own

    def stop(self, reason: AbortedBy = AbortedBy.SIGNAL) -> None:
        """Stop the loop before its next unit. Only the first reason counts."""
        self._writer.stop(reason)

    def pending(self, keys: Iterable[Any]) -> Iterator[Any]:
        """The keys that are left to run, in their order, until the run stops; each key comes once.

        Units that an earlier run began come last. A key whose unit the loop does not begin stays pending.
        """
        first, self._incomplete = not self._total and self._opened.created, True
        keys = checked_keys(keys)
        source = InputKeys(keys, self._plan.checkpoint, first=first, resumed=self._opened.batch.run_number > 1)
        self._source = self._writer.source = source
        before, left_out = self._total, False
        length, was_sized = length_of(keys), self._sized
        self._sized = was_sized and length is not None
        self._total += length or 0
        while not source.exhausted and not self._stopping.is_set():
            self._writer.collect()
            self._writer.stop_if_due()
            self._writer.flush(on_taken=self._offer)
            self._total = max(self._total, before + source.keys_read)
            self._sized = was_sized and (length is not None or source.complete)
            for row in list(self._offered.values()):
                if self._stopping.is_set():
                    return
                yield msgspec.json.decode(row.key)
                if self._offered.pop(row.key, None) is not None:
                    left_out = True
                    self._writer.leave_out(row.key)
        if not self._stopping.is_set() and (error := input_error(source)) is not None:
            self.stop(AbortedBy.INPUT)
            raise error
        self._incomplete = left_out or not source.complete

    @contextmanager
    def unit(self, key: Any) -> Iterator[Unit]:
        """Run one unit. An exception within the block is recorded as its failure, and the loop goes on.

        Raises:
            InvalidInput: The loop over :meth:`pending` is not at this key, or its unit has begun already.
        """
        row = self._offered.pop(unit_key(key), None)
        if row is None:
            hint = "Call run.unit(key) once for each key, in the loop over run.pending(keys)."
            raise InvalidInput(f"{key!r} is not the key that the loop is at", hint=hint)
        unit = Unit(self._run.runner, row, key)
        began = time.monotonic()
        try:
            yield unit
        except Exception as error:  # noqa: BLE001 - the failure of one unit
            result = unit.result(time.monotonic() - began, error=error)
        else:
            result = unit.result(time.monotonic() - began)
        self._writer.add(result)
        self._writer.collect()
        if self._writer.is_due(waiting=len(self._offered) + 1):
            self._writer.flush()

    def exit(self) -> NoReturn:
        """End the process with the exit code of the run; call it after the ``with``."""
        raise SystemExit(self.exit_code)

    def _offer(self, units: Iterable[TakenUnit]) -> None:
        self._offered = {row.key: row for row in map(row_of, units)}


def _cause_of(error: BaseException | None) -> str | None:
    """Why the loop was left, in words; None: it ended, or a unit or a person stopped it."""
    if error is None or isinstance(error, HoldfastError):
        return error.message if error is not None else None
    place = user_place(error)
    return f"the loop was left by {short_error(error)}" + ("" if place is None else f" ({place})")
