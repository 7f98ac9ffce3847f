"""Queries for jobs: single jobs, pages, counts, their history, why they do not run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, structs

from holdfast.domain.fleet.queue import DEFAULT_QUEUE
from holdfast.domain.jobs.job import FINISHED, Job, JobId, State
from holdfast.domain.jobs.selector import Count, Glob, Selector
from holdfast.errors import InvalidInput, JobPruned, NoSuchJob, PrivilegeMissing
from holdfast.store.engine.backend import Backend
from holdfast.store.engine.operation import Noun, Operation, Query, query, read

if TYPE_CHECKING:
    from holdfast.domain.jobs.dependencies import DependencyState
    from holdfast.domain.jobs.history import Attempt, Event, WorkerIdentity
    from holdfast.domain.jobs.why import WhyReason

COUNT_CAP = 10_000
#: Declarations of secret fields are read again after this time.
SECRETS_CACHE_S = 10.0
#: A tag or a time with at most this many jobs is sparse.
MAX_SPARSE_JOBS = 5_000
#: Times before and after those of all jobs.
_BEGINNING, _END = datetime(1900, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
#: Ids that one statement reads.
ID_PAGE_SIZE = 10_000
#: The payload of a job in a brief list if it is long.
LEFT_OUT = "null"
#: The names of conditions and the values of their parameters.
Conditions = tuple[tuple[str, ...], dict[str, Any]]


class JobPage(Struct, frozen=True):
    """Some jobs, newest first, and the start of the next page."""

    jobs: list[Job]
    next: JobId | None


class _Options(Struct, frozen=True):
    """The options of a kind that lists need: the rest would be loaded for nothing."""

    queue: str = DEFAULT_QUEUE
    timeout_seconds: float | None = None


class JobQueries(Noun):
    """Reads jobs. The cost of a page or a count does not depend on the number of jobs."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._secrets: dict[str, tuple[str, ...]] = {}
        self._options: dict[str, _Options] = {}
        self._kinds_read_at = float("-inf")
        #: Whether this login may read only the jobs that it has enqueued, as producers may.
        self._reads_own = False

    def declared_secrets(self) -> dict[str, tuple[str, ...]]:
        """The payload fields of each kind that any code has ever declared as secret, read again after 10 s."""
        if time.monotonic() - self._kinds_read_at > SECRETS_CACHE_S:
            secrets: dict[str, tuple[str, ...]] = {}
            options_of: dict[str, _Options] = {}
            for name, options, secret in self._fetch("list_masked_kinds"):
                if secret is not None:
                    secrets[name] = (*secrets.get(name, ()), secret)
                else:
                    options_of[name] = msgspec.json.decode(options, type=_Options)
            self._secrets, self._options = secrets, options_of
            self._kinds_read_at = time.monotonic()
        return self._secrets

    def kind_names(self) -> list[str]:
        """The names of published kinds, as :meth:`declared_secrets` has read them."""
        self.declared_secrets()
        return sorted(self._options)

    def kind_queues(self) -> set[str]:
        """The queues in which jobs of published kinds wait, as :meth:`declared_secrets` has read them."""
        self.declared_secrets()
        return {options.queue for options in self._options.values()}

    def kind_timeout(self, kind: str) -> float | None:
        """The longest run of a kind, in seconds, as :meth:`declared_secrets` has read it."""
        self.declared_secrets()
        return None if (options := self._options.get(kind)) is None else options.timeout_seconds

    def get(self, job_id: JobId) -> Job:
        """One job.

        Raises:
            NoSuchJob: It never existed, or was deleted.
            JobPruned: It finished long ago; only its unique key is kept.
            PrivilegeMissing: This login is a producer, and another one has enqueued the job.
        """
        if not self._reads_own:
            try:
                return self._backend.read(get_job, job_id)
            except PrivilegeMissing:
                self._reads_own = True  # known from now on: the server logs each denial
        return self._backend.read(_get_own_job, job_id)

    def refuse_missing(self, selector: Selector) -> None:
        """Refuse a selector with an id that does not exist, even beside ids that do.

        Raises:
            NoSuchJob: It names the missing ids.
        """
        if selector.ids is None:
            return
        existing = self.existing(selector.ids)
        missing = [str(job_id) for job_id in selector.ids if job_id not in existing]
        if missing:
            raise NoSuchJob(f"there is no job {', '.join(missing[:10])}")

    def state(self, job_id: JobId) -> State:
        """The state of one job, cheap enough for polling."""
        rows = self._fetch("get_job_state", id=job_id)
        return State(rows[0][0]) if rows else self.get(job_id).state

    def existing(self, ids: Sequence[JobId]) -> set[JobId]:
        """Those of these jobs that exist, live or finished."""
        return {row[0] for row in self._fetch("list_job_states", ids=list(ids))} if ids else set()

    def page(self, selector: Selector, *, before: JobId | None = None, limit: int = 50, brief: bool = False) -> JobPage:
        """Matching jobs, newest first; *before* is the ``next`` of the previous page.

        *brief*: without result and checkpoint, with only the beginning of the error, and with :data:`LEFT_OUT` for a
        payload of more than 16 kB.
        """
        if limit < 1:
            raise InvalidInput(f"a page holds at least one job, not {limit}")
        where, values = self._narrowed(selector)
        if before is not None:
            where, values = (*where, "before"), {**values, "before": before}
        jobs = self._backend.fetch(
            Query("list_jobs_brief" if brief else "list_jobs", {**values, "limit": limit}, Job, where)
        )
        return JobPage(jobs, jobs[-1].id if len(jobs) == limit else None)

    def all(self, selector: Selector, *, limit: int = 500) -> Iterator[Job]:
        """All matching jobs, page by page, in constant memory."""
        before: JobId | None = None
        while True:
            page = self.page(selector, before=before, limit=limit)
            yield from page.jobs
            if page.next is None:
                return
            before = page.next

    def count(self, selector: Selector, *, cap: int = COUNT_CAP) -> Count:
        """The number of matching jobs, counted up to *cap*."""
        where, values = self._narrowed(selector)
        rows = self._backend.fetch(Query("count_jobs", {**values, "limit": cap + 1}, None, where))
        return Count(min(rows[0][0], cap), rows[0][0] > cap)

    def _narrowed(self, selector: Selector) -> Conditions:
        searches = any(_searches(selector))
        return self._backend.read(_narrowed, selector) if searches else _conditions(selector)

    @read
    def attempts(self, job_id: JobId) -> Operation[list[Attempt]]:
        """Every attempt of a job, the running one included."""
        from holdfast.domain.jobs.history import WorkerIdentity  # lists of jobs need no history

        job = yield from get_job(job_id)
        workers: list[WorkerIdentity] = yield query("get_worker_host", WorkerIdentity, id=job.worker)
        return (yield from _attempts(job, workers[0] if workers else WorkerIdentity()))

    @read
    def events(self, job_id: JobId) -> Operation[list[Event]]:
        """The history of a job, oldest first: it explains the job's state."""
        from holdfast.domain.jobs.history import Event, WorkerIdentity, all_events

        job = yield from get_job(job_id)
        rows: list[Event] = yield query("list_events", Event, id=job_id)
        return all_events(job, rows, (yield from _attempts(job, WorkerIdentity())))

    def dependencies(self, job_id: JobId) -> list[DependencyState]:
        """The dependencies of a job and their states."""
        from holdfast.domain.jobs.dependencies import DependencyState

        return self._fetch("list_dependency_states", DependencyState, ids=[job_id])

    @read
    def why(self, job_id: JobId) -> Operation[list[WhyReason]]:
        """The reasons why a job is not running, the most direct one first."""
        from holdfast.domain.jobs.why import explain
        from holdfast.store.jobs.situation import read_situation

        job = yield from get_job(job_id)
        return explain((yield from read_situation(job)))


class Traces(Noun):
    """The trace contexts that jobs were enqueued with."""

    def of(self, job_id: JobId) -> str | None:
        """The W3C trace context of a job."""
        rows: list[tuple[str]] = self._fetch("get_trace", id=job_id)
        return rows[0][0] if rows else None


def get_job(job_id: JobId) -> Operation[Job]:
    """One job, as a part of another operation."""
    _check_id(job_id)
    rows: list[Job] = yield Query("list_jobs", {"ids": [job_id], "limit": 1}, Job, ("by_ids",))
    if rows:
        return rows[0]
    raise (yield from _missing(job_id))


def _get_own_job(job_id: JobId) -> Operation[Job]:
    """One job that this login has enqueued."""
    _check_id(job_id)
    rows: list[Job] = yield query("get_own_job", Job, id=job_id)
    if rows:
        return rows[0]
    if (yield query("get_job_state", id=job_id)):
        raise PrivilegeMissing(
            f"another database user has enqueued job {job_id}: a producer reads its own jobs",
            hint="Read it with the role reader, or enqueue and wait as the same database user. See holdfast db roles.",
        )
    raise (yield from _missing(job_id))


def _check_id(job_id: JobId) -> None:
    if not isinstance(job_id, int) or not 0 <= job_id < 2**63:
        raise NoSuchJob(f"{job_id!r} is not the id of a job")


def _missing(job_id: JobId) -> Operation[NoSuchJob | JobPruned]:
    """The error for a job that is not there."""
    kept = yield query("get_job_key", id=job_id)
    if kept:
        return JobPruned(f"job {job_id} has been pruned; only its unique key is kept", job_id=job_id)
    return NoSuchJob(f"there is no job {job_id}", job_id=job_id)


def _attempts(job: Job, worker: WorkerIdentity) -> Operation[list[Attempt]]:
    from holdfast.domain.jobs.history import Attempt, all_attempts

    rows: list[Attempt] = yield query("list_attempts", Attempt, id=job.id)
    return all_attempts(job, rows, worker)


def select_ids(selector: Selector) -> Operation[list[JobId]]:
    """The ids of all matching jobs, ascending."""
    where, values = yield from _narrowed(selector)
    ids: list[JobId] = []
    while True:
        after = ids[-1] if ids else JobId(0)
        rows = yield Query("list_job_ids", {**values, "after": after, "limit": ID_PAGE_SIZE}, None, (*where, "after"))
        ids += [row[0] for row in rows]
        if len(rows) < ID_PAGE_SIZE:
            return ids


def _narrowed(selector: Selector) -> Operation[Conditions]:
    """The conditions of a selector. Where few jobs have its tags or times, the jobs themselves are named.

    A list in the order of ids would otherwise walk through all jobs to find the few.
    """
    for queries in _searches(selector):
        ids: set[JobId] = set()
        for search in queries:
            rows = yield search
            ids |= {row[0] for row in rows}
            if max(len(ids), len(rows)) > MAX_SPARSE_JOBS:
                break  # a list meets enough of them on its way
        else:
            return _conditions(structs.replace(selector, ids=tuple(sorted(ids))))
    return _conditions(selector)


def _searches(selector: Selector) -> Iterator[list[Query]]:
    """Ways to find the jobs of a selector by an index, each as one or more queries."""
    if selector.ids is not None:
        return
    limit = MAX_SPARSE_JOBS + 1
    if selector.tags is not None:
        yield [query("find_tagged", tags=list(selector.tags), limit=limit)]
    if selector.since is None and selector.until is None:
        return
    times = {"since": selector.since or _BEGINNING, "until": selector.until or _END, "limit": limit}
    if selector.selects_by_finish:
        yield [query("find_finished_between", state=state, **times) for state in selector.states or FINISHED]
    elif selector.since is not None:
        yield [query("find_created_between", **times)]


def _conditions(selector: Selector) -> Conditions:
    # The index serves whole labels, not patterns.
    by_label = "by_labels" if all(Glob(label).exact for label in selector.labels or ()) else "like_labels"
    states = selector.states or ()
    finished = "finished_" if selector.selects_by_finish else ""
    # An error is searched among jobs with errors; a constant state would lead to the index of that state.
    one_state = len(states) == 1 and selector.error is None
    possible: dict[str, tuple[str, Any]] = {
        "by_ids": ("ids", selector.ids),
        "by_keys": ("keys", selector.keys),
        by_label: ("labels", _globs(selector.labels)),
        "by_tags": ("tags", selector.tags),
        "like_queues": ("queues", _globs(selector.queues)),
        "like_kinds": ("kinds", _globs(selector.kinds)),
        f"only_{states[0]}" if one_state else "by_states": ("states", selector.states),
        "by_error": ("error", selector.error),
        "newest_of_key": ("newest", selector.newest or None),
        f"{finished}since": ("since", selector.since),
        f"{finished}until": ("until", selector.until),
    }
    present = {name: pair for name, pair in possible.items() if pair[1] is not None}
    return tuple(present), dict(present.values())


def _globs(values: tuple[str, ...] | None) -> list[Glob] | None:
    return None if values is None else [Glob(value) for value in values]
