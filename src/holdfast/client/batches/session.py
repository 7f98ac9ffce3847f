"""Batch sessions: batches as a loop of the caller."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import Any, NoReturn, Self

import msgspec

from holdfast.client.batches.function import BoundFunction
from holdfast.client.batches.local import LocalRun, signal_handlers
from holdfast.client.batches.options import RunOptions
from holdfast.client.batches.report import BatchResult
from holdfast.domain.batches.batch import AbortedBy, Breaker, Summary
from holdfast.domain.batches.unit import UnitKey, UnitOutcome, UnitRow, UnitState, unit_key
from holdfast.domain.jobs.context import AlreadyFinished, Cancelled, Fatal, Skip
from holdfast.domain.jobs.verdict import Done
from holdfast.store import Store
from holdfast.store.batches.ledger import NextUnits
from holdfast.store.batches.state import UnitInFlight
from holdfast.worker import clock
from holdfast.worker.batches.driver import FLUSH_INTERVAL_S
from holdfast.worker.batches.threads import MAX_UNWRITTEN, OutcomeBuffer
from holdfast.worker.batches.unit import Unit
from holdfast.worker.handler import describe_error


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
        self._run = LocalRun.begin(store, bound, iter(()), options)
        self._opened = self._run.opened
        self._stopping = self._run.runner.stopping
        self._breaker = Breaker(options.limits.failure_limits(bound.function.options))
        self._retry_failed = options.retry_failed
        self._aborted_by: AbortedBy | None = None
        self._outcomes = OutcomeBuffer()
        self._in_hand: dict[UnitKey, UnitRow] = {}
        self._keys_considered = 0
        self._complete = False
        self._flushed_at = clock.now()
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

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End the run. An exception that leaves the loop stops the batch, and propagates."""
        with self._stack:
            if kind is not None:
                self.stop(AbortedBy.FATAL)
            self._flush()
            batch, counters = self._store.batches.end(
                self._opened, self._aborted_by, self._keys_considered, complete=self._complete
            )
            self._store.leases.settle(self._opened.lease, Done())
        result = BatchResult.after(batch, counters, self._aborted_by)
        self.summary, self.exit_code = result.summary, result.exit_code
        self._run.report.finish(result)

    def stop(self, reason: AbortedBy = AbortedBy.SIGNAL) -> None:
        """Stop the loop before its next unit. Only the first reason counts."""
        self._aborted_by = self._aborted_by or reason
        self._run.runner.stop()

    def pending(self, keys: Iterable[Any]) -> Iterator[Any]:
        """The keys that are left to run, in their order, until the run stops."""
        numbered = ((unit_key(value), place) for place, value in enumerate(keys))
        candidates: list[UnitInFlight] = []
        while not self._stopping.is_set():
            candidates += islice(numbered, MAX_UNWRITTEN - len(candidates))
            if not candidates:
                self._complete = True
                return
            considered = self._flush(candidates)
            self._keys_considered += considered
            candidates = candidates[considered:]
            for row in list(self._in_hand.values()):
                if self._stopping.is_set():
                    return
                yield msgspec.json.decode(row.key)

    @contextmanager
    def unit(self, key: Any) -> Iterator[Unit]:
        """Run one unit. An exception within the block is recorded as its failure, and the loop goes on."""
        row = self._in_hand[unit_key(key)]
        unit = Unit(self._run.runner, row, key)
        began = time.monotonic()
        try:
            yield unit
        except (Cancelled, AlreadyFinished):
            self._in_hand.pop(row.key)
            return
        except Skip as skip:
            unit.warn(str(skip))
            outcome = unit.outcome(UnitState.SKIPPED, None, time.monotonic() - began)
        except Exception as error:  # noqa: BLE001 - the failure of one unit
            outcome = unit.outcome(UnitState.FAILED, describe_error(error), time.monotonic() - began)
            if isinstance(error, Fatal):
                self.stop(AbortedBy.FATAL)
        else:
            outcome = unit.settled or unit.outcome(UnitState.DONE, None, time.monotonic() - began)
        self._in_hand.pop(row.key)
        self._add(outcome, written=unit.settled is not None)

    def exit(self) -> NoReturn:
        """End the process with the exit code of the run; call it after the ``with``."""
        raise SystemExit(self.exit_code)

    def _add(self, outcome: UnitOutcome, *, written: bool) -> None:
        failed = outcome.state is UnitState.FAILED
        self._outcomes.add(outcome, failed=failed, written=written)
        if self._breaker.count(failed=failed) and failed:
            self._outcomes.release_streak()
            assert self._breaker.tripped is not None
            self.stop(self._breaker.tripped)
        if len(self._outcomes.unwritten) >= MAX_UNWRITTEN or clock.now() - self._flushed_at >= FLUSH_INTERVAL_S:
            self._flush()

    def _flush(self, candidates: list[UnitInFlight] | None = None) -> int:
        """Write the outcomes, and take units from *candidates*. Returns how many candidates were considered."""
        outcomes = self._outcomes.take()
        in_hand = [] if self._stopping.is_set() else [(row.key, row.position) for row in self._in_hand.values()]
        limit = 0 if candidates is None else MAX_UNWRITTEN
        request = NextUnits(in_hand=in_hand, candidates=candidates, limit=limit, retry_failed=self._retry_failed)
        flushed = self._store.batches.flush(self._opened, outcomes, request)
        self._flushed_at = clock.now()
        self._in_hand.update((row.key, row) for row in flushed.taken)
        self._run.report.units([outcome for outcome in outcomes if outcome.state is not UnitState.PENDING])
        if flushed.stop is not None:
            self.stop(flushed.stop)
        return flushed.examined
