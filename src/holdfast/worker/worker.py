"""The worker: wires its services and executors together, starts them, and works until it is stopped."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from collections.abc import Mapping
from typing import Any, Self

from holdfast.domain.commands.command import COMMAND
from holdfast.domain.jobs.job import State, WorkerId
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.kind_options import ExecutorName
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import ConfigurationError, StoreBusy, StoreUnavailable
from holdfast.store import Store
from holdfast.store.engine.backend import Listener, StoreClosed
from holdfast.worker.autoscaler.autoscaler import Autoscaler
from holdfast.worker.claims.claimer import Claimer
from holdfast.worker.commands.identity import CHILD_VARIABLE
from holdfast.worker.commands.lifeline import own_life
from holdfast.worker.context import MakeRequest
from holdfast.worker.executors.pool import ExecutorPool
from holdfast.worker.executors.processes import module_of
from holdfast.worker.health import WorkerHealth
from holdfast.worker.heartbeat import Heartbeat, RemoteControl
from holdfast.worker.maintenance import Maintenance
from holdfast.worker.name_check import ApplicationCode, NameCheck
from holdfast.worker.options import WorkerOptions, WorkerSetup
from holdfast.worker.run_lifecycle import RunLifecycle, try_write
from holdfast.worker.schedules.planner import Planner
from holdfast.worker.schedules.scopes import Provider, ScopeProviders
from holdfast.worker.served_lanes import ServedLanes
from holdfast.worker.service import ServiceThread, TickResult, stop_threads
from holdfast.worker.shortage import warn_if_low
from holdfast.worker.shutdown import HELPER_TIMEOUT_S, Shutdown
from holdfast.worker.watchdog import Watchdog
from holdfast.worker.worker_services import Services

log = logging.getLogger("holdfast")

NO_CODE = ApplicationCode()

#: A worker that drains polls whether all jobs have finished, also those of other workers: no event reports it. The
#: interval doubles up to the second value.
MIN_DRAIN_INTERVAL_S, DRAIN_INTERVAL_S = 0.005, 0.1


class Worker:
    """Runs jobs in this process. :meth:`run` works until :meth:`stop` is called."""

    def __init__(
        self,
        store: Store,
        kinds: Mapping[str, Kind],
        *,
        options: WorkerOptions,
        request: MakeRequest,
        providers: Mapping[str, Provider] | None = None,
        code: ApplicationCode = NO_CODE,
    ) -> None:
        self.id = WorkerId(f"{socket.gethostname()[:40]}-{secrets.token_hex(8)}")
        self.queues = list(options.queues)
        for kind in kinds.values():
            if kind.executor is ExecutorName.PROCESS:
                module_of(kind)  # raises if no child could import it
        self.served = ServedLanes(kinds, options.queues, version=options.version)
        setup = WorkerSetup(store, self.id, self.served, options)
        self._name_check = NameCheck(store, self.id, self.served, code)
        self._store, self._options = store, options
        self._stopping, self._started = threading.Event(), threading.Lock()
        self._remote_control = RemoteControl(self.stop)
        self._thread: threading.Thread | None = None
        self._autoscaler: Autoscaler | None = None
        if COMMAND in kinds:
            # The services are made later.
            self._autoscaler = Autoscaler(setup, changed=lambda: self.services.claimer.service.on_notify())  # noqa: PLW0108
        self._lifecycle = RunLifecycle(setup, request=request, leaving=self._stopping, autoscaler=self._autoscaler)
        self.counts = self._lifecycle.counts
        self._active_runs = self._lifecycle.active_runs
        self._pool = ExecutorPool(setup, self._lifecycle)
        self.services = self._make_services(setup, ScopeProviders({} if providers is None else providers))
        self._shutdown = Shutdown(setup, self._pool, self._lifecycle, self.services)
        self.health = WorkerHealth(
            self.services, self._pool, remote_control=self._remote_control, options=options, stopping=self._stopping
        )

    def _make_services(self, setup: WorkerSetup, providers: ScopeProviders) -> Services:
        store, options, counts = setup.store, setup.options, self.counts
        lifecycle, remote = self._lifecycle, self._remote_control
        interval = min(options.heartbeat, setup.served.beat_interval)
        runs, lost = self._active_runs, lifecycle.lost
        heartbeat = Heartbeat(
            store.reserved_store(), self.id, runs, interval=interval, lost=lost, on_request=remote.apply
        )
        watchdog = Watchdog(self._active_runs, worker=self.id, on_long_run=heartbeat.on_long_run)

        def paused() -> bool:
            return watchdog.fenced or remote.quiet or lifecycle.shortage.reason is not None

        claimer = Claimer(setup, self._pool, poll_interval=self._poll_interval, paused=paused)
        maintenance = Maintenance(
            store,
            heartbeat=interval,
            retention=options.retention,
            logs=options.logs,
            maintained=counts.maintained,
            check_names=self._name_check.check,
        )
        lifecycle.slot_freed, lifecycle.settled = claimer.slot_freed, claimer.settled
        planner = Planner(store, providers, counts=counts) if options.plans else None
        helpers = [helper for helper in (maintenance, planner, self._autoscaler) if helper is not None]
        return Services(
            served=setup.served,
            claimer=ServiceThread(claimer, on_tick=counts.ticked),
            watchdog=ServiceThread(watchdog, on_tick=counts.ticked),
            heartbeat=ServiceThread(heartbeat, on_tick=counts.ticked),
            settler=ServiceThread(lifecycle.settler, on_tick=counts.ticked),
            helpers=[ServiceThread(helper, on_tick=counts.ticked) for helper in helpers],
        )

    def run(self, *, exits: bool = False) -> None:
        """Work until :meth:`stop` is called, or until no job is left to drain; then wind down.

        A second call does nothing, and neither does any call where ``HOLDFAST_WORKER`` is ``off``.

        *exits*: the process ends afterwards, and jobs of threads that outlast the grace period are released.
        Otherwise their leases are renewed until they finish.

        Raises:
            ConfigurationError: It drains, and has failed five times in a row to start a job for lack of a resource.
            StoreUnavailable: Its connections were closed under it. :meth:`Holdfast.close` leaves them open.
        """
        if os.environ.get("HOLDFAST_WORKER") == "off":
            log.info("HOLDFAST_WORKER is off: this process runs no jobs")
            return
        if os.environ.get(CHILD_VARIABLE):
            hint = 'Put what starts it behind if __name__ == "__main__": children load the program too.'
            raise ConfigurationError("a child process must not start a worker", hint=hint)
        if not self._started.acquire(blocking=False):
            return
        self.health.started = True
        self._store.hold(self.id)  # until the last handler has finished, also if the application is closed meanwhile
        try:
            self._announce()
            listener = self._start_services()
        except BaseException:
            self._store.release(self.id)
            raise
        gives_up = self._work()
        self._stopping.set()
        listener.close()
        if closed := self._store.backend.closed:
            log.error("the store was closed under this worker: it ends, and its jobs wait until their leases expire")
        self._shutdown.wind_down(exits=exits)
        if closed:
            raise StoreClosed("the store was closed under this worker")
        if gives_up:
            raise self._lifecycle.shortage.lasting_error()

    def _start_services(self) -> Listener:
        """Start the threads. If one cannot start, none stays: a worker that ticks but does not claim seems alive."""
        threads = [*self.services.keepers, *self.services.helpers]
        try:
            for thread in threads:
                thread.start()
            self.health.listener = self._store.backend.listen(self.services.on_notify)
        except BaseException:
            stop_threads(threads, HELPER_TIMEOUT_S)
            try_write(lambda: self._store.workers.record_stop(self.id))
            raise
        return self.health.listener

    def _announce(self) -> None:
        """Make the worker known, before its first claim."""
        slots = self._options.slots if self.kinds else None
        lanes: dict[str, Any] = {"queues": self.queues, "kinds": self.kinds, "build": self.served.build}
        lanes["names"] = self._name_check.names
        life = own_life()
        self._store.workers.announce(
            self.id,
            host=socket.gethostname(),
            pid=os.getpid(),
            process=None if life is None else life.encode(),
            version=self._options.version,
            slots=slots,
            **lanes,
        )
        if self._autoscaler is not None:
            self._autoscaler.refresh()
        warn_if_low(slots or 0)

    @property
    def kinds(self) -> list[str]:
        """The names of the kinds that it runs."""
        return sorted(self.served.kinds)

    def serve(self, kind: Kind) -> None:
        """Run jobs of one more kind, from now on."""
        if kind.executor is ExecutorName.PROCESS and self.health.started:
            log.warning("kind %r runs in child processes: this worker serves it after a restart", kind.name)
            return
        self.served.add(kind)
        self.services.heartbeat.service.keep(self.served.beat_interval)
        if self.health.started:
            self._store.workers.update_kinds(self.id, kinds=self.kinds, build=self.served.build)
        self.services.claimer.service.on_notify()

    def start(self) -> None:
        """Call :meth:`run` in a thread, as ``with app.worker():`` does; a second start does nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self.run, name="holdfast-worker", daemon=True)
            self._thread.start()

    def join(self, timeout: float | None = None) -> None:
        """Wait until a started worker has wound down. A process that exits earlier loses its active runs."""
        if self._thread is not None:
            self._thread.join(timeout)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.join()

    def stop(self) -> None:
        """Stop claiming, and let active runs finish within the grace period; idempotent."""
        self._stopping.set()
        self.services.claimer.service.wake.set()

    def abandon(self) -> None:
        """Kill child processes and release all jobs at once; for a process that exits right after."""
        self.stop()
        self._shutdown.abandon()

    def tick(self) -> TickResult:
        """Maintain, plan, claim, run and settle once, without threads of services; for tests and tools."""
        helped = [thread.tick() for thread in self.services.helpers]
        claimed = self.services.claimer.tick()
        self.services.watchdog.tick()
        self._pool.wait_idle(float("inf"))
        return sum(helped, start=claimed + self.services.settler.tick())

    @property
    def running(self) -> int:
        return self._pool.running

    @property
    def working(self) -> bool:
        """Whether a started worker has not wound down yet."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def alive(self) -> bool:
        """Whether all services tick. A worker without its store is alive; one that hangs is not."""
        return self.health.not_alive() is None

    @property
    def ready(self) -> bool:
        """Whether it can claim jobs; ``health.not_ready()`` returns the reason why not."""
        return self.health.not_ready() is None

    def _work(self) -> bool:
        """Claim until a stop is requested or a drain ends; returns whether it cannot start the jobs that are left."""
        wake, interval = self.services.claimer.service.wake, MIN_DRAIN_INTERVAL_S
        while not (self._stopping.is_set() or self._store.backend.closed):
            tick = self.services.claimer.tick()
            next_in = tick.next_in
            if self._options.drain and next_in > 0:
                if self._drained():
                    return False
                if self._lifecycle.shortage.lasts and not self._pool.running:
                    return True
                interval = MIN_DRAIN_INTERVAL_S if tick.processed else min(2 * interval, DRAIN_INTERVAL_S)
                next_in = min(next_in, interval)
            if next_in > 0:
                wake.wait(next_in)
            wake.clear()
        return False

    def _poll_interval(self) -> float:
        """Where every enqueue notifies, polling is only a fallback."""
        return self._options.poll * (2 if self.health.listener is not None and self.health.listener.hears_all else 1)

    def _drained(self) -> bool:
        """No job of the known kinds is ready, running or interrupted, but for commands that can never begin here.

        False while the store does not answer: the next tick checks again.
        """
        if self._pool.waiting or self._pool.running or len(self._lifecycle.settler) or len(self._active_runs):
            return False
        stuck = 0 if self._autoscaler is None else self._autoscaler.stuck
        interrupted = Selector(ids=self._lifecycle.interrupted_once, states=(State.SCHEDULED,))
        try:
            if interrupted.ids and self._store.views.count(interrupted, cap=1).count:
                return False
            drained = not self._store.leases.any_unfinished(self.queues, self.kinds, except_for=stuck)
        except (StoreUnavailable, StoreBusy) as error:
            log.warning("reading the store failed: %s", error)
            return False
        if drained and stuck:
            log.warning("%d commands can never start on this host; see holdfast why", stuck)
        return drained
