"""What the dashboard shows in one look. Counts stop at a cap, lists at a limit, each is found by an index."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from msgspec import Struct

from holdfast.domain.fleet.queue import SILENCE, Queue, Usage
from holdfast.domain.jobs.dependencies import DependencyState
from holdfast.domain.jobs.history import Attempt, Event, WorkerIdentity, all_attempts, all_events
from holdfast.domain.jobs.job import Job, JobId, State, WorkerId
from holdfast.domain.jobs.why import JobSituation, WhyReason, explain
from holdfast.store.engine.backend import Backend
from holdfast.store.engine.operation import Operation, query
from holdfast.store.jobs.queries import get_job

#: Whatever is counted for people is counted up to this many: then it is "1,000+".
CAP = 1000
#: Queues, or lanes of queue and kind, that are told apart.
LANES = 200
#: Ended jobs of one state that are looked at to tell how fast work goes.
MOST = 2000
NEWEST = JobId(2**62)
#: A planner that looks later than so is late.
LATE = timedelta(seconds=60)


class LaneCount(Struct, frozen=True):
    """Ready jobs of one kind in one queue: how many, counted up to a cap, and how long the oldest has waited."""

    queue: str
    kind: str
    ready: int
    waited: timedelta


class QueueRow(Struct, frozen=True):
    """A queue that has settings, or in which something runs."""

    name: str
    limit: int | None
    worker_limit: int | None
    paused: bool
    note: str | None
    running: int
    expired: int


class Tally(Struct, frozen=True):
    """How many jobs are in a state (*slot* is -1), or have ended in a queue in the nth slot of time before now."""

    state: State
    queue: str
    slot: int
    count: int


class Trouble(Struct, frozen=True):
    """Something that wants a look.

    *what* is lapsed or dead (jobs), failing, late, missed or paused_schedule, paused_batch or stopped_batch.
    """

    category: str
    name: str
    detail: str | None
    at: datetime | None
    count: int


class FailedJob(Struct, frozen=True):
    """How a dead job failed; a long error is cut. The payload is for finding secrets in it, not for showing."""

    id: JobId
    kind: str
    queue: str
    at: datetime
    error: str
    payload: str = "{}"


class DependencyEdge(Struct, frozen=True):
    """*job_id* needs *dependency_id*; state, kind and label are of the one farther from where one looks (*way*)."""

    way: str
    job_id: JobId
    dependency_id: JobId
    depth: int
    state: State | None
    kind: str | None
    label: str | None

    @property
    def far(self) -> JobId:
        return self.dependency_id if self.way == "dependencies" else self.job_id


class RunningJob(Struct, frozen=True):
    """A job that runs now, and where."""

    id: JobId
    kind: str
    queue: str
    worker: WorkerId
    claimed_at: datetime
    started_at: datetime | None
    lease_expires_at: datetime
    progress_done: int | None
    progress_total: int | None


class ChangeCounters(Struct, frozen=True):
    """A word for each part of the store; it is another word when something in that part has changed."""

    jobs: str | None
    batches: str | None
    schedules: str | None
    workers: str | None
    queues: str | None
    acts: str | None


class JobRecord(Struct, frozen=True):
    """All there is to say about one job."""

    job: Job
    attempts: list[Attempt]
    events: list[Event]
    edges: list[DependencyEdge]
    why: list[WhyReason]
    now: datetime
    #: When the worker that has it, or had it last, was seen.
    seen_at: datetime | None


class _Told(Struct, frozen=True):
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


class _WhyFacts(Struct, frozen=True):
    now: datetime
    name: str | None
    limit: int | None
    worker_limit: int | None
    paused: bool
    note: str | None
    running: int
    workers: int
    ahead: int


class DashboardQueries:
    """Reads for pages: each method is one statement, but for :meth:`story`, which is four."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def lanes(self, *, cap: int = CAP) -> list[LaneCount]:
        """Ready jobs by queue and kind."""
        return self._backend.look(query("list_ready_lanes", LaneCount, lanes=LANES, cap=cap + 1))

    def queues(self, *, cap: int = CAP) -> list[QueueRow]:
        """The queues that have settings, or in which something runs."""
        return self._backend.look(query("list_active_queues", QueueRow, lanes=LANES, cap=cap + 1))

    def tallies(
        self,
        *,
        cap: int = CAP,
        span: timedelta = timedelta(hours=1),
        slot: timedelta = timedelta(minutes=1),
        most: int = MOST,
    ) -> list[Tally]:
        """How many jobs are in each state, and what ended in the last *span*, in slots of time, by queue.

        Of what ended lately the newest *most* of each state are looked at.
        """
        return self._backend.look(query("count_jobs_by_state", Tally, cap=cap + 1, span=span, slot=slot, most=most))

    def trouble(self, *, limit: int = 20, span: timedelta = timedelta(days=1)) -> list[Trouble]:
        """What wants a look: at most *limit* of each sort; plans that were missed within *span*."""
        return self._backend.look(query("list_problems", Trouble, limit=limit, span=span, late=LATE))

    def errors(self, *, before: JobId = NEWEST, limit: int = 1000) -> list[FailedJob]:
        """How dead jobs failed, the newest first."""
        return self._backend.look(query("list_dead_job_errors", FailedJob, before=before, limit=limit))

    def all_errors(self, *, page: int = 1000) -> Iterator[FailedJob]:
        """The same of all of them, page by page."""
        before = NEWEST
        while found := self.errors(before=before, limit=page):
            yield from found
            before = found[-1].id

    def edges(self, job_id: JobId, *, depth: int = 3, limit: int = 200) -> list[DependencyEdge]:
        """What a job needs and what needs it, up to *depth* steps away and *limit* each way."""
        return self._backend.look(query("list_dependency_edges", DependencyEdge, id=job_id, depth=depth, limit=limit))

    def running(self, *, limit: int = 1000) -> list[RunningJob]:
        """Jobs that run now."""
        return self._backend.look(query("list_running_jobs", RunningJob, limit=limit))

    def pulse(self) -> ChangeCounters:
        """What has to be compared to know that something changed: cheap enough for once a second."""
        rows: list[ChangeCounters] = self._backend.look(query("read_change_tokens", ChangeCounters))
        return rows[0]

    def story(self, job_id: JobId, *, events: int = 500) -> JobRecord:
        """One job with its attempts, its newest events, its needs, and why it does not run: all of one moment.

        Raises:
            NoSuchJob: It never existed, or was removed.
            JobPruned: It ended long ago; only its unique key is kept.
        """
        return self._backend.read(_story, job_id, events)


def _story(job_id: JobId, limit: int) -> Operation[JobRecord]:
    job = yield from get_job(job_id)
    told: list[_Told] = yield query("list_job_history", _Told, id=job_id, worker=job.worker, limit=limit)
    edges: list[DependencyEdge] = yield query("list_dependency_edges", DependencyEdge, id=job_id, depth=3, limit=200)
    place = {"priority": job.priority, "due_at": job.due_at, "id": job_id}
    rows: list[_WhyFacts] = yield query(
        "explain_job", _WhyFacts, queue=job.queue, kind=job.kind, silence=SILENCE, **place
    )
    seen_at = next((each.at for each in told if each.category == "worker"), None)
    why = explain(_facts(job, edges, rows[0]))
    return JobRecord(job, _attempts(job, told), _events(job, told), edges, why, rows[0].now, seen_at)


def _attempts(job: Job, told: list[_Told]) -> list[Attempt]:
    rows = [
        Attempt(
            number=each.number,
            token=each.token,  # type: ignore[arg-type]
            worker=each.worker,
            host=each.host,
            pid=each.pid,
            version=each.version,
            started_at=each.started_at,
            finished_at=each.at,
            reason=each.name,
            exit_code=each.exit_code,
            error=each.error,
        )
        for each in sorted(told, key=lambda each: each.token)
        if each.category == "attempt"
    ]
    here = next(
        (WorkerIdentity(each.host, each.pid, each.version) for each in told if each.category == "worker"),
        WorkerIdentity(),
    )
    return all_attempts(job, rows, here)


def _events(job: Job, told: list[_Told]) -> list[Event]:
    found = sorted((each for each in told if each.category == "event"), key=lambda each: each.token)
    return all_events(job, [Event(each.at, each.name or "", each.actor or "", each.detail) for each in found])


def _facts(job: Job, edges: list[DependencyEdge], facts: _WhyFacts) -> JobSituation:
    queue = None
    if facts.name is not None:
        queue = Queue(facts.name, facts.limit, facts.worker_limit, facts.paused, facts.note)
    usage = Usage(job.queue, facts.limit, facts.worker_limit, facts.running, 0) if queue and queue.limited else None
    direct = [edge for edge in edges if edge.way == "dependencies" and edge.depth == 1]
    return JobSituation(
        job=job,
        now=facts.now,
        queue=queue,
        usage=usage,
        dependencies=[DependencyState(edge.job_id, edge.dependency_id, edge.state) for edge in direct],
        workers=facts.workers,
        ahead=facts.ahead,
    )
