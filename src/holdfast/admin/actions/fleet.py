"""Actions on queues, workers and the whole store."""

from __future__ import annotations

from typing import Any

from holdfast.admin.actions.actions import Actions, StopChanged, WorkerRequestSent
from holdfast.admin.views.fleet import QueueView, queue_view
from holdfast.domain.access.masking import mask_text
from holdfast.domain.fleet.queue import parse_bounds
from holdfast.domain.fleet.stop_switch import StopMode
from holdfast.domain.jobs.job import JobId, State, WorkerId, WorkerRequest
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import Conflict, InvalidInput, NotFound
from holdfast.store import Store


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
        create: bool = False,
    ) -> QueueView:
        """Change a queue: its limits (0: no limit), its autoscaler (``1-8``, ``off``), or whether it is paused.

        Raises:
            NotFound: The queue to pause or resume is unknown. With *create* a queue is paused before it has jobs.
        """
        if limit is None and worker_limit is None and autoscaler is None and paused is None:
            raise InvalidInput("nothing to change", hint="Give --limit, --worker-limit or --autoscaler.")
        if autoscaler is not None:
            bounds = parse_bounds(autoscaler)
            self._audited("queue set", name, f"autoscaler={autoscaler}").autoscaler.set_bounds(name, bounds)
        if limit is not None or worker_limit is not None:
            limits = {"limit": limit, "worker_limit": worker_limit}
            changes = " ".join(f"{field}={value}" for field, value in limits.items() if value is not None)
            self._audited("queue set", name, changes).queues.set_limits(name, limit=limit, worker_limit=worker_limit)
        if paused is not None and not create:
            queue_view(self._store, name)
        if paused is True:
            self._audited("queue pause", name, note).queues.pause(name, note=note)
        elif paused is False:
            self._audited("queue resume", name).queues.resume(name)
        return queue_view(self._store, name)

    def delete_queue(self, name: str) -> QueueView:
        """Delete the settings of a queue without jobs.

        Raises:
            NotFound: The queue has no settings.
            Conflict: It has jobs.
        """
        view = queue_view(self._store, name)
        if not self._audited("queue rm", name).queues.delete(name):
            if view.jobs:
                hint = "Cancel them or move them with holdfast set --to-queue, or let them run."
                raise Conflict(f"queue {name!r} has {view.jobs:,} jobs", hint=hint)
            raise NotFound(f"queue {name!r} has no settings", hint="holdfast queue ls lists the queues.")
        return view

    def stop(self, mode: StopMode, *, note: str | None = None) -> StopChanged:
        """Stop the whole store; an emergency stop also requests that running jobs stop, and holds them."""
        actor, masked = self._actions.actor, None if note is None else mask_text(note)
        store = self._audited_stop("drain" if mode is StopMode.DRAIN else "emergency-stop", note=masked)
        switch = store.stop_switch.set(mode, actor=actor, note=masked)
        jobs: list[JobId] = []
        if mode is StopMode.STOP:
            jobs = store.control.pause(Selector(states=(State.RUNNING,)), actor=actor, note=switch.reason)
        return StopChanged(switch, jobs, self._actions.is_dry_run)

    def resume_all(self) -> StopChanged:
        """Let a stopped store go on, with the jobs that an emergency stop holds. Paused queues stay paused."""
        store = self._audited_stop("resume --all")
        store.stop_switch.clear()
        stopped = Selector(ids=tuple(store.stop_switch.stopped_jobs()))
        jobs = [] if stopped.empty else store.control.resume(stopped, actor=self._actions.actor)
        return StopChanged(None, jobs, self._actions.is_dry_run)

    def send_request(self, worker: str, request: str) -> WorkerRequestSent:
        """Send a live worker one of the requests ``quiet``, ``stop`` and ``go-on``."""
        if request not in (*WorkerRequest, "go-on"):
            raise InvalidInput(f"a worker cannot be asked to {request[:40]!r}", hint="Ask it: quiet, stop, go-on.")
        audited = self._actions.audited("ask", f"worker={worker}", note=request, changes=bool)
        audited.workers.request(WorkerId(worker), None if request == "go-on" else WorkerRequest(request))
        return WorkerRequestSent(WorkerId(worker), request)

    def _audited(self, action: str, queue: str, note: str | None = None) -> Store:
        return self._actions.audited(action, f"queue={queue}", note=note, changes=bool)

    def _audited_stop(self, action: str, note: str | None = None) -> Store:
        return self._actions.audited(action, "store", note=note, changes=_changed_jobs)


def _changed_jobs(answer: Any) -> bool | list[JobId]:
    """The jobs that an operation changed, or whether it changed the switch."""
    return answer if isinstance(answer, list) else answer is not None
