"""A batch as a loop, for code that has one already: the loop stays, and becomes resumable."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from typing import Any, NoReturn, Self

import msgspec

from holdfast.client.batches.function import BoundFunction
from holdfast.client.batches.local import RunOptions, begin, heard, limits_of
from holdfast.domain.batches.batch import (
    AbortedBy,
    Summary,
    UnitKey,
    UnitOutcome,
    UnitRow,
    UnitState,
    exit_code,
    summarise,
    unit_key,
)
from holdfast.domain.batches.breaker import Breaker
from holdfast.domain.jobs.handler_exceptions import AlreadyFinished, Cancelled, Fatal, Skip
from holdfast.domain.jobs.verdict import Done
from holdfast.store import Store
from holdfast.store.batches.in_flight import UnitInFlight
from holdfast.store.batches.ledger import NextUnits
from holdfast.worker import clock
from holdfast.worker.batches.driver import FLUSH_EVERY, DriverHeartbeat, release
from holdfast.worker.batches.threads import GROUP
from holdfast.worker.batches.unit import Unit, UnitRunner
from holdfast.worker.handler import say
from holdfast.worker.service import ServiceThread


class Session:
    """``with app.session(…) as run: for key in run.pending(keys): with run.unit(key): …``

    Units run where the loop runs, one after the other. What a unit raises is its failure alone: the loop goes
    on, until the breaker trips. A first signal ends the loop after the unit under way, a second one the process.
    """

    def __init__(self, store: Store, bound: BoundFunction, options: RunOptions) -> None:
        self._store = store
        self._begun = begin(store, bound, (), options)
        self._opened = self._begun.opened
        self._run: UnitRunner = self._begun.run
        self._breaker = Breaker(limits_of(bound, options))
        self._retry_failed = options.retry_failed
        self._aborted: AbortedBy | None = None
        self._ends: list[UnitOutcome] = []
        self._rows: dict[UnitKey, UnitRow] = {}
        self._streak: list[UnitOutcome] = []
        self._met = 0
        self._complete = False
        self._flushed = clock.now()
        self._stack = ExitStack()
        self.summary: Summary | None = None
        self.exit_code: int | None = None

    def __enter__(self) -> Self:
        lost = partial(self.stop, AbortedBy.LEASE_LOST)
        pulse = ServiceThread(DriverHeartbeat(self._store, self._opened, self._run, lost=lost), told=lambda *_: None)
        pulse.start()
        self._stack.callback(pulse.stop, timeout=1)
        self._stack.enter_context(heard(self.stop))
        self._stack.enter_context(self._begun.report)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End the run; what broke out of the loop leaves the batch stopped, and is raised on."""
        with self._stack:
            if kind is not None:
                self.stop(AbortedBy.FATAL)
            self._write()
            batch, counted = self._store.batches.end(self._opened, self._aborted, self._met, complete=self._complete)
            self._store.leases.settle(self._opened.lease, Done())
        self.summary = summarise(counted, batch.total or 0, self._aborted)
        self.exit_code = exit_code(counted, self._aborted)
        self._begun.report.finished(self.summary, self.exit_code)

    def stop(self, why: AbortedBy = AbortedBy.SIGNAL) -> None:
        """Begin no more units; the first reason stays."""
        self._aborted = self._aborted or why
        self._run.stop()

    def pending(self, keys: Iterable[Any]) -> Iterator[Any]:
        """Those of *keys* that are to be run, in their order, until the run has to stop."""
        numbered = ((unit_key(value), place) for place, value in enumerate(keys))
        ahead: list[UnitInFlight] = []
        while not self._run.stopping.is_set():
            ahead += islice(numbered, GROUP - len(ahead))
            if not ahead:
                self._complete = True
                return
            flushed = self._write(ahead)
            self._met += flushed
            ahead = ahead[flushed:]
            for row in list(self._rows.values()):
                if self._run.stopping.is_set():
                    return
                yield msgspec.json.decode(row.key)

    @contextmanager
    def unit(self, key: Any) -> Iterator[Unit]:
        """Do one unit: what it raises is written down, and the loop goes on."""
        row = self._rows[unit_key(key)]
        unit = Unit(self._run, row, key)
        began = time.monotonic()
        try:
            yield unit
        except (Cancelled, AlreadyFinished):
            self._rows.pop(row.key)
            return
        except Skip as skip:
            unit.warn(str(skip))
            end = unit.finished(UnitState.SKIPPED, None, time.monotonic() - began)
        except Exception as error:  # noqa: BLE001 - the failure of one unit
            end = unit.finished(UnitState.FAILED, say(error), time.monotonic() - began)
            if isinstance(error, Fatal):
                self.stop(AbortedBy.FATAL)
        else:
            end = unit.settled or unit.finished(UnitState.DONE, None, time.monotonic() - began)
        self._rows.pop(row.key)
        self._over(end, written=unit.settled is not None)

    def exit(self) -> NoReturn:
        """End the program with the exit code of the run; after the ``with``."""
        raise SystemExit(self.exit_code)

    def _over(self, end: UnitOutcome, *, written: bool) -> None:
        if not written:
            self._ends.append(end)
        failed = end.state is UnitState.FAILED
        self._streak = [*self._streak, end] if failed else []
        if self._breaker.count(failed=failed) and failed:
            self._ends = release(self._ends, self._streak)
            assert self._breaker.tripped is not None
            self.stop(self._breaker.tripped)
        if len(self._ends) >= GROUP or clock.now() - self._flushed >= FLUSH_EVERY:
            self._write()

    def _write(self, ahead: list[UnitInFlight] | None = None) -> int:
        """Write what has ended; with *ahead*, take the next units, and say how many were looked at."""
        ends, self._ends = self._ends, []
        held = [(row.key, row.position) for row in self._rows.values()] if not self._run.stopping.is_set() else []
        limit = 0 if ahead is None else GROUP
        ask_for = NextUnits(in_hand=held, candidates=ahead, limit=limit, retry_failed=self._retry_failed)
        flushed = self._store.batches.flush(self._opened, ends, ask_for)
        self._flushed = clock.now()
        self._rows.update((row.key, row) for row in flushed.taken)
        self._begun.report.units([end for end in ends if end.state is not UnitState.PENDING])
        if flushed.stop is not None:
            self.stop(flushed.stop)
        return flushed.looked
