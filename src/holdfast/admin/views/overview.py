"""View of the whole store: counts, queues, workers, and problems that need attention."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from msgspec import Struct, structs

from holdfast.admin.views.fleet import (
    SLOT,
    SPAN,
    Liveness,
    QueueView,
    WaitingLane,
    WorkerView,
    queue_views,
    stop_view,
    waiting_lanes,
    worker_views,
)
from holdfast.admin.views.jobs import job_page
from holdfast.admin.views.payload_secrets import declared_secrets, definition_secrets, values_of
from holdfast.domain.access.masking import mask_cut, mask_text
from holdfast.domain.fleet.served_names import shared_names
from holdfast.domain.fleet.stop_switch import StopSwitch
from holdfast.domain.jobs.error_clusters import Cluster, SeenError, cluster_errors, cluster_key, common_text
from holdfast.domain.jobs.job import Job, State
from holdfast.domain.jobs.selector import Count, Selector
from holdfast.domain.quantities import format_duration
from holdfast.domain.schedules.decision import format_count
from holdfast.store import Store
from holdfast.store.fleet.dashboard import COUNT_CAP, ChangeCounters, FailedJob, LaneCount, Tally, Trouble

#: A queue needs attention if its oldest ready job has waited for longer.
LONG_WAIT = timedelta(minutes=15)
_TROUBLE_TEXTS = {
    "expired": "job {name} ({detail}) has lost its worker",
    "overdue": "job {name} is past its timeout since {at}; its thread cannot be stopped: holdfast ask {detail} stop",
    "dead": "{n} dead; the newest is job {name} ({detail})",
    "failing": "schedule {name} cannot be planned: {detail}",
    "late": "schedule {name} is due, and no scheduler runs",
    "paused_schedule": "schedule {name} is paused{note}",
    "missed": "schedule {name} has skipped {n} plans ({detail})",
    "paused_batch": "batch {name} is paused",
    "stopped_batch": "batch {name} has stopped: {detail}",
    "unreadable": "{n} jobs of {name} are held: their payload fits the code of no live worker (version {detail})",
}
#: Running jobs that an overview lists, and jobs of each sort whose errors are grouped.
MAX_RUNNING, MAX_CLUSTERED_JOBS = 20, 1000


class Attention(Struct, frozen=True):
    """A problem that needs an operator: its category, the object it concerns, and a sentence."""

    category: str
    name: str
    text: str
    at: datetime | None = None
    count: int = 1


class Overview(Struct, frozen=True):
    """The whole store: jobs by state, queues, workers, the newest running jobs, and problems.

    *stopped*: the stop switch of the store, if it is set.
    """

    counts: dict[State, Count]
    queues: list[QueueView]
    workers: list[WorkerView]
    running: list[Job]
    attention: list[Attention]
    stopped: StopSwitch | None
    span_s: float
    slot_s: float

    @property
    def alive(self) -> list[WorkerView]:
        return [worker for worker in self.workers if worker.alive]


class ErrorGroup(Cluster, frozen=True, kw_only=True):
    """Jobs of one kind with similar errors: *retrying* of them wait for their next attempt, the others are dead.

    *newest* is the id of a job. *command* is the next step: it retries the dead jobs, or shows the newest job.
    """

    newest: int
    retrying: int
    command: str


class ErrorClusters(Struct, frozen=True):
    """Dead and retrying jobs with similar errors; *looked_at* of the newest were examined."""

    clusters: list[ErrorGroup]
    looked_at: int


def overview(store: Store, *, cap: int = COUNT_CAP, running: int = MAX_RUNNING) -> Overview:
    """Read the whole store. The cost does not depend on the number of jobs; counts stop at *cap*.

    *running* is the number of running jobs to list.
    """
    tallies, trouble = store.dashboard.tallies(cap=cap, span=SPAN, slot=SLOT), store.dashboard.trouble()
    lanes, workers, stopped = store.dashboard.lanes(cap=cap), worker_views(store), stop_view(store)
    queues = queue_views(store, cap=cap, lanes=lanes, tallies=tallies, workers=workers)
    counts = counts_of(tallies, cap=cap)
    jobs = job_page(store, Selector(states=(State.RUNNING,)), limit=running).jobs if running else []
    attention = [
        *_stop_attention(stopped),
        *_queue_attention(queues),
        *_unserved(_waiting(store, cap, lanes), [worker for worker in workers if worker.alive]),
        *_lost_workers(workers),
        *_shared_names(store),
        *_trouble(trouble, store, counts[State.DEAD]),
    ]
    return Overview(
        counts=counts,
        queues=queues,
        workers=workers,
        running=jobs,
        attention=attention,
        stopped=stopped,
        span_s=SPAN.total_seconds(),
        slot_s=SLOT.total_seconds(),
    )


def _stop_attention(switch: StopSwitch | None) -> Iterator[Attention]:
    if switch is not None:
        yield Attention("stopped", switch.mode, switch.text, switch.at)


def job_counts(store: Store) -> tuple[dict[State, Count], list[str]]:
    """The number of jobs in each state, and the queues in which jobs finished within the last hour."""
    tallies = store.dashboard.tallies()
    return counts_of(tallies), sorted({tally.queue for tally in tallies if tally.queue})


def counts_of(tallies: Iterable[Tally], *, cap: int = COUNT_CAP) -> dict[State, Count]:
    counts = {tally.state: tally.count for tally in tallies if tally.slot < 0}
    return {state: Count(min(counts.get(state, 0), cap), counts.get(state, 0) > cap) for state in State}


def _queue_attention(queues: list[QueueView]) -> Iterator[Attention]:
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


def _waiting(store: Store, cap: int, lanes: list[LaneCount]) -> list[WaitingLane]:
    return waiting_lanes(store, cap=cap, lanes=lanes, scheduled_lanes=store.dashboard.recent_scheduled_lanes())


def _unserved(lanes: list[WaitingLane], workers: list[WorkerView]) -> Iterator[Attention]:
    """Kinds with ready or scheduled jobs in a queue in which no worker runs them."""
    for lane in lanes:
        if not any(map(lane.is_served_by, workers)):
            text = f"no worker runs {lane.kind} in queue {lane.queue}; {lane.text}"
            yield Attention("no_worker", f"{lane.queue}/{lane.kind}", text, None, lane.ready + lane.scheduled)


def _lost_workers(workers: list[WorkerView]) -> Iterator[Attention]:
    for worker in workers:
        if worker.heartbeat is not Liveness.FRESH:
            last = f"{worker.seen_at:%Y-%m-%d %H:%M:%S} UTC"
            text = f"worker {worker.id} on {worker.host} is {worker.heartbeat}: its last heartbeat was at {last}"
            yield Attention(f"{worker.heartbeat}_worker", worker.id, text, worker.seen_at)


def _shared_names(store: Store) -> Iterator[Attention]:
    """Kinds and schedules behind which live workers have different code."""
    for each in shared_names(store.workers.recent_names()):
        yield Attention("shared_name" if each.across else "moved_name", each.name, each.text)


def _trouble(rows: list[Trouble], store: Store, dead: Count) -> Iterator[Attention]:
    for row in rows:
        secrets = () if row.definition is None else definition_secrets(store, row.definition)
        detail = mask_text((row.detail or "").partition("\n")[0], secrets)
        note = f": {detail}" if detail else ""
        at = "" if row.at is None else f"{row.at:%Y-%m-%d %H:%M:%S} UTC"
        template = _TROUBLE_TEXTS[row.category]
        many = f"{COUNT_CAP:,}+" if row.count > COUNT_CAP else f"{row.count:,}"
        many = format_count(row.count) if row.category == "missed" else many
        if row.category == "dead":
            many = "1 job is" if dead.count == 1 else f"{dead.count:,}{'+' if dead.capped else ''} jobs are"
        text = template.format(name=row.name, detail=detail or "no reason is known", note=note, n=many, at=at)
        yield Attention(row.category, row.name, text, row.at, dead.count if row.category == "dead" else row.count)


def error_clusters(store: Store, *, limit: int = MAX_CLUSTERED_JOBS) -> ErrorClusters:
    """The newest *limit* dead jobs, and as many retrying ones, by similar errors; the largest cluster is the first."""
    dead, retrying = store.dashboard.errors(limit=limit), store.dashboard.retrying_errors(limit=limit)
    seen = {job.id: SeenError(job.id, job.kind, error_of(job, store), job.at) for job in (*dead, *retrying)}
    waits = Counter(cluster_key(job.kind, seen[job.id].text) for job in retrying)
    clusters = cluster_errors(seen[job_id] for job_id in sorted(seen, reverse=True))
    return ErrorClusters([_error_group(each, waits[each.key]) for each in clusters], len(seen))


def _error_group(cluster: Cluster, retrying: int) -> ErrorGroup:
    words = ["show", str(cluster.newest)]
    if retrying < cluster.count:
        text = common_text(cluster)
        words = ["retry", "--state", "dead", "--kind", cluster.kind, *(["--error", text] if text else ())]
    return ErrorGroup(**structs.asdict(cluster), retrying=retrying, command=shlex.join(["holdfast", *words]))


def error_of(failed: FailedJob, store: Store) -> str:
    """The last error of a job, with the secrets of its payload masked."""
    return mask_cut(failed.error, values_of(failed.kind, failed.payload, declared_secrets(store, failed.kind)))


def change_counters(store: Store) -> ChangeCounters:
    """A counter for each part of the store, which differs after a change in that part."""
    return store.dashboard.change_counters()
