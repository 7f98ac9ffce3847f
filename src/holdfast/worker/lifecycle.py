"""The lifecycle of a run: its context, its end, the loss of its lease, its settlement."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime

from holdfast.domain.commands.command import COMMAND
from holdfast.domain.jobs.job import JobId, Lease
from holdfast.domain.jobs.verdict import Failed, Lost
from holdfast.errors import HoldfastError, InvalidInput, JobLocked
from holdfast.store import Store
from holdfast.store.jobs.settlement import Settlement
from holdfast.worker import clock
from holdfast.worker.active_runs import ActiveRuns, Run
from holdfast.worker.autoscaler.autoscaler import Autoscaler
from holdfast.worker.context import MakeRequest, Reporter, RunContext, SendMessage
from holdfast.worker.handler import RESULTS, first_line
from holdfast.worker.options import WorkerSetup
from holdfast.worker.service import TickResult
from holdfast.worker.stats import RunTimes, Stats

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


log = logging.getLogger("holdfast")


class RunLifecycle:
    """Follows runs from their first call to their settlement, and keeps the worker's counts."""

    def __init__(
        self, setup: WorkerSetup, *, request: MakeRequest, leaving: threading.Event, autoscaler: Autoscaler | None
    ) -> None:
        self.counts = Stats()
        self.run_times = RunTimes()
        self.active_runs = ActiveRuns()
        self.finish_signal = self.active_runs.finish_signal
        self.settler = Settler(setup.store, self.active_runs, settled=self._settled)
        #: Called after each run, when its settlement is queued.
        self.slot_freed: Callable[[], None] = lambda: None
        self._store, self._worker, self._kinds = setup.store, setup.worker, setup.kinds
        self._request = request
        self._leaving = leaving
        self.autoscaler = autoscaler

    def context(self, run: Run) -> RunContext:
        send = self.reporter(run)
        return RunContext(run, send, self._worker, self._request, leaving=self._leaving, counts=self.counts)

    def reporter(self, run: Run) -> SendMessage:
        """The function that carries messages of the handler to the store."""
        return Reporter(run, self._store, enqueued=self._enqueued).answer

    def finished(self, run: Run, settlement: Settlement) -> None:
        """Learn from a finished run and queue its settlement; executors call it in their own threads."""
        if settlement.ran is not None:
            self.run_times.learn(run.kind.name, settlement.ran.total_seconds())
        if run.measured and self.autoscaler is not None:
            self.autoscaler.finished(run, settlement.outcome)
        self.settler.put(settlement)
        self.slot_freed()

    def lost(self, run: Run) -> None:
        """The lease is gone; the store will refuse the outcome."""
        log.warning("the lease on job %d was lost; its handler is told to stop", run.lease.job_id)
        self.counts.lost += 1

    def _enqueued(self) -> None:
        self.counts.enqueued += 1

    def _settled(self, settlements: list[Settlement], lost: set[JobId]) -> None:
        now = datetime.now(UTC)
        for settlement in settlements:
            lease = settlement.lease
            if lease.job_id in lost:
                self.counts.refused += 1
                continue
            self.counts.completed[lease.queue, lease.kind, RESULTS[type(settlement.outcome)]] += 1
            if isinstance(settlement.outcome, Failed | Lost):
                self._failed(lease, settlement.outcome)
            if settlement.ran is not None:
                ran = settlement.ran.total_seconds()
                self.counts.runs.add((lease.queue, lease.kind), ran)
                waited = (now - lease.due_at).total_seconds() - ran if lease.due_at else 0.0
                self.counts.waits.add((lease.queue, lease.kind), max(0.0, waited))

    def _failed(self, lease: Lease, outcome: Failed | Lost) -> None:
        fields = {"job": lease.job_id, "kind": lease.kind, "attempt": lease.attempt, "token": lease.token}
        first = first_line(lease, outcome, self._kinds.get(lease.kind))
        log.warning("a run failed (%s): %s", outcome.reason, first, extra={**fields, "worker": self._worker})
        if lease.kind == COMMAND and "pause_queue" in lease.payload:
            from holdfast.worker.commands.executor import pause_after

            try_write(lambda: pause_after(self._store, lease))


def try_write(write: Callable[[], object]) -> None:
    """Write to the store; a failure is logged, not raised."""
    try:
        write()
    except HoldfastError as error:
        log.warning("the store could not be told: %s", error)
