"""The settler: writes the outcomes of runs in groups."""

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

MAX_GROUP = 1000
#: A settlement waits this long for others to join its group, unless the group is large enough.
BATCH_WINDOW_S = 0.002
LARGE_GROUP = 200
IDLE_INTERVAL_S = 60.0
#: Delay before a job whose row is locked by another transaction is settled again.
LOCKED_RETRY_S = 5.0
#: Longest duration of :meth:`Settler.flush`, and the interval between the ticks that it forces.
FLUSH_TIMEOUT_S, FLUSH_INTERVAL_S = 5.0, 0.1


class Settler:
    """Collects settlements and writes them in groups of at most :data:`MAX_GROUP`."""

    name = "settler"

    def __init__(
        self, store: Store, active_runs: ActiveRuns, *, settled: Callable[[list[Settlement], set[JobId]], None]
    ) -> None:
        self.wake = threading.Event()
        self._store = store
        self._active_runs = active_runs
        self._settled = settled
        self._waiting: deque[Settlement] = deque()
        self._unbegun: deque[Lease] = deque()
        #: Settlements whose job was locked, with the time of their next try.
        self._postponed: deque[tuple[float, Settlement]] = deque()

    def put(self, settlement: Settlement) -> None:
        """Queue a settlement; the next tick writes it."""
        self._waiting.append(settlement)
        if not self.wake.is_set():
            self.wake.set()

    def tick(self) -> TickResult:
        """Write one group. A group that fails is retried: writing a settlement twice is harmless."""
        if self._unbegun:
            self._release()
        while self._postponed and self._postponed[0][0] <= clock.now():
            self._waiting.append(self._postponed.popleft()[1])
        if 0 < len(self._waiting) < LARGE_GROUP:
            clock.sleep(BATCH_WINDOW_S)
        group = [self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_GROUP))]
        if group:
            self._write(group)
        self._active_runs.finish_signal.notify()
        idle = LOCKED_RETRY_S if self._postponed else IDLE_INTERVAL_S
        return TickResult(0.0 if self._waiting else idle, considered=len(group), processed=len(group))

    def release(self, leases: list[Lease]) -> None:
        """Queue leases of jobs that have not begun; the next tick returns them to the store."""
        self._unbegun.extend(leases)
        self.wake.set()

    def flush(self) -> None:
        """Wait until everything is written. Leases of jobs that could not be settled in time expire later."""
        deadline = clock.now() + FLUSH_TIMEOUT_S
        signal = self._active_runs.finish_signal
        while len(self) and clock.now() < deadline:
            self.wake.set()
            signal.wait_for(lambda: not len(self), deadline=min(deadline, clock.now() + FLUSH_INTERVAL_S))

    def __len__(self) -> int:
        return len(self._waiting) + len(self._unbegun) + len(self._postponed)

    def _release(self) -> None:
        leases = [self._unbegun.popleft() for _ in range(len(self._unbegun))]
        try:
            self._store.leases.release(leases)
        except Exception:
            self._unbegun.extendleft(reversed(leases))
            raise
        self._active_runs.discard(leases)

    def _write(self, group: list[Settlement]) -> None:
        try:
            lost = self._store.leases.settle_many(group)
        except (InvalidInput, JobLocked) as error:
            if len(group) > 1:
                for settlement in group:  # only the one that cannot be written is held up
                    self._write([settlement])
                return
            if isinstance(error, JobLocked):
                self._postponed.append((clock.now() + LOCKED_RETRY_S, group[0]))
                return
            lost = self._write_refusal(group[0], error)
        except Exception:
            self._waiting.extendleft(reversed(group))
            raise
        self._active_runs.discard([settlement.lease for settlement in group])
        self._settled(group, lost)

    def _write_refusal(self, settlement: Settlement, error: HoldfastError) -> set[JobId]:
        log.error("the outcome of job %d cannot be kept: %s", settlement.lease.job_id, error)
        failed = Failed(error=f"its outcome cannot be kept: {error}")
        return self._store.leases.settle_many([Settlement(settlement.lease, failed, settlement.ran)])
