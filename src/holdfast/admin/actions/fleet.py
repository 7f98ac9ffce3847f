"""Actions on queues and workers."""

from __future__ import annotations

from holdfast.admin.actions.actions import Actions, WorkerRequestSent
from holdfast.domain.fleet.queue import parse_bounds
from holdfast.domain.jobs.job import WorkerId, WorkerRequest
from holdfast.errors import InvalidInput
from holdfast.store.fleet.overview import QueueView, queue_views


class FleetActions:
    """Changes queues, sends requests to workers, and records both."""

    def __init__(self, actions: Actions) -> None:
        self._actions = actions
        self._store = actions.store

    def set_queue(
        self,
        name: str,
        *,
        limit: int | None = None,
        worker_limit: int | None = None,
        autoscaler: str | None = None,
        paused: bool | None = None,
        note: str | None = None,
    ) -> QueueView:
        """Change a queue: its limits (0: no limit), its autoscaler (``1-8``, ``off``), or whether it is paused."""
        if limit is None and worker_limit is None and autoscaler is None and paused is None:
            raise InvalidInput("nothing to change", hint="Give --limit, --worker-limit or --autoscaler.")
        queues, target = self._store.queues, f"queue={name}"
        if autoscaler is not None:
            self._store.autoscaler.set_bounds(name, parse_bounds(autoscaler))
            self._actions.record("queue set", target, note=f"autoscaler={autoscaler}")
        if limit is not None or worker_limit is not None:
            queues.set_limits(name, limit=limit, worker_limit=worker_limit)
            limits = {"limit": limit, "worker_limit": worker_limit}
            changes = " ".join(f"{field}={value}" for field, value in limits.items() if value is not None)
            self._actions.record("queue set", target, note=changes)
        if paused is True:
            queues.pause(name, note=note)
            self._actions.record("queue pause", target, note=note)
        elif paused is False:
            queues.resume(name)
            self._actions.record("queue resume", target)
        return queue_views(self._store, [queues.get(name)])[0]

    def send_request(self, worker: str, request: str) -> WorkerRequestSent:
        """Send a live worker one of the requests ``quiet``, ``stop`` and ``go-on``."""
        if request not in (*WorkerRequest, "go-on"):
            raise InvalidInput(f"a worker cannot be asked to {request[:40]!r}", hint="Ask it: quiet, stop, go-on.")
        self._store.workers.request(WorkerId(worker), None if request == "go-on" else WorkerRequest(request))
        self._actions.record("ask", f"worker={worker}", note=request)
        return WorkerRequestSent(WorkerId(worker), request)
