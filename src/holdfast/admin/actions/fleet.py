"""Actions on queues, workers and the whole store."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from holdfast.admin.actions.actions import TargetActions
from holdfast.admin.actions.changed import Changed, answer_for_one
from holdfast.admin.actions.fleet_table import DRAINED, OPEN, PAUSED, RUNNING, STOPPED
from holdfast.admin.actions.table import Action, Target
from holdfast.admin.views.fleet import queue_view
from holdfast.domain.access.masking import mask_text
from holdfast.domain.fleet.queue import LOST_WORKERS_KEPT, WORKER_SILENCE, parse_bounds
from holdfast.domain.fleet.stop_switch import StopMode, StopSwitch
from holdfast.domain.jobs.job import JobId, State, WorkerId, WorkerRequest
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.quantities import format_duration
from holdfast.errors import InvalidInput, NotFound
from holdfast.store import Store


class QueueActions(TargetActions):
    """Changes queues: their limits (0: no limit), their autoscaler (``1-8``, ``off``), and whether they are paused."""

    target = Target.QUEUE

    def run(
        self, action: Action, name: str, *, note: str | None = None, create: bool = False, **limits: Any
    ) -> Changed:
        """Change a queue. A queue that has no settings yet gets some.

        Raises:
            NotFound: The queue is unknown, and neither *create* nor a limit makes it one.
        """
        if action.name != "set" and not create:
            queue_view(self._store, name)
        before = self._store.queues.get(name)
        changed: bool | None = None
        match action.name:
            case "rm":
                changed = self._audited(action, name).queues.delete(name)
            case "pause":
                self._audited(action, name, note).queues.pause(name, note=note)
            case "resume":
                self._audited(action, name).queues.resume(name)
            case _:
                self._set(action, name, **limits)
        changed = self._store.queues.get(name) != before if changed is None else changed
        state = PAUSED if before.paused else OPEN
        return answer_for_one(action, name, state, changed=changed, dry_run=self._actions.is_dry_run)

    def _set(
        self,
        action: Action,
        name: str,
        *,
        limit: int | None = None,
        worker_limit: int | None = None,
        autoscaler: str | None = None,
    ) -> None:
        if limit is None and worker_limit is None and autoscaler is None:
            raise InvalidInput("nothing to change", hint="Give a limit, a worker limit or an autoscaler.")
        if autoscaler is not None:
            bounds = parse_bounds(autoscaler)
            self._audited(action, name, f"autoscaler={autoscaler}").autoscaler.set_bounds(name, bounds)
        if limit is not None or worker_limit is not None:
            limits = {"limit": limit, "worker_limit": worker_limit}
            changes = " ".join(f"{field}={value}" for field, value in limits.items() if value is not None)
            self._audited(action, name, changes).queues.set_limits(name, limit=limit, worker_limit=worker_limit)

    def _audited(self, action: Action, queue: str, note: str | None = None) -> Store:
        return self._actions.audited(action.audit_name, f"queue={queue}", note=note, changes=bool)


class WorkerActions(TargetActions):
    """Sends requests to workers. They receive them with their next heartbeat."""

    target = Target.WORKER

    def run(self, action: Action, worker: str) -> Changed:
        """Send a live worker a request, or withdraw it."""
        request = None if action.name == "go-on" else WorkerRequest(action.name)
        rows = {row.id: row for row in self._store.workers.list(silence=LOST_WORKERS_KEPT)}
        before = rows.get(WorkerId(worker))
        if before is None:
            raise NotFound(f"no worker {worker[:100]!r} is alive", hint="holdfast workers lists them.")
        if before.silent_for >= WORKER_SILENCE:
            silent = f"no heartbeat for {format_duration(before.silent_for)}"
            hint = "Its jobs are taken over when their leases expire: see holdfast doctor."
            raise NotFound(f"worker {worker!r} is lost: pid {before.pid} on {before.host}, {silent}", hint=hint)
        changed = before.requested is not request
        if changed:
            audited = self._actions.audited(action.audit_name, f"worker={worker}", changes=bool)
            audited.workers.request(WorkerId(worker), request)
        state = before.requested or RUNNING
        return answer_for_one(action, worker, state, changed=changed, dry_run=self._actions.is_dry_run)


class StoreActions(TargetActions):
    """Stops the whole store and lets it continue."""

    target = Target.STORE

    def run(self, action: Action, subject: None = None, *, note: str | None = None) -> Changed:  # noqa: ARG002 - there is one store
        """Drain or stop the store, or let it continue, with the jobs that an emergency stop holds.

        Paused queues stay paused.
        """
        before = self._store.stop_switch.get()
        jobs = self._resume(action) if action.name == "resume" else self._stop(action, note)
        changed = bool(jobs) or not _is_same(before, self._store.stop_switch.get())
        state = OPEN if before is None else DRAINED if before.mode is StopMode.DRAIN else STOPPED
        dry_run = self._actions.is_dry_run
        return structs.replace(answer_for_one(action, "store", state, changed=changed, dry_run=dry_run), jobs=jobs)

    def _stop(self, action: Action, note: str | None) -> list[JobId]:
        """Set the switch; an emergency stop also requests that running jobs stop, and holds them."""
        actor, masked = self._actions.actor, None if note is None else mask_text(note)
        store, drains = self._audited(action, masked), action.name == "drain"
        switch = store.stop_switch.set(StopMode.DRAIN if drains else StopMode.STOP, actor=actor, note=masked)
        running = Selector(states=(State.RUNNING,))
        return [] if drains else store.control.pause(running, actor=actor, note=switch.reason)

    def _resume(self, action: Action) -> list[JobId]:
        store = self._audited(action)
        store.stop_switch.clear()
        stopped = Selector(ids=tuple(store.stop_switch.stopped_jobs()))
        return [] if stopped.empty else store.control.resume(stopped, actor=self._actions.actor)

    def _audited(self, action: Action, note: str | None = None) -> Store:
        name = "resume --all" if action.name == "resume" else action.audit_name
        return self._actions.audited(name, "store", note=note, changes=_changed_jobs)


def _is_same(before: StopSwitch | None, after: StopSwitch | None) -> bool:
    """Whether the switch is in the same position, for the same reason."""
    if before is None or after is None:
        return before is after
    return (before.mode, before.reason) == (after.mode, after.reason)


def _changed_jobs(answer: Any) -> bool | list[JobId]:
    """The jobs that an operation changed, or whether it changed the switch."""
    return answer if isinstance(answer, list) else answer is not None
