"""The status of the autoscaler, exchanged through the store with other workers on the same host."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.fleet.admission import RunningCommand, forecast
from holdfast.domain.fleet.autoscaler_state import AutoscalerStatus, QueueStatus, load_autoscaler_status
from holdfast.domain.jobs.job import JobId, WorkerId
from holdfast.store import Store
from holdfast.worker import clock
from holdfast.worker.autoscaler.host import HostMonitor

#: Interval at which an unchanged status is published again.
PUBLISH_INTERVAL_S = 10.0


class StatusExchange:
    """Publishes the status of this worker and reads the promises of the others."""

    def __init__(self, store: Store, worker: WorkerId, hostname: str) -> None:
        #: Memory in bytes that the other workers of this host have promised to commands that still grow.
        self.promised = 0
        self._store = store
        self._worker = worker
        self._hostname = hostname
        self._published_at = float("-inf")
        self._last: AutoscalerStatus | None = None

    def publish(self, status: AutoscalerStatus | None, *, force: bool) -> None:
        """Publish a status that is new or old enough; None: nothing is autoscaled here."""
        if force or status != self._last or clock.now() - self._published_at > PUBLISH_INTERVAL_S:
            self._published_at, self._last = clock.now(), status
            self._store.autoscaler.tell(self._worker, None if status is None else status.dumps())
            workers = [worker for worker in self._store.workers.list() if worker.host == self._hostname]
            others = [load_autoscaler_status(worker.scaling) for worker in workers if worker.id != self._worker]
            self.promised = sum(max(0, other.forecast - other.resident) for other in others if other is not None)


def make_status(
    host: HostMonitor,
    running: Sequence[RunningCommand],
    *,
    promised: int,
    frozen: list[JobId],
    queues: list[QueueStatus],
) -> AutoscalerStatus:
    load = host.load
    return AutoscalerStatus(
        total=load.total,
        used=load.used,
        limit=host.limit,
        room=host.room(running, promised=promised).now,
        resident=sum(command.resident for command in running),
        forecast=round(forecast(running)),
        cores=load.cores,
        load=load.load,
        cpu_pressure=load.cpu_pressure,
        memory_pressure=load.memory_pressure,
        strain=host.strain.name.lower(),
        frozen=frozen,
        lanes=queues,
    )
