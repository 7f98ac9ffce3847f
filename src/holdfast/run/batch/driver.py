"""The driver of a foreground run: takes units, has them run, writes the ledger, obeys."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import islice
from typing import Any

from msgspec import Struct, structs

from holdfast.domain.batch import AbortedBy, Counters, UnitEnd, UnitKey, UnitState, unit_key
from holdfast.domain.batch import Unit as UnitRow
from holdfast.domain.breaker import Breaker, Limits
from holdfast.domain.job import Wanted
from holdfast.domain.verdict import Done
from holdfast.errors import LeaseLost, StoreUnavailable
from holdfast.run import clock
from holdfast.run.batch.crew import GROUP, Crew
from holdfast.run.batch.unit import Ended, Run
from holdfast.run.part import Mover, Ticked
from holdfast.store import Store
from holdfast.store.holdings import InHand
from holdfast.store.ledger import Next
from holdfast.store.opening import Opened

#: The ledger is written at least so often, in seconds; wishes of people are heard then too.
FLUSH_EVERY = 1.0
#: Keys that are looked at in one go while all of them are over already.
SKIP_AHEAD = 1000
HEARTBEAT = 10.0
_WANTED = {Wanted.PAUSE: AbortedBy.PAUSE, Wanted.CANCEL: AbortedBy.CANCEL}

Told = Callable[[Sequence[UnitEnd]], None]


class Plan(Struct, frozen=True, kw_only=True):
    """How a run is to go."""

    jobs: int = 1
    limits: Limits = Limits()
    deadline: timedelta | None = None
    limit: int | None = None
    retry_failed: bool = True
    doubt: bool = False
    resume_from: UnitKey | None = None


class Outcome(Struct, frozen=True):
    """How a run ended: why it stopped before its end, the counters, and how many keys it met."""

    aborted_by: AbortedBy | None
    counters: Counters
    total: int
    state: str


class Driver:
    """Runs one batch from this process to its end, or until it has to stop."""

    def __init__(
        self, store: Store, opened: Opened, run: Run, plan: Plan, keys: Iterable[Any], *, told: Told = lambda _: None
    ) -> None:
        self._store = store
        self._opened = opened
        self._run = run
        self._plan = plan
        self._told = told
        self._keys = _numbered(keys, plan.resume_from)
        #: A range in the first run of a generation: every key is new, and comes once.
        self._fresh = isinstance(keys, range) and opened.created
        self._next_keys: list[InHand] = []
        self._exhausted = False
        self._met = 0
        self._in_hand: dict[UnitKey, UnitRow] = {}
        self._alone = False
        #: The last keys were all over: more of them are looked at in one go.
        self._skipping = False
        self._taken = 0
        self._breaker = Breaker(plan.limits)
        self._streak: list[UnitEnd] = []
        self._aborted: AbortedBy | None = None
        self._unwritten: list[UnitEnd] = []
        self._began = self._flushed = clock.now()
        self._crew = Crew(run, plan.jobs, Breaker(plan.limits))  # it counts the same ends in the same order
        self._crew.write = self._write_for_the_crew
        self._turning = threading.Lock()
        self._error: BaseException | None = None
        self._pulse = Mover(Pulse(store, opened, self._lost), told=lambda *_: None)

    def stop(self, why: AbortedBy = AbortedBy.SIGNAL) -> None:
        """Begin nothing more; what runs may end. The first reason stays."""
        if self._aborted is None:
            self._aborted = why
        self._run.stopping.set()
        self._crew.news.set()

    def run(self) -> Outcome:
        """Drive the batch; comes back when nothing of it runs here any more."""
        self._pulse.start()
        self._crew.start()
        try:
            while True:
                with self._turning:
                    if self._error is not None:
                        raise self._error
                    if self._over():
                        return self._finish()
                    written = self._write_if_due()
                if not written:
                    self._crew.news.wait(max(0.0, FLUSH_EVERY - (clock.now() - self._flushed)))
                    self._crew.news.clear()
        except LeaseLost:
            self.stop(AbortedBy.LEASE_LOST)
            counted = self._store.batches.counters(self._opened.batch.id)
            return Outcome(AbortedBy.LEASE_LOST, counted, self._met, "running")
        finally:
            self._crew.leave()
            self._pulse.stop(timeout=1)

    # -- the loop --------------------------------------------------------------------------

    def _write_if_due(self) -> bool:
        self._collect()
        self._look_at_the_clock()
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
                self._crew.news.set()
        except BaseException as error:  # noqa: BLE001 - see above
            self._error = error
            self.stop(AbortedBy.LEASE_LOST)
        finally:
            self._turning.release()
        return True

    def _over(self) -> bool:
        if self._run.stopping.is_set():
            return self._crew.idle
        return self._exhausted and not self._next_keys and not self._in_hand

    def _due(self) -> bool:
        if clock.now() - self._flushed >= FLUSH_EVERY or len(self._unwritten) >= GROUP:
            return True
        return self._room() > 0 and not self._crew.waiting and not self._run.stopping.is_set()

    def _room(self) -> int:
        """How many units may be taken now: a suspect runs alone, and work in doubt is not taken ahead."""
        if self._alone or (self._exhausted and not self._next_keys):
            return 0
        window = self._plan.jobs if self._plan.doubt else max(GROUP, 2 * self._plan.jobs)
        left = window if self._plan.limit is None else self._plan.limit - self._taken
        return min(window - len(self._in_hand), left)

    def _look_at_the_clock(self) -> None:
        if self._plan.deadline is not None and clock.now() - self._began > self._plan.deadline.total_seconds():
            self.stop(AbortedBy.DEADLINE)
        if self._run.fatal.is_set():
            self.stop(AbortedBy.FATAL)
        if self._plan.limit is not None and self._taken >= self._plan.limit and not self._in_hand:
            self.stop(AbortedBy.LIMIT)

    # -- ends ------------------------------------------------------------------------------

    def _collect(self) -> None:
        for ended in self._crew.take():
            self._in_hand.pop(ended.row.key, None)
            self._alone = False
            if ended.end is not None:
                self._count(ended, ended.end)

    def _count(self, ended: Ended, end: UnitEnd) -> None:
        if end.state is not UnitState.FAILED and self._breaker.indifferent:
            if not ended.written:
                self._unwritten.append(end)
            return
        failed = end.state is UnitState.FAILED
        if failed and self._breaker.tripped is not None:
            end = _returned(end, ended.row)  # it failed with the others, after all was stopped
        elif self._breaker.count(failed=failed) is not None and failed:
            self._unwritten.append(end)
            self._trip(end)
            return
        self._streak = [*self._streak, end] if failed else []
        if not ended.written:
            self._unwritten.append(end)

    def _trip(self, last: UnitEnd) -> None:
        """The streak that tripped the breaker goes back: its units wait for the cause to be mended."""
        assert self._breaker.tripped is not None
        self._unwritten = give_back(self._unwritten, [*self._streak, last])
        self._streak = []
        self.stop(self._breaker.tripped)

    # -- the ledger ------------------------------------------------------------------------

    def _flush(self) -> None:
        room = 0 if self._run.stopping.is_set() else self._room()
        candidates = self._candidates(room)
        ends, self._unwritten = self._unwritten, []
        ask_for = Next(
            in_hand=[(row.key, row.place) for row in self._in_hand.values()],
            candidates=candidates if room > 0 else None,
            limit=max(0, room),
            retry_failed=self._plan.retry_failed,
            doubt=self._plan.doubt,
            fresh=self._fresh,
        )
        flushed = self._store.batches.flush(self._opened, ends, ask_for)
        self._flushed = clock.now()
        self._next_keys = self._next_keys[flushed.looked :]
        self._skipping = not flushed.taken and flushed.looked > 0
        self._begin(flushed.taken)
        if ends:
            self._told([end for end in ends if end.state is not UnitState.PENDING])
        if flushed.wanted is not None:
            self.stop(_WANTED[flushed.wanted])

    def _candidates(self, room: int) -> list[InHand]:
        """The next keys of the input: as many as there is room for, or more while all of them are over."""
        if room <= 0:
            return []
        wanted = SKIP_AHEAD if self._skipping else room
        if len(self._next_keys) < wanted and not self._exhausted:
            more = list(islice(self._keys, wanted - len(self._next_keys)))
            self._exhausted = len(more) < wanted - len(self._next_keys)
            self._met += len(more)
            self._next_keys += more
        return self._next_keys[:wanted]

    def _begin(self, taken: list[UnitRow]) -> None:
        self._taken += len(taken)
        self._alone = any(row.suspect for row in taken)
        self._in_hand.update((row.key, row) for row in taken)
        self._crew.add(taken)

    def _finish(self) -> Outcome:
        self._collect()
        self._in_hand.clear()
        ends, self._unwritten = self._unwritten, []
        self._store.batches.flush(self._opened, ends)
        self._told([end for end in ends if end.state is not UnitState.PENDING])
        if self._aborted is AbortedBy.CANCEL:
            self._cancel_rest()
        complete = self._exhausted and not self._next_keys and self._plan.resume_from is None
        aborted = self._aborted if self._aborted is not AbortedBy.LIMIT or not complete else None
        total = max(self._met, self._opened.batch.total or 0)
        batch, counted = self._store.batches.end(self._opened, aborted, total, complete=complete)
        self._store.leases.settle(self._opened.lease, Done())
        return Outcome(aborted, counted, batch.total or 0, batch.state)

    def _cancel_rest(self) -> None:
        """Every unit that has not ended becomes cancelled, also those that were never looked at."""
        while self._next_keys or not self._exhausted:
            self._store.batches.plan(self._opened, self._next_keys)
            self._next_keys = list(islice(self._keys, SKIP_AHEAD))
            self._met += len(self._next_keys)
            self._exhausted = not self._next_keys
        self._store.batches.cancel(self._opened.batch.id)

    def _lost(self) -> None:
        self.stop(AbortedBy.LEASE_LOST)


class Pulse:
    """Renews the lease of the run's own job."""

    name = "pulse"

    def __init__(self, store: Store, opened: Opened, lost: Callable[[], None]) -> None:
        self.bell = threading.Event()
        self._store = store
        self._opened = opened
        self._lost = lost

    def tick(self) -> Ticked:
        try:
            if not self._store.leases.renew([self._opened.lease]):
                self._lost()
        except StoreUnavailable:
            return Ticked(1.0)  # the flush that meets a lost lease is refused
        return Ticked(HEARTBEAT)


def _numbered(keys: Iterable[Any], resume_from: UnitKey | None) -> Iterator[InHand]:
    """Keys with their places in the input, from *resume_from* on."""
    waiting = resume_from is not None
    for place, value in enumerate(keys):
        key = unit_key(value)
        waiting = waiting and key != resume_from
        if not waiting:
            yield key, place


def give_back(unwritten: Sequence[UnitEnd], streak: Sequence[UnitEnd]) -> list[UnitEnd]:
    """The ends to write when a *streak* of failures goes back: those that are in the ledger already are taken back."""
    keys = {end.key for end in streak}
    fresh = {end.key for end in unwritten}
    ends = [_returned(end, None) if end.key in keys else end for end in unwritten]
    written = [end for end in streak if end.key not in fresh]
    return ends + [structs.replace(_returned(end, None), before=UnitState.FAILED) for end in written]


def _returned(end: UnitEnd, row: UnitRow | None) -> UnitEnd:
    """The same unit, pending again, as if it had not been tried."""
    attempts = max(0, end.attempts - 1) if row is None else row.attempts
    return structs.replace(end, state=UnitState.PENDING, attempts=attempts, label=None, warning=None, data=None)
