"""An overview of the whole store: jobs by state, queues and workers."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from holdfast.domain.fleet.autoscaler import BlockedJob, load_autoscaler_status
from holdfast.domain.fleet.queue import DEFAULT_QUEUE, Queue
from holdfast.domain.fleet.stop_switch import StopSwitch
from holdfast.domain.jobs.job import Job, State, WorkerRequest
from holdfast.domain.jobs.selector import Selector
from holdfast.store.fleet.registry import WorkerRow
from holdfast.store.jobs.queries import Count

if TYPE_CHECKING:
    from holdfast.store import Store

#: Counts of jobs of one state stop here.
COUNT_CAP = 10_000
#: Running jobs that an overview lists.
RUNNING_LIMIT = 20


class LaneView(Struct, frozen=True):
    """A queue that is scaled, on one worker: so many *slots* are open, so many programs run, and these are refused."""

    host: str
    worker: str
    slots: int
    running: int
    strain: str
    blocked: list[BlockedJob]


class QueueView(Struct, frozen=True):
    """A queue: its settings, and how full it is. *expired* of the running jobs have lost their holder.

    *autoscaler* says between how many programs each host moves, *hosts* how they stand.
    """

    name: str
    ready: int
    running: int
    expired: int
    limit: int | None
    worker_limit: int | None
    paused: bool
    note: str | None
    autoscaler: str | None
    hosts: list[LaneView]


class WorkerView(Struct, frozen=True):
    """A worker that is alive."""

    id: str
    host: str
    pid: int
    version: str | None
    queues: list[str]
    kinds: list[str]
    started_at: datetime
    seen_at: datetime
    slots: int | None = None
    requested: WorkerRequest | None = None


class Overview(Struct, frozen=True):
    """How many jobs are in each state, all queues, all workers that are alive, and the newest jobs that run.

    *stopped*: the stop switch of the store, if it is set.
    """

    counts: dict[State, Count]
    queues: list[QueueView]
    workers: list[WorkerView]
    running: list[Job]
    stopped: StopSwitch | None


def overview(store: Store) -> Overview:
    """Read the overview. Its cost does not depend on the number of finished jobs."""
    return Overview(
        counts={state: store.views.count(Selector(states=(state,)), cap=COUNT_CAP) for state in State},
        queues=all_queues(store),
        workers=[worker_views(worker) for worker in store.workers.list()],
        running=store.views.page(Selector(states=(State.RUNNING,)), limit=RUNNING_LIMIT).jobs,
        stopped=store.stop_switch.get(),
    )


def all_queues(store: Store) -> list[QueueView]:
    """The queues that have settings or ready jobs, and the default one."""
    known = {queue.name: queue for queue in store.queues.list()}
    names = sorted({*known, *store.queues.with_ready_jobs(), DEFAULT_QUEUE})
    return queue_views(store, (known.get(name) or Queue(name) for name in names))


def queue_views(store: Store, queues: Iterable[Queue]) -> list[QueueView]:
    """The numbers of jobs of each queue."""
    known = {queue.name: queue for queue in queues}
    lanes = lane_views(store) if any(queue.bounds for queue in known.values()) else {}
    depths = {depth.queue: depth for depth in store.queues.depths(list(known))}
    return [
        QueueView(
            name=queue.name,
            ready=depths[queue.name].ready,
            running=depths[queue.name].running,
            expired=depths[queue.name].expired,
            limit=queue.limit,
            worker_limit=queue.worker_limit,
            paused=queue.paused,
            note=queue.note,
            autoscaler=None if queue.bounds is None else str(queue.bounds),
            hosts=lanes.get(queue.name, []),
        )
        for queue in known.values()
    ]


def lane_views(store: Store) -> dict[str, list[LaneView]]:
    """The status of autoscaled queues on each live worker, by queue."""
    views: dict[str, list[LaneView]] = {}
    for worker in store.workers.list():
        status = load_autoscaler_status(worker.autoscaler)
        for lane in () if status is None else status.lanes:
            strain = "" if status is None else status.strain
            view = LaneView(worker.host, worker.id, lane.slots, lane.running, strain, lane.blocked)
            views.setdefault(lane.queue, []).append(view)
    return views


def worker_views(worker: WorkerRow) -> WorkerView:
    values = msgspec.structs.asdict(worker)
    del values["autoscaler"]
    lists = {name: msgspec.json.decode(values[name]) for name in ("queues", "kinds")}
    return WorkerView(**{**values, **lists})
