"""What people and programs read: jobs, their history, and why they do not run."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from holdfast.domain.commands.command import COMMAND
from holdfast.domain.fleet.autoscaler_state import load_autoscaler_status, refusals
from holdfast.domain.fleet.queue import SILENCE, Queue, Usage
from holdfast.domain.jobs.dependencies import DependencyState
from holdfast.domain.jobs.history import Attempt, Event, WorkerIdentity, all_attempts, all_events
from holdfast.domain.jobs.job import Job, JobId, State
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.why import JobSituation, WhyReason, explain
from holdfast.errors import InvalidInput, JobPruned, NoSuchJob
from holdfast.store.engine.backend import Backend
from holdfast.store.engine.now import read_now
from holdfast.store.engine.operation import Operation, Query, query
from holdfast.store.fleet.queues import WorkerRow
from holdfast.store.jobs.selection import conditions

COUNT_CAP = 10_000


class Page(Struct, frozen=True):
    """Some jobs, the newest first, and where the next page begins."""

    jobs: list[Job]
    next: JobId | None


class Count(Struct, frozen=True):
    """How many; *capped*: at least so many."""

    count: int
    capped: bool


class JobQueries:
    """Reads. Pages and counts cost the same however many jobs there are."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def get(self, job_id: JobId) -> Job:
        """One job.

        Raises:
            NoSuchJob: It never existed, or was removed.
            JobPruned: It ended long ago; only its unique key is kept.
        """
        return self._backend.read(get_job, job_id)

    def refuse_missing(self, selector: Selector) -> None:
        """An id that does not exist is a mistake, also beside others that do.

        Raises:
            NoSuchJob: It names them.
        """
        if selector.ids is None:
            return
        found = {job.id for job in self.all(Selector(ids=selector.ids))}
        missing = [str(job_id) for job_id in selector.ids if job_id not in found]
        if missing:
            raise NoSuchJob(f"there is no job {', '.join(missing[:10])}")

    def state(self, job_id: JobId) -> State:
        """The state of one job, for those who poll."""
        rows = self._backend.look(query("get_job_state", id=job_id))
        return State(rows[0][0]) if rows else self.get(job_id).state

    def page(self, selector: Selector, *, before: JobId | None = None, limit: int = 50, brief: bool = False) -> Page:
        """Jobs that match, the newest first; *before* is the ``next`` of the page before.

        *brief*: without payload, result and checkpoint, and with the beginning of the error only.
        """
        if limit < 1:
            raise InvalidInput(f"a page holds at least one job, not {limit}")
        where, values = conditions(selector)
        if before is not None:
            where, values = (*where, "before"), {**values, "before": before}
        jobs = self._backend.look(
            Query("list_jobs_brief" if brief else "list_jobs", {**values, "limit": limit}, Job, where)
        )
        return Page(jobs, jobs[-1].id if len(jobs) == limit else None)

    def all(self, selector: Selector, *, limit: int = 500) -> Iterator[Job]:
        """All jobs that match, page by page, in flat memory."""
        before: JobId | None = None
        while True:
            page = self.page(selector, before=before, limit=limit)
            yield from page.jobs
            if page.next is None:
                return
            before = page.next

    def count(self, selector: Selector, *, cap: int = COUNT_CAP) -> Count:
        """How many jobs match, counted up to *cap*."""
        where, values = conditions(selector)
        rows = self._backend.look(Query("count_jobs", {**values, "limit": cap + 1}, None, where))
        return Count(min(rows[0][0], cap), rows[0][0] > cap)

    def attempts(self, job_id: JobId) -> list[Attempt]:
        """Every attempt at a job, the one under way included."""
        return self._backend.read(_attempts, job_id)

    def events(self, job_id: JobId) -> list[Event]:
        """The history of a job, the oldest first: it explains the job's state."""
        return self._backend.read(_events, job_id)

    def dependencies(self, job_id: JobId) -> list[DependencyState]:
        """The jobs that a job needs, and how they stand."""
        return self._backend.look(query("list_dependency_states", DependencyState, ids=[job_id]))

    def why(self, job_id: JobId) -> list[WhyReason]:
        """Why a job is not running, in words, the nearest reason first."""
        return explain(self._backend.read(_facts, job_id))


def get_job(job_id: JobId) -> Operation[Job]:
    """One job, as part of another flow."""
    if not isinstance(job_id, int) or not 0 <= job_id < 2**63:
        raise NoSuchJob(f"{job_id!r} is no job's id")
    rows: list[Job] = yield Query("list_jobs", {"ids": [job_id], "limit": 1}, Job, ("by_ids",))
    if rows:
        return rows[0]
    kept = yield query("get_job_key", id=job_id)
    if kept:
        raise JobPruned(f"job {job_id} has been pruned; its key {kept[0][0]!r} is kept", job_id=job_id)
    raise NoSuchJob(f"there is no job {job_id}", job_id=job_id)


def _attempts(job_id: JobId) -> Operation[list[Attempt]]:
    job = yield from get_job(job_id)
    rows: list[Attempt] = yield query("list_attempts", Attempt, id=job_id)
    workers: list[WorkerIdentity] = yield query("get_worker_host", WorkerIdentity, id=job.worker)
    return all_attempts(job, rows, workers[0] if workers else WorkerIdentity())


def _events(job_id: JobId) -> Operation[list[Event]]:
    job = yield from get_job(job_id)
    rows: list[Event] = yield query("list_events", Event, id=job_id)
    return all_events(job, rows)


def _facts(job_id: JobId) -> Operation[JobSituation]:
    job = yield from get_job(job_id)
    now = yield from read_now()
    queues: list[Queue] = yield query("get_queue", Queue, name=job.queue)
    usages: list[Usage] = yield query("get_queue_usage", Usage, name=job.queue, worker="")
    dependencies: list[DependencyState] = yield query("list_dependency_states", DependencyState, ids=[job_id])
    workers = yield query("count_workers", queue=job.queue, kind=job.kind, silence=SILENCE)
    ahead = yield query(
        "count_jobs_ahead", queue=job.queue, kind=job.kind, priority=job.priority, due_at=job.due_at, id=job_id
    )
    refused = (yield from _refusals(job)) if job.state is State.READY else []
    return JobSituation(
        job=job,
        now=now,
        queue=queues[0] if queues else None,
        usage=usages[0] if usages and queues[0].limited else None,
        dependencies=dependencies,
        workers=workers[0][0],
        ahead=ahead[0][0],
        refusals=refused,
    )


def _refusals(job: Job) -> Operation[list[str]]:
    """What the autoscalers of the job's queue say about it."""
    if job.kind != COMMAND:
        return []
    workers: list[WorkerRow] = yield query("list_workers", WorkerRow, silence=SILENCE)
    told = [
        (worker.host, scaling)
        for worker in workers
        if (scaling := load_autoscaler_status(worker.autoscaler)) is not None
    ]
    return refusals(job.id, job.queue, told)
