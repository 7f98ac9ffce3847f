"""The services of one worker, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from holdfast.worker.autoscaler.autoscaler import Autoscaler
from holdfast.worker.claimer import Claimer
from holdfast.worker.executors.pool import ExecutorPool
from holdfast.worker.heartbeat import Heartbeat, RemoteControl, interval_for
from holdfast.worker.lifecycle import RunLifecycle
from holdfast.worker.maintenance import Maintenance
from holdfast.worker.options import WorkerSetup
from holdfast.worker.schedules.planner import Planner
from holdfast.worker.service import ServiceThread
from holdfast.worker.watchdog import Watchdog


class Services:
    """The worker's own thread ticks the claimer; each of the others has a thread."""

    def __init__(
        self,
        setup: WorkerSetup,
        lifecycle: RunLifecycle,
        pool: ExecutorPool,
        *,
        autoscaler: Autoscaler | None,
        planner: Planner | None,
        remote_control: RemoteControl,
        poll_interval: Callable[[], float],
    ) -> None:
        store, options, counts, active_runs = setup.store, setup.options, lifecycle.counts, lifecycle.active_runs
        interval = interval_for(options.heartbeat, setup.kinds.values())
        watchdog = Watchdog(active_runs)
        heartbeat = Heartbeat(
            store, setup.worker, active_runs, interval=interval, lost=lifecycle.lost, on_request=remote_control.apply
        )
        claimer = Claimer(
            setup,
            pool,
            run_times=lifecycle.run_times,
            poll_interval=poll_interval,
            paused=lambda: watchdog.fenced or remote_control.quiet,
            autoscaler=autoscaler,
        )
        maintenance = Maintenance(store, heartbeat=interval, retention=options.retention, count_rows=counts.count_rows)
        self.claimer = ServiceThread(claimer, on_tick=counts.ticked)
        self.watchdog = ServiceThread(watchdog, on_tick=counts.ticked)
        self.heartbeat = ServiceThread(heartbeat, on_tick=counts.ticked)
        self.settler = ServiceThread(lifecycle.settler, on_tick=counts.ticked)
        self.maintenance = ServiceThread(maintenance, on_tick=counts.ticked)
        self.planner = None if planner is None else ServiceThread(planner, on_tick=counts.ticked)
        self.autoscaler = None if autoscaler is None else ServiceThread(autoscaler, on_tick=counts.ticked)

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
