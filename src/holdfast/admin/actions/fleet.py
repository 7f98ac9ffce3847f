"""Actions on queues, workers and the whole store."""

from __future__ import annotations

from holdfast.admin.actions.actions import Actions, StopChanged, WorkerRequestSent
from holdfast.domain.access.masking import mask_text
from holdfast.domain.fleet.queue import parse_bounds
from holdfast.domain.fleet.stop_switch import StopMode
from holdfast.domain.jobs.job import JobId, State, WorkerId, WorkerRequest
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import InvalidInput
from holdfast.store.fleet.overview import QueueView, queue_views


class FleetActions:
    """Changes queues and the stop switch, sends requests to workers, and records all of it."""

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

    def stop(self, mode: StopMode, *, note: str | None = None) -> StopChanged:
        """Stop the whole store; an emergency stop also requests that running jobs stop, and holds them."""
        masked = None if note is None else mask_text(note)
        switch = self._store.stop_switch.set(mode, actor=self._actions.actor, note=masked)
        jobs: list[JobId] = []
        if mode is StopMode.STOP:
            running = Selector(states=(State.RUNNING,))
            jobs = self._store.control.pause(running, actor=self._actions.actor, note=switch.reason)
        action = "drain" if mode is StopMode.DRAIN else "emergency-stop"
        self._actions.record(action, "store", count=len(jobs), note=masked)
        return StopChanged(switch, jobs, self._actions.is_dry_run)

    def resume_all(self) -> StopChanged:
        """Let a stopped store go on, with the jobs that an emergency stop holds. Paused queues stay paused."""
        self._store.stop_switch.clear()
        stopped = Selector(ids=tuple(self._store.stop_switch.stopped_jobs()))
        jobs = [] if stopped.empty else self._store.control.resume(stopped, actor=self._actions.actor)
        self._actions.record("resume --all", "store", count=len(jobs))
        return StopChanged(None, jobs, self._actions.is_dry_run)

    def send_request(self, worker: str, request: str) -> WorkerRequestSent:
        """Send a live worker one of the requests ``quiet``, ``stop`` and ``go-on``."""
        if request not in (*WorkerRequest, "go-on"):
            raise InvalidInput(f"a worker cannot be asked to {request[:40]!r}", hint="Ask it: quiet, stop, go-on.")
        self._store.workers.request(WorkerId(worker), None if request == "go-on" else WorkerRequest(request))
        self._actions.record("ask", f"worker={worker}", note=request)
        return WorkerRequestSent(WorkerId(worker), request)
