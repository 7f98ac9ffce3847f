"""Autoscaling: who is in line, who begins, what programs take, and what was decided."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec
from msgspec import Struct

from holdfast.domain.fleet.admission import Profile, learned
from holdfast.domain.fleet.autoscaler import Bounds
from holdfast.domain.fleet.autoscaler_state import AutoscalerAction, AutoscalerDecision, RecordedDecision
from holdfast.domain.fleet.queue import Usage, free_slots
from holdfast.domain.jobs.history import EventName
from holdfast.domain.jobs.job import JobId, Lease, OnLost, WorkerId
from holdfast.domain.jobs.new_job import Actor
from holdfast.domain.text import checked_name
from holdfast.store.engine.backend import Backend, Timeouts
from holdfast.store.engine.operation import Operation, Rows, query
from holdfast.store.jobs.events import record_all

#: What a decision about a job is called in its history.
EVENTS = {
    AutoscalerAction.BLOCKED: EventName.BLOCKED,
    AutoscalerAction.NEVER_FITS: EventName.BLOCKED,
    AutoscalerAction.FREEZE: EventName.FROZEN,
    AutoscalerAction.THAW: EventName.THAWED,
    AutoscalerAction.EVICT: EventName.EVICTED,
}


class ReadyCommand(Struct, frozen=True):
    """A ready job, with what tells how much it will take."""

    job_id: JobId
    label: str | None
    payload: str
    on_lost: OnLost
    poison_suspect: bool


class AutoscalerStore:
    """What autoscalers read and write."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def set_bounds(self, queue: str, bounds: Bounds | None) -> None:
        """Let each host run between so many programs of a queue; None switches it off. Workers hear of it at once."""
        checked_name(queue, what="the queue")
        least, most = (None, None) if bounds is None else (bounds.least, bounds.most)
        self._backend.run(query("set_queue_scale", name=queue, least=least, most=most), repeatable=True)
        self._backend.notify()

    def line(self, queue: str, kind: str, *, limit: int) -> list[ReadyCommand]:
        """The first ready jobs of a queue and kind, in the order in which a claim would take them."""
        return self._backend.look(query("list_ready_jobs", ReadyCommand, queue=queue, kind=kind, limit=limit))

    def claim(self, worker: WorkerId, job_id: JobId, *, queue: str, lease_duration: timedelta) -> Lease | None:
        """Take the lease on one ready job, its start marked; None when it cannot be had any more.

        A queue that is paused, or whose limit is reached, gives nothing: limits are as exact as those of a claim.
        """
        return self._backend.write(_claim, worker, job_id, queue, lease_duration)

    def profiles(self, names: Sequence[str]) -> dict[str, Profile]:
        """What is known of programs by these names; one that was never measured has no samples."""
        found: list[Profile] = (
            self._backend.look(query("get_memory_profiles", Profile, names=[*names])) if names else []
        )
        return {name: Profile(name) for name in names} | {profile.name: profile for profile in found}

    def all_profiles(self, *, limit: int = 1000) -> list[Profile]:
        """The known profiles, by name."""
        return self._backend.look(query("list_memory_profiles", Profile, limit=limit))

    def learn(self, peaks: Sequence[tuple[str, int]]) -> None:
        """Take measured peaks into the profiles of their names."""
        if peaks:
            self._backend.write(_learn, list(peaks))

    def tell(self, worker: WorkerId, scaling: str | None) -> None:
        """Let others see how a worker's autoscaler stands; None: it has nothing to do."""
        told = query("report_autoscaler", id=worker, autoscaler=scaling)
        self._backend.run(told, repeatable=True, timeout=Timeouts.brief)

    def decide(self, worker: WorkerId, host: str, decisions: Sequence[AutoscalerDecision]) -> None:
        """Write decisions down; those about jobs are in the history of these too."""
        if decisions:
            self._backend.write(_decide, worker, host, list(decisions))

    def decisions(self, queue: str, *, limit: int = 20) -> list[RecordedDecision]:
        """The last decisions about a queue, the newest first."""
        return self._backend.look(query("list_decisions", RecordedDecision, queue=queue, limit=limit))


def _claim(worker: WorkerId, job_id: JobId, queue: str, lease_duration: timedelta) -> Operation[Lease | None]:
    yield query("lock_limited_queues", queues=[queue])
    usages: list[Usage] = yield query("get_queue_usage", Usage, name=queue, worker=worker)
    limited = usages and (usages[0].limit is not None or usages[0].worker_limit is not None)
    if limited and free_slots(usages[0]) == 0:
        return None
    leases: list[Lease] = yield query(
        "claim_job", Lease, id=job_id, queue=queue, worker=worker, lease_duration=lease_duration
    )
    return leases[0] if leases else None


def _learn(peaks: list[tuple[str, int]]) -> Operation[None]:
    names = sorted({name for name, _ in peaks})
    rows: list[Profile] = yield query("lock_memory_profiles", Profile, names=names)
    known = {name: Profile(name) for name in names} | {profile.name: profile for profile in rows}
    for name, peak in peaks:
        known[name] = learned(known[name], peak)
    fields = msgspec.structs.fields(Profile)
    columns = {field.name: [getattr(known[name], field.name) for name in names] for field in fields}
    yield query("save_memory_profiles", profile=Rows(**columns))


def _decide(worker: WorkerId, host: str, decisions: list[AutoscalerDecision]) -> Operation[None]:
    columns = {
        field.name: [getattr(each, field.name) for each in decisions]
        for field in msgspec.structs.fields(AutoscalerDecision)
    }
    yield query("insert_decisions", worker=worker, host=host, decision=Rows(**columns))
    about = [(d.job_id, EVENTS[d.action], d) for d in decisions if d.job_id is not None and d.action in EVENTS]
    events = [(job_id, name, {"host": host, "text": d.text}) for job_id, name, d in about]
    yield from record_all(events, actor=Actor.WORKER)
