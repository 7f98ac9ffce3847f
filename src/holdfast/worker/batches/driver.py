"""The driver of a run: takes units, has them run, writes the ledger, obeys."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from msgspec import Struct, structs

from holdfast.domain.batches.batch import BREAKERS, AbortedBy, UnitKey, UnitOutcome, UnitRow, UnitState
from holdfast.domain.batches.breaker import Breaker, FailureLimits
from holdfast.errors import LeaseLost, StoreUnavailable
from holdfast.store import Store
from holdfast.store.batches.in_flight import UnitInFlight
from holdfast.store.batches.ledger import NextUnits
from holdfast.store.batches.opening import BatchRun
from holdfast.worker import clock
from holdfast.worker.batches.source import Source
from holdfast.worker.batches.threads import GROUP, UnitThreads
from holdfast.worker.batches.unit import UnitRunner
from holdfast.worker.service import TickResult

#: The ledger is written at least so often, in seconds; wishes of people are heard then too.
FLUSH_EVERY = 1.0
HEARTBEAT = 10.0

DriverEvents = Callable[[Sequence[UnitOutcome]], None]


class RunPlan(Struct, frozen=True, kw_only=True):
    """How a run is to go."""

    jobs: int = 1
    limits: FailureLimits = FailureLimits()
    deadline: timedelta | None = None
    limit: int | None = None
    retry_failed: bool = True
    in_doubt_if_lost: bool = False
    rate: float | None = None


class Driver:
    """Runs units of one batch from this process until there are no more, or until it has to stop."""

    def __init__(
        self,
        store: Store,
        opened: BatchRun,
        run: UnitRunner,
        plan: RunPlan,
        source: Source,
        *,
        told: DriverEvents = lambda _: None,
    ) -> None:
        self._store = store
        self._opened = opened
        self._run = run
        self._plan = plan
        self._told = told
        self._source = source
        self._in_hand: dict[UnitKey, UnitRow] = {}
        self._alone = False
        self.resting = False
        self._taken = 0
        self._breaker = Breaker(plan.limits)
        self._streak: list[UnitOutcome] = []
        self._aborted: AbortedBy | None = None
        self._unwritten: list[UnitOutcome] = []
        self._began = self._flushed = clock.now()
        self._pool = UnitThreads(
            run, plan.jobs, Breaker(plan.limits), rate=plan.rate
        )  # it counts the same ends in order
        self._pool.write = self._write_for_the_crew
        self._turning = threading.Lock()
        self._error: BaseException | None = None
        self._unreadable: Exception | None = None

    def stop(self, why: AbortedBy | None = AbortedBy.SIGNAL) -> None:
        """Begin nothing more, and tell what runs; it may end. The first reason stays.

        None is no reason: the batch goes on elsewhere.
        """
        if self._aborted is None:
            self._aborted = why
        self._run.stop()
        self._pool.news.set()

    def rest(self) -> None:
        """Take nothing more; what was taken is run, and knows nothing of it."""
        self.resting = True
        self._pool.news.set()

    def run(self) -> AbortedBy | None:
        """Drive the batch; comes back when nothing of it runs here any more, with what stopped it, if anything did."""
        self._pool.start()
        try:
            while True:
                with self._turning:
                    broken = self._error or self._pool.error
                    if broken is not None:
                        raise broken
                    if self._over():
                        self._finish()
                        if self._unreadable is not None:
                            raise self._unreadable
                        return self._aborted
                    written = self._write_if_due()
                if not written:
                    self._pool.news.wait(self._until_due())
                    self._pool.news.clear()
        except LeaseLost:
            self._aborted = AbortedBy.LEASE_LOST
            self.stop()
            return self._aborted
        finally:
            self._pool.leave()
            self._run.close()

    # -- the loop --------------------------------------------------------------------------

    def _until_due(self) -> float:
        soonest = self._run.alarms.notify() if self._run.alarms is not None else None
        flush = max(0.0, FLUSH_EVERY - (clock.now() - self._flushed))
        return flush if soonest is None else min(flush, soonest)

    def _write_if_due(self) -> bool:
        self._collect()
        self._stop_if_due()
        due = self._due()
        if due:
            self._flush()
        return due

    def _write_for_the_crew(self) -> bool:
        """The same, called by the thread of a unit that has ended; what it meets is raised in the driver's own."""
        if not self._turning.acquire(blocking=False):
            return False
        try:
            if self._error is None:
                self._write_if_due()
            if self._over():
                self._pool.news.set()
        except BaseException as error:  # noqa: BLE001 - see above
            self._error = error
            self.stop(AbortedBy.LEASE_LOST)
        finally:
            self._turning.release()
        return True

    def _over(self) -> bool:
        if self._run.stopping.is_set():
            return self._pool.idle
        return (self._source.over or self.resting) and not self._in_hand

    def _due(self) -> bool:
        if clock.now() - self._flushed >= FLUSH_EVERY or len(self._unwritten) >= GROUP:
            return True
        return self._room() > 0 and not self._pool.waiting and not self._run.stopping.is_set()

    def _room(self) -> int:
        """How many units may be taken now: a suspect runs alone, and work in doubt is not taken ahead."""
        if self._alone or self._source.over or self.resting:
            return 0
        window = self._plan.jobs if self._plan.in_doubt_if_lost else self._source.window(self._plan.jobs)
        left = window if self._plan.limit is None else self._plan.limit - self._taken
        return min(window - len(self._in_hand), left)

    def _stop_if_due(self) -> None:
        if self._plan.deadline is not None and clock.now() - self._began > self._plan.deadline.total_seconds():
            self.stop(AbortedBy.DEADLINE)
        if self._run.fatal.is_set():
            self.stop(AbortedBy.FATAL)
        if self._plan.limit is not None and self._taken >= self._plan.limit and not self._in_hand:
            self.stop(AbortedBy.LIMIT)

    # -- ends ------------------------------------------------------------------------------

    def _collect(self) -> None:
        for finished in self._pool.take():
            self._alone = False
            end = finished if isinstance(finished, UnitOutcome) else finished.end
            written = not isinstance(finished, UnitOutcome) and finished.written
            row = self._in_hand.pop(finished.key if isinstance(finished, UnitOutcome) else finished.row.key)
            if end is None:
                continue
            if end.state is not UnitState.FAILED and self._breaker.indifferent:
                if not written:
                    self._unwritten.append(end)
            else:
                self._count(row, end, written=written)

    def _count(self, row: UnitRow, end: UnitOutcome, *, written: bool) -> None:
        """An end that the breaker has to know of."""
        failed = end.state is UnitState.FAILED
        if failed and self._aborted in BREAKERS:
            end = _returned(end, row)  # it failed with the others, after all was stopped
        elif self._breaker.count(failed=failed) is not None and failed:
            self._unwritten.append(end)
            self._trip(end)
            return
        self._streak = [*self._streak, end] if failed else []
        if not written:
            self._unwritten.append(end)

    def _trip(self, last: UnitOutcome) -> None:
        """The streak that tripped the breaker goes back: its units wait for the cause to be mended."""
        assert self._breaker.tripped is not None
        self._unwritten = release(self._unwritten, [*self._streak, last])
        self._streak = []
        self.stop(self._breaker.tripped)

    @property
    def _tripped(self) -> AbortedBy | None:
        """The breaker that stopped this run: others must not take what it gives back."""
        return self._aborted if self._aborted in BREAKERS else None

    # -- the ledger ------------------------------------------------------------------------

    def _flush(self) -> None:
        room = 0 if self._run.stopping.is_set() else self._room()
        candidates = self._candidates(room) if room > 0 else None
        room = 0 if self._unreadable is not None else room
        ends, self._unwritten = self._unwritten, []
        ask_for = NextUnits(
            in_hand=[(row.key, row.position) for row in self._in_hand.values()],
            candidates=candidates,
            limit=max(0, room),
            retry_failed=self._plan.retry_failed,
            in_doubt_if_lost=self._plan.in_doubt_if_lost,
            fresh=self._source.fresh and not self._run.unheard,
            abort=self._tripped,
        )
        flushed = self._store.batches.flush(self._opened, ends, ask_for)
        self._flushed = clock.now()
        if room > 0:
            self._source.looked(flushed, in_hand=len(self._in_hand))
        self._begin(flushed.taken)
        self._tell(ends)
        if flushed.stop is not None:
            self._obey(flushed.stop)

    def _candidates(self, room: int) -> Sequence[UnitInFlight] | None:
        """The next keys; if they cannot be read, what runs may end before that is raised."""
        try:
            return self._source.candidates(room)
        except Exception as error:  # noqa: BLE001 - whatever the user's own iterator raises
            self._unreadable = error
            self.stop(AbortedBy.FATAL)
            return None

    def _obey(self, why: AbortedBy) -> None:
        """A person wants it, or another holder has tripped its breaker: then this one's failures wait as well."""
        if why in BREAKERS:
            self._unwritten = release(self._unwritten, self._streak)
            self._streak = []
        self.stop(why)

    def _begin(self, taken: list[UnitRow]) -> None:
        self._taken += len(taken)
        self._alone = len(taken) == 1 and taken[0].poison_suspect  # a suspect is never taken with others
        self._in_hand.update({row.key: row for row in taken})
        self._pool.add(taken)

    def _finish(self) -> None:
        self._collect()
        self._in_hand.clear()
        ends, self._unwritten = self._unwritten, []
        self._store.batches.flush(self._opened, ends, NextUnits(abort=self._tripped))
        self._tell(ends)

    def _tell(self, ends: Sequence[UnitOutcome]) -> None:
        """What went back to pending, when a breaker tripped, is no end."""
        if ends:
            is_whole = self._aborted not in BREAKERS
            self._told(ends if is_whole else [end for end in ends if end.state is not UnitState.PENDING])


class DriverHeartbeat:
    """Renews the lease of a foreground run's own job."""

    name = "pulse"

    def __init__(self, store: Store, opened: BatchRun, run: UnitRunner, *, lost: Callable[[], Any]) -> None:
        self.bell = threading.Event()
        self._store = store
        self._opened = opened
        self._run = run
        self._lost = lost

    def tick(self) -> TickResult:
        sent = clock.now()
        try:
            if self._store.leases.renew([self._opened.lease]):
                self._run.date(sent)
            else:
                self._lost()
        except StoreUnavailable:
            return TickResult(1.0)  # the flush that meets a lost lease is refused
        return TickResult(HEARTBEAT)


def release(unwritten: Sequence[UnitOutcome], streak: Sequence[UnitOutcome]) -> list[UnitOutcome]:
    """The ends to write when a *streak* of failures goes back: those that are in the ledger already are taken back."""
    keys = {end.key for end in streak}
    fresh = {end.key for end in unwritten}
    ends = [_returned(end, None) if end.key in keys else end for end in unwritten]
    written = [end for end in streak if end.key not in fresh]
    return ends + [structs.replace(_returned(end, None), before=UnitState.FAILED) for end in written]


def _returned(end: UnitOutcome, row: UnitRow | None) -> UnitOutcome:
    """The same unit, pending again, as if it had not been tried."""
    attempts = max(0, end.attempts - 1) if row is None else row.attempts
    return structs.replace(end, state=UnitState.PENDING, attempts=attempts, label=None, warning=None, data=None)
