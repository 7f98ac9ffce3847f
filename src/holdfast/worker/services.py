"""The services of one worker, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.domain.jobs.job import WorkerId
from holdfast.domain.jobs.kind import Kind
from holdfast.store import Store
from holdfast.worker.autoscaler.autoscaler import Autoscaler
from holdfast.worker.claimer import Claimer
from holdfast.worker.executors.pool import ExecutorPool
from holdfast.worker.heartbeat import Heartbeat, RemoteControl, interval_for
from holdfast.worker.lifecycle import RunLifecycle
from holdfast.worker.maintenance import Maintenance
from holdfast.worker.options import WorkerOptions
from holdfast.worker.schedules.planner import Planner
from holdfast.worker.service import ServiceThread
from holdfast.worker.settler import Settler
from holdfast.worker.watchdog import Watchdog


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The worker's own thread ticks the claimer; each of the others has a thread."""

    claimer: ServiceThread[Claimer]
    watchdog: ServiceThread[Watchdog]
    heartbeat: ServiceThread[Heartbeat]
    settler: ServiceThread[Settler]
    maintenance: ServiceThread[Maintenance]
    planner: ServiceThread[Planner] | None
    autoscaler: ServiceThread[Autoscaler] | None

    def keepers(self) -> tuple[ServiceThread[Any], ...]:
        """The services that keep leases; they run until the last handler has finished."""
        return (self.watchdog, self.heartbeat, self.settler)

    def helpers(self) -> Iterator[ServiceThread[Any]]:
        """The services that stop first."""
        for thread in (self.maintenance, self.planner, self.autoscaler):
            if thread is not None:
                yield thread

    def threads(self) -> tuple[ServiceThread[Any], ...]:
        """All services but the claimer."""
        return (*self.keepers(), *self.helpers())

    def on_notify(self) -> None:
        """Something in the store has changed."""
        self.claimer.service.on_notify()
        self.heartbeat.service.on_notify()
        for thread in self.helpers():
            thread.service.on_notify()


def make_services(
    store: Store,
    worker: WorkerId,
    kinds: Mapping[str, Kind],
    options: WorkerOptions,
    *,
    lifecycle: RunLifecycle,
    pool: ExecutorPool,
    autoscaler: Autoscaler | None,
    planner: Planner | None,
    remote_control: RemoteControl,
    poll_interval: Callable[[], float],
) -> Services:
    """Create the services and their threads; nothing starts yet."""
    counts = lifecycle.counts
    interval = interval_for(options.heartbeat, kinds.values())
    heartbeat = Heartbeat(
        store, worker, lifecycle.active_runs, interval=interval, lost=lifecycle.lost, on_request=remote_control.apply
    )
    maintenance = Maintenance(store, heartbeat=interval, retention=options.retention, count_rows=counts.count_rows)
    watchdog = Watchdog(lifecycle.active_runs)
    claimer = Claimer(
        store,
        worker,
        kinds,
        pool,
        options,
        run_times=lifecycle.run_times,
        poll_interval=poll_interval,
        paused=lambda: watchdog.fenced or remote_control.quiet,
        autoscaler=autoscaler,
    )
    return Services(
        claimer=ServiceThread(claimer, on_tick=counts.ticked),
        watchdog=ServiceThread(watchdog, on_tick=counts.ticked),
        heartbeat=ServiceThread(heartbeat, on_tick=counts.ticked),
        settler=ServiceThread(lifecycle.settler, on_tick=counts.ticked),
        maintenance=ServiceThread(maintenance, on_tick=counts.ticked),
        planner=None if planner is None else ServiceThread(planner, on_tick=counts.ticked),
        autoscaler=None if autoscaler is None else ServiceThread(autoscaler, on_tick=counts.ticked),
    )
