"""Views of queues, workers, kinds and the stop switch, with secrets masked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec
from msgspec import Struct, structs

from holdfast.admin.views.payload_secrets import declared_secrets, schema_of
from holdfast.domain.access.masking import mask_text
from holdfast.domain.fleet.autoscaler import AutoscalerStatus, BlockedJob, RecordedDecision, load_autoscaler_status
from holdfast.domain.fleet.queue import (
    ALL_QUEUES,
    DEFAULT_QUEUE,
    LOST_WORKERS_KEPT,
    PRIVATE_PREFIX,
    WORKER_LATE_AFTER,
    WORKER_SILENCE,
    serves_queue,
)
from holdfast.domain.fleet.stop_switch import StopSwitch
from holdfast.domain.jobs.job import RunningJob, State, WorkerRequest
from holdfast.domain.jobs.kind_options import is_unit_function, load_options
from holdfast.domain.names import nearest_name
from holdfast.domain.quantities import count_of
from holdfast.errors import NotFound
from holdfast.store import Store
from holdfast.store.fleet.dashboard import COUNT_CAP, RECENT_CAP, LaneCount, QueueRow, ScheduledLane, Tally
from holdfast.store.fleet.registry import WorkerRow

#: Throughput covers SPAN, in slots of SLOT.
SPAN, SLOT = timedelta(hours=1), timedelta(minutes=1)
#: Counts of jobs in lists for the terminal stop here.
TERMINAL_CAP = 10_000


class LaneView(Struct, frozen=True):
    """An autoscaled queue on one worker: the number of open *slots*, the running commands, and the refused ones."""

    host: str
    worker: str
    slots: int
    running: int
    strain: str
    blocked: list[BlockedJob]


class QueueView(Struct, frozen=True, kw_only=True):
    """A queue: its settings, its jobs by state, its age and its speed. *expired* running jobs have lost their holder.

    *autoscaler* is the range of commands on each host, *hosts* the state there. *done* and *dead* are by slot of time,
    the newest last. Of a busy store only the newest finished jobs are counted: *counted_newest* of each state. Times
    before those are unknown, and null; *done_per_minute* and *dead_lately* are then lower bounds, or null.
    """

    name: str
    ready: int
    ready_capped: bool
    oldest_s: float | None
    running: int
    expired: int
    scheduled: int
    waiting: int
    held: int
    limit: int | None
    worker_limit: int | None
    paused: bool
    note: str | None
    autoscaler: str | None
    hosts: list[LaneView]
    done_per_minute: float | None
    dead_lately: int | None
    done: list[int | None]
    dead: list[int | None]
    counted_newest: int | None = None
    kinds: list[str]

    @property
    def jobs(self) -> int:
        return self.ready + self.running + self.scheduled + self.waiting + self.held


class Liveness(StrEnum):
    """Whether a worker is alive: its heartbeat is fresh, late, or so old that its jobs are taken over."""

    FRESH = "fresh"
    LATE = "late"
    LOST = "lost"


class WorkerView(Struct, frozen=True):
    """A worker that has not stopped. One that is lost stays for a day."""

    id: str
    host: str
    pid: int
    version: str | None
    queues: list[str]
    kinds: list[str]
    started_at: datetime
    seen_at: datetime
    heartbeat: Liveness
    slots: int | None = None
    requested: WorkerRequest | None = None

    @property
    def alive(self) -> bool:
        return self.heartbeat is not Liveness.LOST


class HostAutoscaler(Struct, frozen=True):
    """A worker that scales queues, with the resources of its host and the state of each queue."""

    worker: str
    host: str
    autoscaler: AutoscalerStatus


class KindView(Struct, frozen=True):
    """A kind that an application has registered; *payload_schema* is the JSON Schema of its parameters, as a text."""

    name: str
    payload_schema: str
    version: int


class WaitingLane(Struct, frozen=True):
    """Jobs of one kind in one queue that wait for a worker: ready ones up to *cap*, and the next scheduled ones.

    A retry is scheduled until it is due, so a kind that no worker runs may have no ready job for hours.
    """

    queue: str
    kind: str
    ready: int
    scheduled: int
    cap: int

    @property
    def text(self) -> str:
        """How many jobs wait, in words."""
        ready = f"{self.cap:,}+ jobs wait" if self.ready > self.cap else count_of(self.ready, "job waits", "jobs wait")
        if not self.scheduled:
            return ready
        is_or_are = "is" if self.scheduled == 1 else "are"
        if self.ready:
            return f"{ready}, {self.scheduled:,} {is_or_are} scheduled"
        return count_of(self.scheduled, "job is scheduled", "jobs are scheduled")

    def is_served_by(self, worker: WorkerView) -> bool:
        """Whether the worker runs this kind in this queue."""
        return serves_queue(worker.queues, self.queue) and self.kind in worker.kinds


def waiting_lanes(
    store: Store,
    *,
    cap: int = COUNT_CAP,
    lanes: list[LaneCount] | None = None,
    scheduled_lanes: Sequence[ScheduledLane] | None = None,
) -> list[WaitingLane]:
    """All lanes with jobs that wait for a worker. The ready *lanes* and the *scheduled_lanes* are read unless given."""
    if scheduled_lanes is None:
        scheduled_lanes = store.dashboard.scheduled_lanes()
    ready = {
        (lane.queue, lane.kind): lane.ready for lane in (store.dashboard.lanes(cap=cap) if lanes is None else lanes)
    }
    scheduled = {(lane.queue, lane.kind): lane.scheduled for lane in scheduled_lanes}
    names = sorted({*ready, *scheduled})
    return [WaitingLane(*name, ready.get(name, 0), scheduled.get(name, 0), cap) for name in names]


def queue_views(
    store: Store,
    *,
    cap: int = COUNT_CAP,
    lanes: list[LaneCount] | None = None,
    tallies: list[Tally] | None = None,
    workers: list[WorkerView] | None = None,
) -> list[QueueView]:
    """The queues that have settings or jobs, those that had jobs within the span, and the default queue.

    The queue of a ``holdfast run`` is listed until its job has finished. *lanes*, *tallies* and *workers* are read
    unless given. If only the newest finished jobs are counted, the queues of kinds and workers stand for the others.
    """
    rows = store.dashboard.queues(cap=cap)
    lanes = store.dashboard.lanes(cap=cap) if lanes is None else lanes
    tallies = store.dashboard.tallies(span=SPAN, slot=SLOT) if tallies is None else tallies
    known = {row.name: row for row in rows}
    finished = [tally for tally in tallies if tally.slot >= 0]
    recent = {tally.queue for tally in finished if not tally.queue.startswith(PRIVATE_PREFIX)}
    names = {*known, *(lane.queue for lane in lanes), *recent, DEFAULT_QUEUE}
    counted = _counted_slots(finished)
    if counted:
        served = {name for worker in worker_views(store) if workers is None for name in worker.queues}
        served |= {name for worker in workers or () for name in worker.queues}
        served |= store.views.kind_queues()
        names |= {name for name in served if name != ALL_QUEUES and not name.startswith(PRIVATE_PREFIX)}
    hosts = lane_views(store) if any(row.bounds for row in rows) else {}
    return [
        _queue_view(
            known.get(name) or QueueRow(name),
            [lane for lane in lanes if lane.queue == name],
            [tally for tally in finished if tally.queue == name],
            hosts.get(name, []),
            counted=counted,
            cap=cap,
        )
        for name in sorted(names)
    ]


def queue_view(store: Store, name: str) -> QueueView:
    """One queue.

    Raises:
        NotFound: It has no settings, no jobs, no worker that names it, and no kind whose jobs go there.
    """
    views = {view.name: view for view in queue_views(store, cap=TERMINAL_CAP)}
    if name in views:
        return views[name]
    known = {*views, *named_queues(store)}
    if name not in known:
        nearest = nearest_name(name, sorted(known))
        hint = "holdfast queue ls lists them." if nearest is None else f"Did you mean {nearest!r}?"
        raise NotFound(f"there is no queue {name[:100]!r}", hint=hint)
    return _queue_view(QueueRow(name), [], [], [], counted={}, cap=TERMINAL_CAP)


def named_queues(store: Store) -> set[str]:
    """The queues that workers serve by name, and those of kinds."""
    served = {name for worker in worker_views(store) for name in worker.queues}
    return served | {load_options(kind.options).queue for kind in store.kinds.all()}


def _counted_slots(finished: list[Tally]) -> dict[State, int]:
    """The number of slots that the tallies cover, for states whose tallies stopped at their limit."""
    counted = {}
    for state in (State.DONE, State.DEAD):
        tallies = [tally for tally in finished if tally.state is state]
        if sum(tally.count for tally in tallies) >= RECENT_CAP:
            counted[state] = 1 + max(tally.slot for tally in tallies)
    return counted


def _queue_view(
    row: QueueRow,
    lanes: list[LaneCount],
    finished: list[Tally],
    hosts: list[LaneView],
    *,
    counted: dict[State, int],
    cap: int,
) -> QueueView:
    ready = sum(lane.ready for lane in lanes)
    done = _series((tally for tally in finished if tally.state is State.DONE), counted.get(State.DONE))
    dead = _series((tally for tally in finished if tally.state is State.DEAD), counted.get(State.DEAD))
    minutes = SLOT.total_seconds() / 60 * sum(1 for each in done if each is not None)
    done_sum, dead_sum = _known_sum(done), _known_sum(dead)
    fields = {name: value for name, value in structs.asdict(row).items() if name in QueueView.__struct_fields__}
    return QueueView(
        **{**fields, "note": _masked(row.note)},
        ready=min(ready, cap),
        ready_capped=ready > cap,
        oldest_s=max((lane.waited.total_seconds() for lane in lanes), default=None),
        autoscaler=None if row.bounds is None else str(row.bounds),
        hosts=hosts,
        done_per_minute=None if done_sum is None else done_sum / minutes,
        dead_lately=dead_sum,
        done=done,
        dead=dead,
        counted_newest=RECENT_CAP if counted else None,
        kinds=sorted({lane.kind for lane in lanes}),
    )


def _series(tallies: Iterable[Tally], counted: int | None) -> list[int | None]:
    """Counts by slot of time, newest last; None for slots beyond those that were *counted*."""
    size = int(SPAN / SLOT)
    slots = [0] * (size if counted is None else min(size, counted))
    for tally in tallies:
        if tally.slot < len(slots):
            slots[-1 - tally.slot] += tally.count
    return [*[None] * (size - len(slots)), *slots]


def _known_sum(slots: list[int | None]) -> int | None:
    """The sum of the slots; None if it is 0 and not all of them are known."""
    total = sum(each or 0 for each in slots)
    return None if not total and None in slots else total


def lane_views(store: Store) -> dict[str, list[LaneView]]:
    """The status of autoscaled queues on each live worker, by queue."""
    views: dict[str, list[LaneView]] = {}
    for each in host_autoscalers(store):
        for lane in each.autoscaler.lanes:
            strain = each.autoscaler.strain
            view = LaneView(each.host, each.worker, lane.slots, lane.running, strain, lane.blocked)
            views.setdefault(lane.queue, []).append(view)
    return views


def host_autoscalers(store: Store) -> list[HostAutoscaler]:
    """The live workers that scale queues."""
    statuses = ((row, load_autoscaler_status(row.autoscaler)) for row in store.workers.list())
    return [HostAutoscaler(row.id, row.host, status) for row, status in statuses if status is not None]


def decision_views(store: Store, queue: str, *, limit: int = 20) -> list[RecordedDecision]:
    """The last decisions of the autoscalers of a queue, newest first."""
    decisions = store.autoscaler.decisions(queue, limit=limit)
    return [structs.replace(decision, text=mask_text(decision.text)) for decision in decisions]


def worker_views(store: Store) -> list[WorkerView]:
    """The workers that have not stopped, oldest first; lost ones for a day."""
    return [worker_view(row) for row in store.workers.list(silence=LOST_WORKERS_KEPT)]


def worker_view(row: WorkerRow) -> WorkerView:
    values = {name: value for name, value in structs.asdict(row).items() if name in WorkerView.__struct_fields__}
    lists = {name: msgspec.json.decode(values[name]) for name in ("queues", "kinds")}
    return WorkerView(**{**values, **lists}, heartbeat=_heartbeat(row.silent_for))


def _heartbeat(silent_for: timedelta) -> Liveness:
    if silent_for >= WORKER_SILENCE:
        return Liveness.LOST
    return Liveness.LATE if silent_for >= WORKER_LATE_AFTER else Liveness.FRESH


def running_jobs(store: Store) -> list[RunningJob]:
    """The jobs that run now, and where."""
    return store.dashboard.running()


def kind_views(store: Store) -> list[KindView]:
    """The kinds that can be enqueued, by name."""
    rows = [row for row in store.kinds.all() if not is_unit_function(row.options)]
    return [KindView(row.name, schema_of(row, declared_secrets(store, row.name)), row.version) for row in rows]


def kind_names(store: Store) -> list[str]:
    """The names of all kinds, as of a few seconds ago."""
    return store.views.kind_names()


def successor_of(store: Store) -> str | None:
    """The store to which this one was copied, without its password; None if it was not copied."""
    return store.database.tools.successor


def stop_view(store: Store) -> StopSwitch | None:
    """The stop switch in force; None if the store is not stopped."""
    switch = store.stop_switch.get()
    return None if switch is None else structs.replace(switch, note=_masked(switch.note))


def _masked(note: str | None) -> str | None:
    return None if note is None else mask_text(note)
