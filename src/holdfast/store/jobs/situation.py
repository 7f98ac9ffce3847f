"""The situation of a job: everything in the store that decides when it runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct

from holdfast.domain.commands.command import COMMAND
from holdfast.domain.fleet.autoscaler import load_autoscaler_status, refusals
from holdfast.domain.fleet.queue import WORKER_LATE_AFTER, WORKER_SILENCE, Queue, Usage
from holdfast.domain.fleet.stop_switch import StopMode, StopSwitch
from holdfast.domain.jobs.dependencies import DependencyState
from holdfast.domain.jobs.job import Job, State, WorkerId, WorkerRequest
from holdfast.domain.jobs.why import JobSituation, ServingWorker
from holdfast.store.engine.operation import Operation, query


class _PlaceRow(Struct, frozen=True):
    """The queue of a job, the stop switch, and the jobs before it."""

    now: datetime
    name: str | None
    limit: int | None
    worker_limit: int | None
    paused: bool
    note: str | None
    running: int
    ahead: int
    mode: StopMode | None
    stopped_by: str | None
    stop_note: str | None
    stopped_at: datetime | None
    seen_at: datetime | None
    options: str | None


class _ServingWorkerRow(Struct, frozen=True):
    id: WorkerId
    host: str
    slots: int | None
    busy: int
    requested: WorkerRequest | None
    autoscaler: str | None
    silent_for: timedelta


def read_situation(job: Job, dependencies: Sequence[DependencyState] | None = None) -> Operation[JobSituation]:
    """The situation of *job*; its dependencies are read if they are not given."""
    if dependencies is None:
        dependencies = yield query("list_dependency_states", DependencyState, ids=[job.id])
    place = {"queue": job.queue, "kind": job.kind, "reader": job.reader, "worker": job.worker}
    rank = {"priority": job.priority, "due_at": job.due_at, "id": job.id}
    rows: list[_PlaceRow] = yield query("explain_job", _PlaceRow, **place, **rank)
    workers: list[_ServingWorkerRow] = []
    if job.state in (State.READY, State.SCHEDULED, State.WAITING, State.RUNNING):
        serving: list[_ServingWorkerRow] = yield query(
            "list_serving_workers", _ServingWorkerRow, queue=job.queue, kind=job.kind, silence=WORKER_SILENCE
        )
        late_holder = job.worker if job.state is State.RUNNING else None
        workers = [each for each in serving if each.id != late_holder or each.silent_for < WORKER_LATE_AFTER]
    row = rows[0]
    queue = None if row.name is None else Queue(row.name, row.limit, row.worker_limit, row.paused, row.note)
    statuses = [(each.host, status) for each in workers if (status := load_autoscaler_status(each.autoscaler))]
    return JobSituation(
        job=job,
        now=row.now,
        switch=_switch(row),
        queue=queue,
        usage=Usage(job.queue, row.limit, row.worker_limit, row.running, 0) if queue and queue.limited else None,
        dependencies=dependencies,
        workers=[ServingWorker(each.slots, each.busy, each.requested is not None) for each in workers],
        seen_at=row.seen_at,
        kind_timeout=None if row.options is None else msgspec.json.decode(row.options)["timeout_seconds"],
        ahead=row.ahead,
        refusals=refusals(job.id, job.queue, statuses) if job.state is State.READY and job.kind == COMMAND else [],
    )


def _switch(row: _PlaceRow) -> StopSwitch | None:
    if row.mode is None or row.stopped_at is None:
        return None
    return StopSwitch(row.mode, row.stopped_by or "", row.stop_note, row.stopped_at)
