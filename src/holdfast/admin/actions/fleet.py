"""Actions on queues and workers."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.admin.actions.actions import Actions, WorkerRequestSent
from holdfast.domain.fleet.queue import parse_bounds
from holdfast.domain.jobs.job import WorkerId, WorkerRequest
from holdfast.errors import InvalidInput
from holdfast.store import Store
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
        if autoscaler is not None:
            bounds = parse_bounds(autoscaler)
            self._audited("queue set", name, f"autoscaler={autoscaler}").autoscaler.set_bounds(name, bounds)
        if limit is not None or worker_limit is not None:
            limits = {"limit": limit, "worker_limit": worker_limit}
            changes = " ".join(f"{field}={value}" for field, value in limits.items() if value is not None)
            self._audited("queue set", name, changes).queues.set_limits(name, limit=limit, worker_limit=worker_limit)
        if paused is True:
            self._audited("queue pause", name, note).queues.pause(name, note=note)
        elif paused is False:
            self._audited("queue resume", name).queues.resume(name)
        return queue_views(self._store, [self._store.queues.get(name)])[0]

    def pause_all(self, action: str, names: Sequence[str], *, note: str) -> None:
        """Pause queues one after the other, under one audit entry."""
        queues = self._audited_all(action).queues
        for name in names:
            queues.pause(name, note=note)

    def resume_all(self, action: str, names: Sequence[str]) -> None:
        """Resume queues one after the other, under one audit entry."""
        queues = self._audited_all(action).queues
        for name in names:
            queues.resume(name)

    def send_request(self, worker: str, request: str) -> WorkerRequestSent:
        """Send a live worker one of the requests ``quiet``, ``stop`` and ``go-on``."""
        if request not in (*WorkerRequest, "go-on"):
            raise InvalidInput(f"a worker cannot be asked to {request[:40]!r}", hint="Ask it: quiet, stop, go-on.")
        audited = self._actions.audited("ask", f"worker={worker}", note=request, changes=bool)
        audited.workers.request(WorkerId(worker), None if request == "go-on" else WorkerRequest(request))
        return WorkerRequestSent(WorkerId(worker), request)

    def _audited(self, action: str, queue: str, note: str | None = None) -> Store:
        return self._actions.audited(action, f"queue={queue}", note=note, changes=bool)

    def _audited_all(self, action: str) -> Store:
        return self._actions.audited(action, lambda rows: f"queue={','.join(row[0] for row in rows)}")
