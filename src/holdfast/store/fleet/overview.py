"""What is going on, in one look: for the terminal, the dashboard, and checks."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from holdfast.domain.fleet.autoscaler_state import BlockedJob, load_autoscaler_status
from holdfast.domain.fleet.queue import DEFAULT_QUEUE, Queue
from holdfast.domain.jobs.job import Job, State, WorkerRequest
from holdfast.domain.jobs.selector import Selector
from holdfast.store.fleet.queues import WorkerRow
from holdfast.store.jobs.queries import Count

if TYPE_CHECKING:
    from holdfast.store import Store

#: Jobs of one state are counted up to this many.
CAP = 10_000
#: Running jobs that are told one by one.
RUNNING = 20


class LaneView(Struct, frozen=True):
    """A queue that is scaled, on one worker: so many *slots* are open, so many programs run, and these are refused."""

    host: str
    worker: str
    slots: int
    running: int
    strain: str
    blocked: list[BlockedJob]


class QueueView(Struct, frozen=True):
    """A queue: its settings, and how full it is. *lapsed* of the running jobs have lost their holder.

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
    """How many jobs are in each state, all queues, all workers that are alive, and the newest jobs that run."""

    counts: dict[State, Count]
    queues: list[QueueView]
    workers: list[WorkerView]
    running: list[Job]


def overview(store: Store) -> Overview:
    """Look at everything. The cost does not grow with what has ended."""
    return Overview(
        counts={state: store.views.count(Selector(states=(state,)), cap=CAP) for state in State},
        queues=all_queues(store),
        workers=[worker_views(found) for found in store.workers.list()],
        running=store.views.page(Selector(states=(State.RUNNING,)), limit=RUNNING).jobs,
    )


def all_queues(store: Store) -> list[QueueView]:
    """The queues that have settings or ready jobs, and the default one."""
    known = {found.name: found for found in store.queues.list()}
    names = sorted({*known, *store.queues.in_use(), DEFAULT_QUEUE})
    return queue_views(store, (known.get(name) or Queue(name) for name in names))


def queue_views(store: Store, queues: Iterable[Queue]) -> list[QueueView]:
    """How full each queue is."""
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
    """How the queues that are scaled stand on each live worker, by queue."""
    found: dict[str, list[LaneView]] = {}
    for worker in store.workers.list():
        scaling = load_autoscaler_status(worker.autoscaler)
        for lane in () if scaling is None else scaling.lanes:
            strain = "" if scaling is None else scaling.strain
            facts = LaneView(worker.host, worker.id, lane.slots, lane.running, strain, lane.blocked)
            found.setdefault(lane.queue, []).append(facts)
    return found


def worker_views(found: WorkerRow) -> WorkerView:
    values = msgspec.structs.asdict(found)
    del values["autoscaler"]
    lists = {name: msgspec.json.decode(values[name]) for name in ("queues", "kinds")}
    return WorkerView(**{**values, **lists})
