"""The health of a worker: whether its services work, and whether it can claim jobs."""

from __future__ import annotations

import threading
from typing import Any

from holdfast.store.engine.backend import Listener
from holdfast.worker import clock
from holdfast.worker.executors.pool import ExecutorPool
from holdfast.worker.heartbeat import RemoteControl
from holdfast.worker.options import WorkerOptions
from holdfast.worker.service import ServiceThread
from holdfast.worker.worker_services import Services

#: A service that has not ticked for this long hangs.
HANGS_AFTER_S = 180.0
#: A claim that takes longer is not ready, nor is a worker whose last claim is older than this and two polls.
CLAIM_TIMEOUT_S = 10.0
#: The longest interval between two ticks of a planner.
PLAN_INTERVAL_S = 60.0


class WorkerHealth:
    """Reads the services of a worker; it changes nothing, and never waits."""

    def __init__(
        self,
        services: Services,
        pool: ExecutorPool,
        *,
        remote_control: RemoteControl,
        options: WorkerOptions,
        stopping: threading.Event,
    ) -> None:
        self.started = False
        #: Set when the worker begins to listen.
        self.listener: Listener | None = None
        #: 0 for a worker that only plans.
        self.slots = options.slots if options.queues else 0
        self.version = options.version
        self._services = [*services.keepers, *services.helpers]
        self._heartbeat = services.heartbeat.service
        self._watchdog = services.watchdog.service
        #: The service that makes the worker useful, and the longest interval between two of its ticks, in seconds.
        self._claimer: ServiceThread[Any] = services.claimer
        self._claim_interval = 2 * options.poll
        if not options.queues:  # it only plans
            self._claimer, self._claim_interval = services.helpers[-1], PLAN_INTERVAL_S
        self._pool = pool
        self._remote_control = remote_control
        self._stopping = stopping
        self._heartbeat_interval = options.heartbeat

    @property
    def heartbeat_age(self) -> float:
        """Seconds since the last heartbeat that reached the store."""
        return clock.now() - self._heartbeat.last_beat_at

    @property
    def is_notified(self) -> bool:
        """Whether notifications of new jobs arrive; otherwise only polling discovers them."""
        return self.listener is not None and self.listener.works

    def oldest_runs(self) -> dict[tuple[str, ...], float]:
        """Seconds since the oldest run of each lane began, by queue and kind."""
        now, oldest = clock.now(), dict[tuple[str, ...], float]()
        for run in self._pool.lifecycle.active_runs.all():
            if (seconds := run.under_way_for(now)) > 0:
                lane = (run.lease.queue, run.lease.kind)
                oldest[lane] = max(oldest.get(lane, 0.0), seconds)
        return oldest

    def tick_ages(self) -> dict[str, float]:
        """Seconds since the last tick of each service that has not stopped."""
        threads = (thread for thread in (self._claimer, *self._services) if not thread.stopped)
        return {thread.service.name: thread.seconds_since_tick for thread in threads}

    def not_alive(self) -> str | None:
        """Why the process should be replaced; None if it works. A worker without its store is alive."""
        if not self._pool.alive:
            return "the event loop of coroutines has stopped"
        for thread in self._services:
            if not thread.stopped and thread.seconds_since_tick >= HANGS_AFTER_S:
                return f"the {thread.service.name} hangs"
        return None

    def not_ready(self) -> str | None:
        """Why the worker cannot claim jobs now; None if it can."""
        if not self.started:
            return "it has not started"
        if self._stopping.is_set():
            return "it is stopping"
        if self._remote_control.quiet:
            return "a request stops its claims"
        return self.not_alive() or self._shortcoming() or self._failure()

    def _shortcoming(self) -> str | None:
        """Why this process cannot claim, although the store may answer."""
        if self._watchdog.fenced:
            return "a lease could not be renewed in time"
        return self._pool.lifecycle.shortage.reason

    def _failure(self) -> str | None:
        """Why the store does not answer."""
        if self._claimer.error is not None:
            return f"the {self._claimer.service.name} fails: {self._claimer.error}"
        if self._claimer.seconds_since_tick >= CLAIM_TIMEOUT_S + self._claim_interval:
            return f"the {self._claimer.service.name} waits for the store"
        if self.heartbeat_age >= max(3 * self._heartbeat_interval, 1.0):
            return f"no heartbeat has reached the store for {self.heartbeat_age:.0f} s"
        return None
