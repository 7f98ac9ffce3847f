"""The worker: it claims jobs, has them run, and lets them come to their end."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Self

from holdfast.domain.commands.command import COMMAND
from holdfast.domain.jobs.context import Context
from holdfast.domain.jobs.job import JobId, Lease, State, WorkerId
from holdfast.domain.jobs.kind import ExecutorName, Kind
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.verdict import Failed, Lost, Released
from holdfast.errors import ConfigurationError, HoldfastError
from holdfast.store import Store
from holdfast.store.engine.backend import Listener
from holdfast.store.jobs.settlement import Settlement
from holdfast.worker import clock
from holdfast.worker.active_runs import ActiveRuns, Run, StopReason
from holdfast.worker.autoscaler.autoscaler import Autoscaler
from holdfast.worker.claimer import Claimer
from holdfast.worker.commands.child_marks import MARK
from holdfast.worker.context import MakeRequest, RunContext, Tell
from holdfast.worker.executors.factory import ExecutorFactory
from holdfast.worker.executors.pool import ExecutorPool
from holdfast.worker.executors.processes import importable
from holdfast.worker.handler import first_line, result_of
from holdfast.worker.heartbeat import Heartbeat, interval_for
from holdfast.worker.maintenance import Maintenance
from holdfast.worker.messages import Reporter
from holdfast.worker.options import WorkerOptions
from holdfast.worker.remote_control import RemoteControl
from holdfast.worker.schedules.planner import Planner
from holdfast.worker.schedules.scopes import Provider, ScopeProviders
from holdfast.worker.service import Service, ServiceThread, TickResult
from holdfast.worker.settler import Settler
from holdfast.worker.stats import Stats
from holdfast.worker.tracing import dresser
from holdfast.worker.watchdog import Watchdog

log = logging.getLogger("holdfast")

#: A part that has not moved for so many seconds hangs.
HANGS = 180.0
#: Handlers are told to stop so many seconds before the end of the grace.
LAST_WORDS = 1.0


class Worker:
    """One process's share of the work. ``run`` works until ``stop`` is called."""

    def __init__(
        self,
        store: Store,
        kinds: Mapping[str, Kind],
        *,
        options: WorkerOptions,
        request: MakeRequest,
        providers: Mapping[str, Provider] | None = None,
    ) -> None:
        self.id = WorkerId(f"{socket.gethostname()[:40]}-{secrets.token_hex(8)}")
        self.counts = Stats()
        self._store = store
        self._kinds = dict(kinds)
        for kind in kinds.values():
            if kind.executor is ExecutorName.PROCESS:
                importable(kind)
        self._options = options
        self._request = request
        self._stopping = threading.Event()
        self._orders = RemoteControl(self.stop)
        self._started = threading.Lock()
        self._thread: threading.Thread | None = None
        self._held = ActiveRuns()
        self._settler = Settler(store, self._held, settled=self._settled)
        maker = ExecutorFactory(
            store, self.id, self._kinds, options, context=self._context, tell=self._tell, finish=self._finish
        )
        self._pool = ExecutorPool(self._held, self._settler, maker.make)
        self._watchdog = Watchdog(self._held)
        interval = interval_for(options.heartbeat, self._kinds.values())
        self._heartbeat = Heartbeat(
            store, self.id, self._held, interval=interval, lost=self._lost, wished=self._orders.hear
        )
        self._sweeper = Maintenance(store, heartbeat=interval, retention=options.retention, swept=self.counts.sweep)
        self._planner = Planner(store, ScopeProviders(providers or {}), counts=self.counts) if options.plans else None
        self._listener: Listener | None = None
        self._autoscaler = self._make_autoscaler() if COMMAND in self._kinds else None
        self._claimer = self._make_claimer()
        self._control = ServiceThread(self._claimer, told=self.counts.ticked)
        helpers: tuple[Service | None, ...] = (self._sweeper, self._planner, self._autoscaler)
        self._helpers = [ServiceThread(part, told=self.counts.ticked) for part in helpers if part is not None]
        #: These go on until the last handler has ended.
        self._keepers = [
            ServiceThread(part, told=self.counts.ticked) for part in (self._watchdog, self._heartbeat, self._settler)
        ]

    # -- life ------------------------------------------------------------------------------

    def run(self, *, exits: bool = False) -> None:
        """Work until :meth:`stop` is called, or, draining, until nothing is left; then wind down.

        A second run does nothing, nor does any where ``HOLDFAST_WORKER`` is ``off``.

        *exits*: the process ends right after. Handlers in threads that do not end within the
        grace then lose their jobs; otherwise their leases are kept until they end by themselves.
        """
        if os.environ.get("HOLDFAST_WORKER") == "off":
            log.info("HOLDFAST_WORKER is off: this process runs no jobs")
            return
        if os.environ.get(MARK):
            raise ConfigurationError(
                "a child process must not start a worker",
                hint='Put what starts it behind if __name__ == "__main__": children load the program too.',
            )
        if not self._started.acquire(blocking=False):
            return
        self._announce()
        if self._autoscaler is not None:
            self._autoscaler.refresh()  # before the first claim
        for thread in (*self._keepers, *self._helpers):
            thread.start()
        self._listener = self._store.backend.listen(self._rung)
        self._work()
        self._listener.close()
        self._wind_down(exits=exits)

    def start(self) -> None:
        """:meth:`run` in a thread, for a program that does other things as well; a second start does nothing.

        ``with app.worker():`` starts it, and at the end stops it and waits.
        """
        if self._thread is not None:
            return
        self._thread = threading.Thread(target=self.run, name="holdfast-worker", daemon=True)
        self._thread.start()

    def join(self, timeout: float | None = None) -> None:
        """Wait until a worker that was started has wound down; a program that ends before loses what runs."""
        if self._thread is not None:
            self._thread.join(timeout)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.join()

    def stop(self) -> None:
        """Claim nothing more, and let what runs end within the grace; idempotent."""
        self._stopping.set()
        self._claimer.bell.set()

    def abandon(self) -> None:
        """Let everything go at once: the process ends with this. What runs in children is killed."""
        self.stop()
        for run in self._held.all():
            run.kill()
        self._release_rest()
        self._try(lambda: self._store.workers.record_stop(self.id))

    def tick(self) -> TickResult:
        """One round by hand, for tests and admin: sweep, plan, claim, run, settle; answers what it did."""
        helped = [thread.tick() for thread in self._helpers]
        claimed = self._control.tick()
        self._keepers[0].tick()
        self._await_runs(float("inf"))
        return sum(helped, start=claimed + self._keepers[2].tick())

    @property
    def queues(self) -> list[str]:
        return list(self._options.queues)

    @property
    def kinds(self) -> list[str]:
        return sorted(self._kinds)

    @property
    def running(self) -> int:
        """How many jobs run here now."""
        return self._pool.running

    @property
    def working(self) -> bool:
        """Whether a worker that was started has not ended yet."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def heartbeat_age(self) -> float:
        """Seconds since the last heartbeat that reached the store."""
        return clock.now() - self._heartbeat.beaten_at

    @property
    def alive(self) -> bool:
        """Whether its parts still move: a worker that cannot reach its store is alive, one that hangs is not."""
        return all(thread.quiet_for < HANGS for thread in (*self._keepers, *self._helpers))

    @property
    def ready(self) -> bool:
        """Whether it claims jobs, and its store answers."""
        return (
            not self._stopping.is_set() and not self._orders.quiet and self.heartbeat_age < 3 * self._options.heartbeat
        )

    def _work(self) -> None:
        while not self._stopping.is_set():
            rest = self._control.tick().rest
            if self._options.drain and rest > 0 and self._drained():
                return
            if rest > 0:
                self._claimer.bell.wait(rest)
            self._claimer.bell.clear()

    def _rung(self) -> None:
        for part in (self._claimer, self._heartbeat, self._sweeper, self._planner, self._autoscaler):
            if part is not None:
                part.rung()

    def _poll(self) -> float:
        """Where every enqueue rings, looking is only the second way to learn of new jobs."""
        return self._options.poll * (2 if self._listener is not None and self._listener.hears_all else 1)

    # -- what runs -------------------------------------------------------------------------

    def _make_claimer(self) -> Claimer:
        return Claimer(
            self._store,
            self.id,
            self._kinds,
            self._pool,
            queues=self._options.queues,
            slots=self._options.slots,
            poll=self._poll,
            fenced=lambda: self._watchdog.fenced or self._orders.quiet,
            scaler=self._autoscaler,
            dress=dresser(self._store),
        )

    def _make_autoscaler(self) -> Autoscaler:
        return Autoscaler(
            self._store,
            self.id,
            self._kinds[COMMAND],
            queues=self._options.queues,
            slots=self._options.slots,
            options=self._options.scaling,
            changed=lambda: self._claimer.rung(),  # noqa: PLW0108 - it is made after this one
        )

    def _context(self, run: Run) -> Context:
        return RunContext(run, self._tell(run), self.id, self._request, leaving=self._stopping, counts=self.counts)

    def _tell(self, run: Run) -> Tell:
        return Reporter(run, self._store, enqueued=self._enqueued).tell

    def _enqueued(self) -> None:
        self.counts.enqueued += 1

    def _finish(self, run: Run, settlement: Settlement) -> None:
        """Called by executors when a run has ended."""
        if settlement.ran is not None:
            self._claimer.run_times.learn(run.kind.name, settlement.ran.total_seconds())
        if run.measured and self._autoscaler is not None:
            self._autoscaler.finished(run, settlement.outcome)
        self._settler.put(settlement)
        if not self._claimer.bell.is_set() and self._pool.waiting < self._options.slots:
            self._claimer.bell.set()

    def _lost(self, run: Run) -> None:
        """The lease is gone; its outcome will be refused."""
        log.warning("the lease on job %d was lost; its handler is told to stop", run.lease.job_id)
        self.counts.lost += 1

    def _settled(self, settlements: list[Settlement], lost: set[JobId]) -> None:
        now = datetime.now(UTC)
        for settlement in settlements:
            lease = settlement.lease
            if lease.job_id in lost:
                self.counts.refused += 1
                continue
            result = result_of(settlement.outcome)
            self.counts.completed[lease.queue, lease.kind, result] += 1
            if isinstance(settlement.outcome, Failed | Lost):
                self._log_failure(lease, settlement.outcome)
                self._after_failure(lease)
            if settlement.ran is not None:
                ran = settlement.ran.total_seconds()
                self.counts.runs.add((lease.queue, lease.kind), ran)
                waited = (now - lease.due_at).total_seconds() - ran if lease.due_at else 0.0
                self.counts.waits.add((lease.queue, lease.kind), max(0.0, waited))

    def _log_failure(self, lease: Lease, outcome: Failed | Lost) -> None:
        facts = {"job": lease.job_id, "kind": lease.kind, "attempt": lease.attempt, "token": lease.token}
        first = first_line(lease, outcome, self._kinds.get(lease.kind))
        log.warning("a run failed (%s): %s", outcome.reason, first, extra={**facts, "worker": self.id})

    def _after_failure(self, lease: Lease) -> None:
        if lease.kind == COMMAND and "pause_queue" in lease.payload:
            from holdfast.worker.commands.executor import pause_after

            self._try(lambda: pause_after(self._store, lease))

    # -- end -------------------------------------------------------------------------------

    def _drained(self) -> bool:
        """Nothing of the known kinds is ready or running, here or elsewhere, but what can never begin here."""
        if self._pool.waiting or self._pool.running or len(self._settler) or len(self._held):
            return False
        left = Selector(queues=self._options.queues, kinds=tuple(self._kinds), states=(State.READY, State.RUNNING))
        stuck = 0 if self._autoscaler is None else self._autoscaler.stuck
        if self._store.views.count(left, cap=stuck + 1).count > stuck:
            return False
        if stuck:
            log.warning("%d programs can never begin on this host; holdfast why tells", stuck)
        return True

    def _wind_down(self, *, exits: bool) -> None:
        for thread in self._helpers:
            thread.stop(timeout=5)
        if self._autoscaler is not None:
            self._try(self._autoscaler.resumed)
        self._pool.release()
        self._flush()
        grace = self._options.grace.total_seconds()
        last_words = min(LAST_WORDS, max(0.2, grace / 4))
        self._await_runs(clock.now() + grace - last_words)
        for run in self._held.all():
            run.stop(StopReason.SHUTDOWN)
        self._await_runs(clock.now() + last_words)
        for run in self._held.all():
            run.kill()
        self._await_runs(clock.now() + LAST_WORDS, killable=True)
        if exits:
            self._close()
            self._release_rest()
        elif self._pool.running:
            log.warning("%d handlers go on; their leases are kept until they end", self._pool.running)
            threading.Thread(target=self._outlast, name="holdfast-last", daemon=True).start()
        else:
            self._close()

    def _outlast(self) -> None:
        """An embedded worker cannot end its threads: it keeps their leases."""
        self._await_runs(float("inf"))
        self._close()

    def _close(self) -> None:
        self._flush()
        self._pool.close()
        for thread in reversed(self._keepers):
            thread.stop(timeout=5)
        self._try(lambda: self._store.workers.record_stop(self.id))

    def _await_runs(self, deadline: float, *, killable: bool = False) -> None:
        wake = threading.Event()
        while clock.now() < deadline and (self._pool.killable if killable else self._pool.running + self._pool.waiting):
            wake.wait(0.01)

    def _flush(self) -> None:
        """Write the last outcomes; what cannot be written within a few seconds is taken over later."""
        deadline = clock.now() + 5
        wake = threading.Event()
        while len(self._settler) and clock.now() < deadline:
            self._settler.bell.set()
            wake.wait(0.01)

    def _release_rest(self) -> None:
        """The last act before the process ends: threads that still run lose their jobs, at no cost."""
        rest = [_released(run.lease) for run in self._held.all()]
        if rest:
            log.warning("%d handlers did not end in time; their jobs are released", len(rest))
            self._try(lambda: self._store.leases.settle_many(rest))

    def _try(self, work: Callable[[], object]) -> None:
        """At the end nothing can be done about a store that is gone: leases lapse by themselves."""
        try:
            work()
        except HoldfastError as error:
            log.warning("the store could not be told: %s", error)

    def _announce(self) -> None:
        self._store.workers.announce(
            self.id,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=list(self._options.queues),
            kinds=sorted(self._kinds),
            version=self._options.version,
            slots=self._options.slots if self._kinds else None,
        )


def _released(lease: Lease) -> Settlement:
    return Settlement(lease, Released(interrupted=True))
