"""Queries of the dashboard. Every count has a cap, every list a limit, and an index serves each."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from holdfast.domain.fleet.queue import Queue
from holdfast.domain.jobs.dependencies import DependencyEdge, DependencyState
from holdfast.domain.jobs.history import Attempt, Event, WorkerIdentity, all_attempts, all_events
from holdfast.domain.jobs.job import Job, JobId, RunningJob, State, WorkerId
from holdfast.domain.jobs.why import OVERDUE_AFTER, WhyReason, explain
from holdfast.store.engine.operation import Noun, Operation, query, read
from holdfast.store.jobs.queries import get_job
from holdfast.store.jobs.situation import read_situation

#: Counts for people stop here and show as "1,000+".
COUNT_CAP = 1000
#: Queues, or lanes of queue and kind, that are listed.
LANE_LIMIT = 200
#: Pages read scheduled jobs again after this time.
SCHEDULED_CACHE_S = 10.0
#: Finished jobs of one state that a throughput count examines.
RECENT_CAP = 2000
NEWEST = JobId(2**62)
#: A schedule whose planner is later than this is late.
LATE_AFTER = timedelta(seconds=60)


class LaneCount(Struct, frozen=True):
    """Ready jobs of one kind in one queue: their number up to a cap, and the waiting time of the oldest."""

    queue: str
    kind: str
    ready: int
    waited: timedelta


class ScheduledLane(Struct, frozen=True):
    """Jobs of one kind in one queue among the scheduled ones that are due next."""

    queue: str
    kind: str
    scheduled: int


class QueueRow(Queue, frozen=True):
    """The settings of a queue, and its jobs that are not ready. *expired* running jobs have lost their holder."""

    running: int = 0
    expired: int = 0
    scheduled: int = 0
    waiting: int = 0
    held: int = 0


class Tally(Struct, frozen=True):
    """The number of jobs in a state (*slot* is -1), or that finished in a queue in the nth time slot before now."""

    state: State
    queue: str
    slot: int
    count: int


class Trouble(Struct, frozen=True):
    """Something that needs attention.

    *category* is expired or overdue (jobs), dead (the newest such job), unreadable (held jobs of a kind, counted up to
    one more than the cap), failing, late, missed or paused_schedule, paused_batch or stopped_batch.
    *definition*: of a schedule whose *detail* is a text; it serves to mask secrets, not for display.
    """

    category: str
    name: str
    detail: str | None
    at: datetime | None
    count: int
    definition: str | None


class FailedJob(Struct, frozen=True):
    """The last error of a job, cut if it is long. The payload serves to mask secrets, not for display."""

    id: JobId
    kind: str
    queue: str
    at: datetime
    error: str
    payload: str = "{}"


class ChangeCounters(Struct, frozen=True):
    """A string for each part of the store; it differs after a change in that part."""

    jobs: str | None
    batches: str | None
    schedules: str | None
    workers: str | None
    queues: str | None
    audit: str | None


class JobRecord(Struct, frozen=True):
    """One job with its whole history."""

    job: Job
    attempts: list[Attempt]
    events: list[Event]
    edges: list[DependencyEdge]
    why: list[WhyReason]
    now: datetime
    #: The last heartbeat of its current or last worker.
    seen_at: datetime | None


class _HistoryRow(Struct, frozen=True):
    category: str
    number: int
    token: int
    worker: WorkerId | None
    host: str | None
    pid: int | None
    version: str | None
    started_at: datetime | None
    at: datetime
    name: str | None
    exit_code: int | None
    error: str | None
    actor: str | None
    detail: str | None


class DashboardQueries(Noun):
    """Reads for pages: each method is one statement, except :meth:`job_record`, which is five."""

    _scheduled_read_at = float("-inf")
    _scheduled: Sequence[ScheduledLane] = ()

    def lanes(self, *, cap: int = COUNT_CAP) -> list[LaneCount]:
        """Ready jobs by queue and kind."""
        return self._fetch("list_ready_lanes", LaneCount, lanes=LANE_LIMIT, cap=cap + 1)

    def scheduled_lanes(self, *, limit: int = COUNT_CAP) -> list[ScheduledLane]:
        """The *limit* scheduled jobs that are due next, by queue and kind."""
        return self._fetch("list_scheduled_lanes", ScheduledLane, limit=limit)

    def recent_scheduled_lanes(self) -> Sequence[ScheduledLane]:
        """:meth:`scheduled_lanes`, as of some seconds ago: their jobs are not due yet."""
        if time.monotonic() - self._scheduled_read_at > SCHEDULED_CACHE_S:
            self._scheduled, self._scheduled_read_at = self.scheduled_lanes(), time.monotonic()
        return self._scheduled

    def queues(self, *, cap: int = COUNT_CAP) -> list[QueueRow]:
        """The queues that have settings, or jobs that are not ready."""
        return self._fetch("list_active_queues", QueueRow, lanes=LANE_LIMIT, cap=cap + 1)

    def tallies(
        self,
        *,
        cap: int = COUNT_CAP,
        span: timedelta = timedelta(hours=1),
        slot: timedelta = timedelta(minutes=1),
        most: int = RECENT_CAP,
    ) -> list[Tally]:
        """The number of jobs in each state, and of jobs that finished in the last *span*, by time slot and queue.

        Of the finished jobs, the newest *most* of each state are counted.
        """
        return self._fetch("count_jobs_by_state", Tally, cap=cap + 1, span=span, slot=slot, most=most)

    def trouble(self, *, limit: int = 20, span: timedelta = timedelta(days=1)) -> list[Trouble]:
        """Everything that needs attention: at most *limit* of each sort; plans that were missed within *span*."""
        values = {"late": LATE_AFTER, "overdue": OVERDUE_AFTER, "cap": COUNT_CAP + 1}
        return self._fetch("list_problems", Trouble, limit=limit, span=span, **values)

    def errors(self, *, before: JobId = NEWEST, limit: int = 1000) -> list[FailedJob]:
        """The errors of dead jobs, newest first."""
        return self._fetch("list_dead_job_errors", FailedJob, before=before, limit=limit)

    def retrying_errors(self, *, limit: int = 1000) -> list[FailedJob]:
        """The last errors of the newest jobs that wait for their next attempt."""
        return self._fetch("list_retrying_job_errors", FailedJob, before=NEWEST, limit=limit)

    def all_errors(self, *, page: int = 1000) -> Iterator[FailedJob]:
        """The errors of all dead jobs, newest first, page by page."""
        before = NEWEST
        while failed := self.errors(before=before, limit=page):
            yield from failed
            before = failed[-1].id

    def edges(self, job_id: JobId, *, depth: int = 3, limit: int = 200) -> list[DependencyEdge]:
        """The dependencies and dependents of a job, up to *depth* steps away and *limit* each way."""
        return self._fetch("list_dependency_edges", DependencyEdge, id=job_id, depth=depth, limit=limit)

    def running(self, *, limit: int = 1000) -> list[RunningJob]:
        """Running jobs."""
        return self._fetch("list_running_jobs", RunningJob, limit=limit)

    def change_counters(self) -> ChangeCounters:
        """The values whose comparison reveals a change; cheap enough for once a second."""
        rows: list[ChangeCounters] = self._fetch("read_change_tokens", ChangeCounters)
        return rows[0]

    @read
    def job_record(self, job_id: JobId, *, events: int = 500) -> Operation[JobRecord]:
        """One job with its attempts, its newest events, its dependencies, and why it does not run, in one snapshot.

        Raises:
            NoSuchJob: It never existed, or was deleted.
            JobPruned: It finished long ago; only its unique key is kept.
        """
        job = yield from get_job(job_id)
        rows: list[_HistoryRow] = yield query(
            "list_job_history", _HistoryRow, id=job_id, worker=job.worker, limit=events
        )
        edges: list[DependencyEdge] = yield query(
            "list_dependency_edges", DependencyEdge, id=job_id, depth=3, limit=200
        )
        direct = [edge for edge in edges if edge.way == "dependencies" and edge.depth == 1]
        dependencies = [DependencyState(edge.job_id, edge.dependency_id, edge.state) for edge in direct]
        situation = yield from read_situation(job, dependencies)
        seen_at = next((row.at for row in rows if row.category == "worker"), None)
        attempts = _attempts(job, rows)
        return JobRecord(job, attempts, _events(job, rows, attempts), edges, explain(situation), situation.now, seen_at)


def _attempts(job: Job, rows: list[_HistoryRow]) -> list[Attempt]:
    names = ("number", "token", "worker", "host", "pid", "version", "started_at", "exit_code", "error")
    attempts = [
        Attempt(**{name: getattr(row, name) for name in names}, finished_at=row.at, reason=row.name)
        for row in sorted(rows, key=lambda row: row.token)
        if row.category == "attempt"
    ]
    workers = [WorkerIdentity(row.host, row.pid, row.version) for row in rows if row.category == "worker"]
    return all_attempts(job, attempts, workers[0] if workers else WorkerIdentity())


def _events(job: Job, rows: list[_HistoryRow], attempts: list[Attempt]) -> list[Event]:
    events = sorted((row for row in rows if row.category == "event"), key=lambda row: row.token)
    recorded = [Event(row.at, row.name or "", row.actor or "", row.detail) for row in events]
    return all_events(job, recorded, attempts)
