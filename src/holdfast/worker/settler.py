"""The settler: outcomes are written in groups, without anybody waiting for them."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from holdfast.domain.jobs.job import JobId, Lease
from holdfast.domain.jobs.verdict import Failed
from holdfast.errors import HoldfastError, InvalidInput, JobLocked
from holdfast.store import Store
from holdfast.store.jobs.settlement import Settlement
from holdfast.worker import clock
from holdfast.worker.active_runs import ActiveRuns
from holdfast.worker.service import TickResult

log = logging.getLogger("holdfast")

GROUP = 1000
#: A settlement waits so long for company, in seconds, unless there is enough of it.
COMPANY = 0.002
ENOUGH = 200
IDLE = 60.0
#: A job whose row somebody has locked is settled so many seconds later.
LOCKED = 5.0


class Settler:
    """Collects settlements and writes them in groups of at most a thousand."""

    name = "settler"

    def __init__(
        self, store: Store, held: ActiveRuns, *, settled: Callable[[list[Settlement], set[JobId]], None]
    ) -> None:
        self.bell = threading.Event()
        self._store = store
        self._held = held
        self._settled = settled
        self._waiting: deque[Settlement] = deque()
        self._unbegun: deque[Lease] = deque()
        self._aside: deque[tuple[float, Settlement]] = deque()
        self._pause = threading.Event()

    def put(self, settlement: Settlement) -> None:
        """Hand a settlement over; it is written soon."""
        self._waiting.append(settlement)
        if not self.bell.is_set():
            self.bell.set()

    def tick(self) -> TickResult:
        """Write one group. What could not be written is tried again: it is safe to write it twice."""
        if self._unbegun:
            self._release()
        while self._aside and self._aside[0][0] <= clock.now():
            self._waiting.append(self._aside.popleft()[1])
        if 0 < len(self._waiting) < ENOUGH:
            self._pause.wait(COMPANY)
        group: list[Settlement] = []
        while self._waiting and len(group) < GROUP:
            group.append(self._waiting.popleft())
        if group:
            self._write(group)
        rest = LOCKED if self._aside else IDLE
        return TickResult(0.0 if self._waiting else rest, considered=len(group), processed=len(group))

    def release(self, leases: list[Lease]) -> None:
        """Return unbegun jobs to the store, soon."""
        self._unbegun.extend(leases)
        self.bell.set()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._unbegun) + len(self._aside)

    def _release(self) -> None:
        leases = [self._unbegun.popleft() for _ in range(len(self._unbegun))]
        try:
            self._store.leases.release(leases)
        except Exception:
            self._unbegun.extendleft(reversed(leases))
            raise
        self._held.drop(leases)

    def _write(self, group: list[Settlement]) -> None:
        try:
            lost = self._store.leases.settle_many(group)
        except (InvalidInput, JobLocked) as error:
            if len(group) > 1:
                for settlement in group:  # one of them cannot be kept: the others must not wait for it
                    self._write([settlement])
                return
            if isinstance(error, JobLocked):
                self._aside.append((clock.now() + LOCKED, group[0]))
                return
            lost = self._write_refusal(group[0], error)
        except Exception:
            self._waiting.extendleft(reversed(group))
            raise
        self._held.drop([settlement.lease for settlement in group])
        self._settled(group, lost)

    def _write_refusal(self, settlement: Settlement, error: HoldfastError) -> set[JobId]:
        log.error("the outcome of job %d cannot be kept: %s", settlement.lease.job_id, error)
        failed = Failed(error=f"its outcome cannot be kept: {error}")
        return self._store.leases.settle_many([Settlement(settlement.lease, failed, settlement.ran)])
