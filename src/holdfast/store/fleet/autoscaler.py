"""The store of autoscalers: ready commands, admissions, memory profiles and decisions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from msgspec import Struct

from holdfast.domain.fleet.admission import Profile, add_sample
from holdfast.domain.fleet.autoscaler import AutoscalerAction, AutoscalerDecision, RecordedDecision
from holdfast.domain.fleet.queue import Bounds, Usage, checked_queue, free_slots
from holdfast.domain.jobs.history import EventName
from holdfast.domain.jobs.job import JobId, Lease, OnLost, WorkerId
from holdfast.domain.jobs.new_job import Actor
from holdfast.store.engine.backend import Timeouts
from holdfast.store.engine.changes import QUEUES
from holdfast.store.engine.operation import Noun, Operation, Rows, columns_of, query, transaction
from holdfast.store.jobs.events import record_all

#: The event of a decision about a job.
EVENTS = {
    AutoscalerAction.BLOCKED: EventName.BLOCKED,
    AutoscalerAction.NEVER_FITS: EventName.BLOCKED,
    AutoscalerAction.FREEZE: EventName.FROZEN,
    AutoscalerAction.THAW: EventName.THAWED,
    AutoscalerAction.EVICT: EventName.EVICTED,
}


class ReadyCommand(Struct, frozen=True):
    """A ready job, with the data that its memory forecast needs."""

    job_id: JobId
    label: str | None
    payload: str
    on_lost: OnLost
    priority: int = 0


class AutoscalerStore(Noun):
    """Reads and writes of autoscalers."""

    def set_bounds(self, queue: str, bounds: Bounds | None) -> None:
        """Set the least and most commands of a queue per host; None switches the autoscaler off. Workers are woken."""
        checked_queue(queue)
        least, most = (None, None) if bounds is None else (bounds.least, bounds.most)
        self._backend.run(query("set_queue_scale", name=queue, least=least, most=most), repeatable=True)
        self._backend.notify(QUEUES)

    def queue_line(self, queue: str, kind: str, *, limit: int, build: str = "") -> list[ReadyCommand]:
        """The first ready jobs of a queue and kind that workers of *build* may claim, in the order of claims."""
        return self._fetch("list_ready_jobs", ReadyCommand, queue=queue, kind=kind, limit=limit, build=build)

    @transaction()
    def claim(
        self, worker: WorkerId, job_id: JobId, *, queue: str, lease_duration: timedelta
    ) -> Operation[Lease | None]:
        """Take the lease on one ready job; None if the job is no longer available.

        A queue whose limit is reached yields nothing, and one that is paused only jobs of the highest priority. The
        limits are as exact as in a claim.
        """
        yield query("lock_limited_queues", queues=[queue])
        usages: list[Usage] = yield query("get_queue_usage", Usage, name=queue, worker=worker)
        limited = usages and (usages[0].limit is not None or usages[0].worker_limit is not None)
        if limited and free_slots(usages[0]) == 0:
            return None
        leases: list[Lease] = yield query(
            "claim_job", Lease, id=job_id, queue=queue, worker=worker, lease_duration=lease_duration
        )
        return leases[0] if leases else None

    def profiles(self, names: Sequence[str]) -> dict[str, Profile]:
        """The profiles of commands by these names; a command without measurements has no samples."""
        known: list[Profile] = self._fetch("get_memory_profiles", Profile, names=[*names]) if names else []
        return _with_new_profiles(names, known)

    def learn(self, peaks: Sequence[tuple[str, int]]) -> None:
        """Add measured memory peaks (name, bytes) to the profiles of their names."""
        if peaks:
            self._learn(peaks)

    @transaction()
    def _learn(self, peaks: Sequence[tuple[str, int]]) -> Operation[None]:
        names = sorted({name for name, _ in peaks})
        rows: list[Profile] = yield query("lock_memory_profiles", Profile, names=names)
        profiles = _with_new_profiles(names, rows)
        for name, peak in peaks:
            profiles[name] = add_sample(profiles[name], peak)
        yield query("save_memory_profiles", profile=_table([profiles[name] for name in names]))

    def report_status(self, worker: WorkerId, status: str | None) -> None:
        """Publish the status of a worker's autoscaler as JSON; None: it has no queue."""
        statement = query("report_autoscaler", id=worker, autoscaler=status)
        self._backend.run(statement, repeatable=True, timeout=Timeouts.brief)

    def record_decisions(self, worker: WorkerId, host: str, decisions: Sequence[AutoscalerDecision]) -> None:
        """Record decisions; decisions about jobs enter the history of these too."""
        if decisions:
            self._record_decisions(worker, host, decisions)

    @transaction()
    def _record_decisions(
        self, worker: WorkerId, host: str, decisions: Sequence[AutoscalerDecision]
    ) -> Operation[None]:
        yield query("insert_decisions", worker=worker, host=host, decision=_table(decisions))
        about = [(d.job_id, EVENTS[d.action], d) for d in decisions if d.job_id is not None and d.action in EVENTS]
        events = [(job_id, name, {"host": host, "text": d.text}) for job_id, name, d in about]
        yield from record_all(events, actor=Actor.WORKER)

    def decisions(self, queue: str, *, limit: int = 20) -> list[RecordedDecision]:
        """The last decisions about a queue, newest first."""
        return self._fetch("list_decisions", RecordedDecision, queue=queue, limit=limit)


def _with_new_profiles(names: Sequence[str], known: Sequence[Profile]) -> dict[str, Profile]:
    return {name: Profile(name) for name in names} | {profile.name: profile for profile in known}


def _table(rows: Sequence[Struct]) -> Rows:
    return Rows(**columns_of(rows, *rows[0].__struct_fields__))
