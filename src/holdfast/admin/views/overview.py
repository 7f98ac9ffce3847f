"""The overview: how the queues stand, and what wants a look."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from msgspec import Struct

from holdfast.admin.views.masking import Masks, values_of
from holdfast.domain.access.masking import mask_cut, mask_text
from holdfast.domain.fleet.queue import DEFAULT_QUEUE
from holdfast.domain.jobs.error_clusters import Cluster, SeenError, clustered
from holdfast.domain.jobs.job import State
from holdfast.domain.text import say_duration
from holdfast.store import Store
from holdfast.store.fleet.dashboard import CAP, MOST, FailedJob, LaneCount, QueueRow, Tally, Trouble
from holdfast.store.fleet.overview import WorkerView, worker_views
from holdfast.store.jobs.queries import Count

SPAN, SLOT = timedelta(hours=1), timedelta(minutes=1)
#: A queue whose oldest ready job has waited for so long wants a look.
LONG_WAIT = timedelta(minutes=15)


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
    """Something that wants a look: a word for it, what it is about, and a sentence."""

    what: str
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
    span_s: float
    slot_s: float


def dashboard_view(store: Store) -> DashboardView:
    """Look at everything, in five statements whose cost does not grow with what there is."""
    lanes, rows = store.dashboard.lanes(), store.dashboard.queues()
    tallies, trouble = store.dashboard.tallies(span=SPAN, slot=SLOT), store.dashboard.trouble()
    workers = [worker_views(found) for found in store.workers.list()]
    queues = queue_summaries(lanes, rows, tallies)
    return DashboardView(
        counts=counts_of(tallies),
        queues=queues,
        workers=workers,
        attention=[*_queue_attention(queues), *_unserved(lanes, workers), *_told(trouble)],
        span_s=SPAN.total_seconds(),
        slot_s=SLOT.total_seconds(),
    )


def counts_of(tallies: Iterable[Tally], *, cap: int = CAP) -> dict[State, Count]:
    """How many jobs are in each state, up to the cap."""
    found = {tally.state: tally.count for tally in tallies if tally.slot < 0}
    return {state: Count(min(found.get(state, 0), cap), found.get(state, 0) > cap) for state in State}


def queue_summaries(lanes: list[LaneCount], rows: list[QueueRow], tallies: list[Tally]) -> list[QueueSummary]:
    """The queues that have settings or jobs, or had lately, and the default one."""
    known = {row.name: row for row in rows}
    finished = [tally for tally in tallies if tally.slot >= 0]
    names = {*known, *(lane.queue for lane in lanes), *(tally.queue for tally in finished), DEFAULT_QUEUE}
    minutes = _covered(finished) / 60
    return [
        _queue_board(
            known.get(name) or QueueRow(name, None, None, False, None, 0, 0),
            [lane for lane in lanes if lane.queue == name],
            [tally for tally in finished if tally.queue == name],
            minutes,
        )
        for name in sorted(names)
    ]


def _covered(finished: list[Tally]) -> float:
    """How many seconds back the ended jobs reach that were looked at: less than the span, where there are too many."""
    done = [tally for tally in finished if tally.state is State.DONE]
    if sum(tally.count for tally in done) < MOST:
        return SPAN.total_seconds()
    return (1 + max(tally.slot for tally in done)) * SLOT.total_seconds()


def _queue_board(row: QueueRow, lanes: list[LaneCount], finished: list[Tally], minutes: float) -> QueueSummary:
    ready = sum(lane.ready for lane in lanes)
    done = _series(tally for tally in finished if tally.state is State.DONE)
    dead = _series(tally for tally in finished if tally.state is State.DEAD)
    return QueueSummary(
        name=row.name,
        ready=min(ready, CAP),
        ready_capped=ready > CAP,
        oldest_s=max((lane.waited.total_seconds() for lane in lanes), default=None),
        running=row.running,
        expired=row.expired,
        limit=row.limit,
        worker_limit=row.worker_limit,
        paused=row.paused,
        note=None if row.note is None else mask_text(row.note),
        done_per_minute=sum(done) / minutes,
        dead_lately=sum(dead),
        done=done,
        dead=dead,
        kinds=sorted({lane.kind for lane in lanes}),
    )


def _series(tallies: Iterable[Tally]) -> list[int]:
    """Numbers by slot of time, the newest last."""
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
            wait = say_duration(timedelta(seconds=queue.oldest_s))
            yield Attention("slow_queue", queue.name, f"the oldest job of queue {queue.name} has waited for {wait}")


def _unserved(lanes: list[LaneCount], workers: list[WorkerView]) -> Iterator[Attention]:
    """Kinds that are ready in a queue that no worker serves them in."""
    for lane in lanes:
        if not any(lane.queue in worker.queues and lane.kind in worker.kinds for worker in workers):
            many = f"{min(lane.ready, CAP):,}{'+' if lane.ready > CAP else ''}"
            text = f"no worker runs {lane.kind} in queue {lane.queue}; {many} wait"
            yield Attention("no_worker", f"{lane.queue}/{lane.kind}", text, None, lane.ready)


_WORDS = {
    "expired": "job {name} ({detail}) has lost its worker",
    "dead": "job {name} is dead ({detail})",
    "failing": "schedule {name} cannot be planned: {detail}",
    "late": "schedule {name} is due, and nobody plans it",
    "paused_schedule": "schedule {name} is paused{note}",
    "missed": "schedule {name} has skipped {n} plans ({detail})",
    "paused_batch": "batch {name} is paused",
    "stopped_batch": "batch {name} has stopped: {detail}",
}


def _told(trouble: list[Trouble]) -> Iterator[Attention]:
    for each in trouble:
        detail = mask_text((each.detail or "").partition("\n")[0])
        note = f": {detail}" if detail else ""
        text = _WORDS[each.category].format(
            name=each.name, detail=detail or "no reason is known", note=note, n=each.count
        )
        yield Attention(each.category, each.name, text, each.at, each.count)


def error_clusters(errors: Iterable[FailedJob], masks: Masks) -> list[Cluster]:
    """Dead jobs whose errors look alike, over all kinds; the largest cluster comes first."""
    return clustered(SeenError(str(each.id), each.kind, error_of(each, masks), each.at) for each in errors)


def error_of(failed: FailedJob, masks: Masks) -> str:
    """How a dead job failed, without the secrets of its payload."""
    return mask_cut(failed.error, values_of(failed.kind, failed.payload, masks.of(failed.kind)))
