"""View of the whole store: counts, queues, workers, and problems that need attention."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from msgspec import Struct, structs

from holdfast.admin.views.masking import Masks, values_of
from holdfast.domain.access.masking import mask_cut, mask_text
from holdfast.domain.fleet.queue import DEFAULT_QUEUE, serves_queue
from holdfast.domain.fleet.stop_switch import StopSwitch
from holdfast.domain.jobs.error_clusters import Cluster, SeenError, cluster_errors
from holdfast.domain.jobs.job import State
from holdfast.domain.quantities import format_duration
from holdfast.domain.schedules.decision import format_count
from holdfast.store import Store
from holdfast.store.fleet.dashboard import COUNT_CAP, RECENT_CAP, FailedJob, LaneCount, QueueRow, Tally, Trouble
from holdfast.store.fleet.overview import WorkerView, worker_views
from holdfast.store.jobs.queries import Count

#: Throughput covers SPAN, in slots of SLOT.
SPAN, SLOT = timedelta(hours=1), timedelta(minutes=1)
#: A queue needs attention if its oldest ready job has waited for longer.
LONG_WAIT = timedelta(minutes=15)
_TROUBLE_TEXTS = {
    "expired": "job {name} ({detail}) has lost its worker",
    "dead": "job {name} is dead ({detail})",
    "failing": "schedule {name} cannot be planned: {detail}",
    "late": "schedule {name} is due, and nobody plans it",
    "paused_schedule": "schedule {name} is paused{note}",
    "missed": "schedule {name} has skipped {n} plans ({detail})",
    "paused_batch": "batch {name} is paused",
    "stopped_batch": "batch {name} has stopped: {detail}",
}


class QueueSummary(Struct, frozen=True, kw_only=True):
    """A queue: how full, how old, how fast. *done* and *dead* are by slot of time, the newest last."""

    name: str
    ready: int
    ready_capped: bool
    oldest_s: float | None
    running: int
    expired: int
    limit: int | None
    worker_limit: int | None
    paused: bool
    note: str | None
    done_per_minute: float
    dead_lately: int
    done: list[int]
    dead: list[int]
    kinds: list[str]


class Attention(Struct, frozen=True):
    """A problem that an operator should look at: its category, the object it concerns, and a sentence."""

    category: str
    name: str
    text: str
    at: datetime | None = None
    count: int = 1


class DashboardView(Struct, frozen=True):
    """Everything at one look."""

    counts: dict[State, Count]
    queues: list[QueueSummary]
    workers: list[WorkerView]
    attention: list[Attention]
    stopped: StopSwitch | None
    span_s: float
    slot_s: float


def dashboard_view(store: Store) -> DashboardView:
    """Read the whole store in six statements. Their cost does not depend on the number of jobs."""
    lanes, rows = store.dashboard.lanes(), store.dashboard.queues()
    tallies, trouble = store.dashboard.tallies(span=SPAN, slot=SLOT), store.dashboard.trouble()
    workers = [worker_views(row) for row in store.workers.list()]
    queues, stopped = queue_summaries(lanes, rows, tallies), stop_view(store)
    return DashboardView(
        counts=counts_of(tallies),
        queues=queues,
        workers=workers,
        attention=[
            *_stop_attention(stopped),
            *_queue_attention(queues),
            *_unserved(lanes, workers),
            *_trouble(trouble),
        ],
        stopped=stopped,
        span_s=SPAN.total_seconds(),
        slot_s=SLOT.total_seconds(),
    )


def stop_view(store: Store) -> StopSwitch | None:
    """The stop switch in force, its note masked; None if the store is not stopped."""
    switch = store.stop_switch.get()
    if switch is None or switch.note is None:
        return switch
    return structs.replace(switch, note=mask_text(switch.note))


def _stop_attention(switch: StopSwitch | None) -> Iterator[Attention]:
    if switch is not None:
        yield Attention("stopped", switch.mode, switch.text, switch.at)


def counts_of(tallies: Iterable[Tally], *, cap: int = COUNT_CAP) -> dict[State, Count]:
    counts = {tally.state: tally.count for tally in tallies if tally.slot < 0}
    return {state: Count(min(counts.get(state, 0), cap), counts.get(state, 0) > cap) for state in State}


def queue_summaries(lanes: list[LaneCount], rows: list[QueueRow], tallies: list[Tally]) -> list[QueueSummary]:
    """The queues that have settings or jobs, those that had jobs within the span, and the default queue."""
    known = {row.name: row for row in rows}
    finished = [tally for tally in tallies if tally.slot >= 0]
    names = {*known, *(lane.queue for lane in lanes), *(tally.queue for tally in finished), DEFAULT_QUEUE}
    minutes = _covered(finished) / 60
    return [
        _queue_summary(
            known.get(name) or QueueRow(name, None, None, False, None, 0, 0),
            [lane for lane in lanes if lane.queue == name],
            [tally for tally in finished if tally.queue == name],
            minutes,
        )
        for name in sorted(names)
    ]


def _covered(finished: list[Tally]) -> float:
    """The seconds that the tallies cover: less than the span if they stopped at their limit."""
    done = [tally for tally in finished if tally.state is State.DONE]
    if sum(tally.count for tally in done) < RECENT_CAP:
        return SPAN.total_seconds()
    return (1 + max(tally.slot for tally in done)) * SLOT.total_seconds()


def _queue_summary(row: QueueRow, lanes: list[LaneCount], finished: list[Tally], minutes: float) -> QueueSummary:
    ready = sum(lane.ready for lane in lanes)
    done = _series(tally for tally in finished if tally.state is State.DONE)
    dead = _series(tally for tally in finished if tally.state is State.DEAD)
    note = None if row.note is None else mask_text(row.note)
    return QueueSummary(
        **{**structs.asdict(row), "note": note},
        ready=min(ready, COUNT_CAP),
        ready_capped=ready > COUNT_CAP,
        oldest_s=max((lane.waited.total_seconds() for lane in lanes), default=None),
        done_per_minute=sum(done) / minutes,
        dead_lately=sum(dead),
        done=done,
        dead=dead,
        kinds=sorted({lane.kind for lane in lanes}),
    )


def _series(tallies: Iterable[Tally]) -> list[int]:
    """Counts by slot of time, newest last."""
    slots = [0] * int(SPAN / SLOT)
    for tally in tallies:
        if tally.slot < len(slots):
            slots[-1 - tally.slot] += tally.count
    return slots


def _queue_attention(queues: list[QueueSummary]) -> Iterator[Attention]:
    for queue in queues:
        if queue.paused:
            note = f": {queue.note}" if queue.note else ""
            breaker = "breaker" if (queue.note or "").startswith("job ") else "paused_queue"
            yield Attention(breaker, queue.name, f"queue {queue.name} is paused{note}")
        if queue.limit is not None and queue.running >= queue.limit and queue.ready:
            full = f"queue {queue.name} is full: {queue.running} of {queue.limit} run, {queue.ready:,} wait"
            yield Attention("full_queue", queue.name, full, None, queue.ready)
        elif queue.oldest_s is not None and queue.oldest_s > LONG_WAIT.total_seconds() and not queue.paused:
            wait = format_duration(timedelta(seconds=queue.oldest_s))
            yield Attention("slow_queue", queue.name, f"the oldest job of queue {queue.name} has waited for {wait}")


def _unserved(lanes: list[LaneCount], workers: list[WorkerView]) -> Iterator[Attention]:
    """Kinds with ready jobs in a queue in which no worker runs them."""
    for lane in lanes:
        if not any(serves_queue(worker.queues, lane.queue) and lane.kind in worker.kinds for worker in workers):
            many = f"{min(lane.ready, COUNT_CAP):,}{'+' if lane.ready > COUNT_CAP else ''}"
            text = f"no worker runs {lane.kind} in queue {lane.queue}; {many} wait"
            yield Attention("no_worker", f"{lane.queue}/{lane.kind}", text, None, lane.ready)


def _trouble(rows: list[Trouble]) -> Iterator[Attention]:
    for row in rows:
        detail = mask_text((row.detail or "").partition("\n")[0])
        note = f": {detail}" if detail else ""
        template = _TROUBLE_TEXTS[row.category]
        many = row.count if row.category != "missed" or row.count is None else format_count(row.count)
        text = template.format(name=row.name, detail=detail or "no reason is known", note=note, n=many)
        yield Attention(row.category, row.name, text, row.at, row.count)


def error_clusters(jobs: Iterable[FailedJob], masks: Masks) -> list[Cluster]:
    """Dead jobs in clusters of similar errors, largest cluster first."""
    return cluster_errors(SeenError(str(job.id), job.kind, error_of(job, masks), job.at) for job in jobs)


def error_of(failed: FailedJob, masks: Masks) -> str:
    """The error of a dead job, with the secrets of its payload masked."""
    return mask_cut(failed.error, values_of(failed.kind, failed.payload, masks.of(failed.kind)))
