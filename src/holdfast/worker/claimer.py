"""The claimer: it takes as much work as there is room for, and gives back what it cannot begin."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Protocol

from holdfast.domain.commands.command import COMMAND
from holdfast.domain.jobs.job import JobId, Lease, OnLost, WorkerId
from holdfast.domain.jobs.kind import Kind
from holdfast.errors import StoreUnavailable
from holdfast.store import Store
from holdfast.worker import clock
from holdfast.worker.active_runs import Run
from holdfast.worker.run_times import RunTimes
from holdfast.worker.service import TickResult

#: What was fetched ahead and not begun for so long, in seconds, is given back: others may be idle.
STALE = 0.5
#: While plain jobs wait here, a marked one is looked for so seldom, in seconds.
MARKED_EVERY = 1.0
FIRST_REST = 0.02


class ClaimRoom(Protocol):
    """The executors as the claimer sees them."""

    @property
    def waiting(self) -> int: ...

    @property
    def running(self) -> int: ...

    def begin(self, runs: list[Run]) -> None: ...

    def release(self, *, claimed_before: float) -> int: ...

    @property
    def poison_suspects(self) -> int: ...

    def long_runs(self, run_times: RunTimes) -> int: ...

    def known(self) -> list[JobId]: ...


class Scaler(Protocol):
    """The autoscaler as the claimer sees it."""

    @property
    def queues(self) -> Collection[str]: ...

    def admit(self, *, poison_suspects: int) -> Run | None: ...


class Claimer:
    """Claims short jobs ahead, in groups, and long ones only for free slots.

    With nothing to do it looks again after 20 ms, then after longer and longer rests, up to *poll*.
    """

    name = "claimer"

    def __init__(
        self,
        store: Store,
        worker: WorkerId,
        kinds: Mapping[str, Kind],
        room: ClaimRoom,
        *,
        queues: Sequence[str],
        slots: int,
        poll: Callable[[], float],
        fenced: Callable[[], bool],
        scaler: Scaler | None = None,
        dress: Callable[[Run], None] = lambda _: None,
    ) -> None:
        self.bell = threading.Event()
        self.run_times = RunTimes()
        self._store = store
        self._worker = worker
        self._kinds = kinds
        self._room = room
        self._queues = list(queues)
        self._slots = slots
        self._poll = poll
        self._fenced = fenced
        self._scaler = scaler
        self._dress = dress
        #: The last job that was taken marked though it need not be, and when a marked one was looked for.
        self._marked: JobId | None = None
        self._looked_marked = clock.now()
        self._in_doubt = False
        self._rest = FIRST_REST
        self._turn = False
        self._blocked_until = 0.0
        self._plain = [name for name, kind in kinds.items() if kind.options.on_lost is OnLost.RETRY]

    def tick(self) -> TickResult:
        """Claim what there is room for."""
        self._return_stale()
        if self._fenced():
            return TickResult(0.5)
        if self._in_doubt:
            self._reconcile()
        claimed = self._claim_something() + self._admit()
        if claimed:
            self._rest = FIRST_REST
            return TickResult(0.0, considered=claimed, processed=claimed)
        if self._room.waiting:
            return TickResult(STALE)
        poll = self._poll()
        self._rest = min(self._rest * 2, poll)
        return TickResult(min(self._rest, poll) * random.uniform(0.8, 1.0))

    def rung(self) -> None:
        """Something may have changed: look now, and again soon."""
        self._rest = FIRST_REST
        self.bell.set()

    def _claim_something(self) -> int:
        """Plain jobs and suspects. With nothing to do, one statement a time is enough: they take turns."""
        if self._rest <= FIRST_REST:
            return self._claim_plain() or self._claim_marked()
        self._turn = not self._turn
        return self._claim_plain() if self._turn and self._plain else self._claim_marked()

    def _claim_plain(self) -> int:
        """Jobs of all kinds, in their order, for the slots that are soon free; then short ones ahead.

        Their starts are marked by the first heartbeat that finds them under way for a while.
        """
        short = [name for name in self._plain if self.run_times.is_short(name)]
        ahead = self.run_times.ahead(short, self._slots) if short and clock.now() >= self._blocked_until else 0
        target = max(ahead, self._slots)
        if self._room.waiting * 2 > target:
            return 0
        claimed = 0
        if len(short) < len(self._plain):
            claimed = self._claim(self._plain, self._slots - self._room.long_runs(self.run_times), mark=False)
        return claimed + self._claim(short, ahead - self._room.waiting, mark=False)

    def _claim_marked(self) -> int:
        """One job of any kind, its start marked: suspects come only so, and only one of them runs here at a time.

        If it kills this worker, it alone pays for that. A plain job may come so too, when it is the first in
        line: it would pay if another killed the worker meanwhile, so this is seldom done beside plain jobs.
        """
        if self._free <= 0 or self._room.poison_suspects or self._marked in self._room.known():
            return 0
        if self._room.waiting and clock.now() - self._looked_marked < MARKED_EVERY:
            return 0
        self._looked_marked = clock.now()
        return self._claim(list(self._kinds), 1, mark=True)

    @property
    def _free(self) -> int:
        return self._slots - self._room.running - self._room.waiting

    def _claim(self, kinds: list[str], limit: int, *, mark: bool) -> int:
        taken = 0
        if limit <= 0 or not kinds:
            return taken
        for queues, lease_duration, group in self._lanes(kinds):
            dated = clock.now()
            leases = self._ask(queues, group, limit - taken, lease_duration, mark=mark)
            self._begin(
                [Run(lease, self._kinds[lease.kind], dated=dated, lease_duration=lease_duration) for lease in leases]
            )
            if mark and leases and self._kinds[leases[0].kind].options.on_lost is OnLost.RETRY:
                self._marked = leases[0].job_id
            taken += len(leases)
            if taken >= limit:
                break
        return taken

    def _lanes(self, kinds: list[str]) -> Iterator[tuple[list[str], timedelta, list[str]]]:
        """What to claim from. Programs of queues that are scaled are the autoscaler's to choose."""
        scaled = () if self._scaler is None else self._scaler.queues
        for lease_duration, group in _by_lease(self._kinds, kinds).items():
            if not scaled or COMMAND not in group:
                yield self._queues, lease_duration, group
                continue
            others = [kind for kind in group if kind != COMMAND]
            free = [queue for queue in self._queues if queue not in scaled]
            if free:
                yield free, lease_duration, group
            if others:
                yield [queue for queue in self._queues if queue in scaled], lease_duration, others

    def _begin(self, runs: list[Run]) -> None:
        for run in runs:
            self._dress(run)
        self._room.begin(runs)

    def _admit(self) -> int:
        """A program that fits, for a slot that is free."""
        if self._scaler is None or not self._scaler.queues or self._free <= 0:
            return 0
        try:
            run = self._scaler.admit(poison_suspects=self._room.poison_suspects)
        except StoreUnavailable:
            self._in_doubt = True
            raise
        self._begin([] if run is None else [run])
        return 0 if run is None else 1

    def _ask(
        self, queues: list[str], kinds: list[str], limit: int, lease_duration: timedelta, *, mark: bool
    ) -> list[Lease]:
        try:
            return self._store.leases.claim(
                self._worker, queues=queues, kinds=kinds, limit=limit, lease_duration=lease_duration, mark=mark
            )
        except StoreUnavailable:
            self._in_doubt = True  # perhaps only the answer was lost
            raise

    def _reconcile(self) -> None:
        """Give back what a claim took whose answer never came. No claim is under way: only this part claims."""
        self._store.leases.release_unknown(self._worker, queues=self._queues, known=self._room.known())
        self._in_doubt = False

    def _return_stale(self) -> None:
        """Jobs behind one that takes long after all go back to where another worker can take them."""
        if self._room.waiting and self._room.release(claimed_before=clock.now() - STALE):
            self._blocked_until = clock.now() + 2 * STALE


def _by_lease(kinds: Mapping[str, Kind], names: list[str]) -> dict[timedelta, list[str]]:
    groups: dict[timedelta, list[str]] = {}
    for name in names:
        groups.setdefault(kinds[name].options.lease, []).append(name)
    return groups
