"""Enqueueing: jobs come into the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.history import EventName
from holdfast.domain.jobs.job import JobId, Lease, OnLost, State
from holdfast.domain.jobs.new_job import Actor, Enqueued, NewJob, due_at
from holdfast.domain.jobs.unique_key import KeyHolder, OnConflict, is_free
from holdfast.domain.text import MAX_KEY, checked_actor, checked_name, checked_number, checked_text
from holdfast.errors import DuplicateJob, InvalidInput, LeaseLost, StoreUnavailable
from holdfast.store.engine.backend import Backend
from holdfast.store.engine.now import read_now
from holdfast.store.engine.operation import BulkInsert, Operation, Query, Rows, query
from holdfast.store.jobs import dependencies
from holdfast.store.jobs.events import record

SYSTEM = frozenset(str(actor) for actor in Actor)


class Jobs:
    """Enqueues jobs, one or many, in a transaction of its own or in the caller's."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def enqueue(self, request: NewJob, *, holder: Lease | None = None) -> Enqueued:
        """Enqueue one job.

        - The answer says whether the job was created, and its id in both cases.
        - When the connection breaks, the job is there once, or an error is raised.
        - *holder*: the running job on whose behalf it is enqueued, its parent.

        Raises:
            DuplicateJob: The key is taken, and ``on_conflict`` is ``raise``.
            DependencyNotFound: ``after`` names a job, key or label that does not exist.
            LeaseLost: *holder* no longer holds its lease; nothing was written.
        """
        drawn = self._backend.draw_ids(1)
        if drawn is not None and request.plain and holder is None:
            _check(request, set())
            enqueued = self._enqueue_one(request, drawn[0])
        else:
            enqueued = self._backend.write(_Enqueue([request], drawn, holder).flow)[0]
        self._backend.notify()
        return enqueued

    def _enqueue_one(self, request: NewJob, job_id: JobId) -> Enqueued:
        """The common case, in one statement. When it inserts nothing it was sent twice."""
        if not self._backend.run(_one(request, job_id), repeatable=True):
            rows = self._backend.look(query("get_job_request", id=job_id))
            if rows != [(request.kind, request.payload, request.actor)]:
                raise StoreUnavailable(
                    f"job id {job_id} is taken: the database has lost ids that it gave out before",
                    hint="Was it restored from a backup, or did a standby take over that lagged behind? Try again.",
                )
        return Enqueued(job_id, True)

    def enqueue_many(self, requests: Sequence[NewJob], *, holder: Lease | None = None) -> list[Enqueued]:
        """Enqueue many jobs in one transaction: all of them, or none.

        The answers come in the order of *requests*. Of two that share a key, the later
        one is answered with the id of the earlier.
        """
        if not requests:
            return []
        drawn = self._backend.draw_ids(len(requests))
        enqueued = self._backend.write(_Enqueue(requests, drawn, holder).flow)
        self._backend.notify()
        return enqueued

    def enqueue_on(self, connection: Any, requests: Sequence[NewJob]) -> list[Enqueued]:
        """Enqueue in the caller's transaction: the jobs exist if and only if it commits.

        Raises:
            OtherDatabase: The connection leads elsewhere.
            NoTransaction: It is in autocommit mode outside a transaction.
        """
        return self._backend.run_on(connection, _Enqueue(requests, None, None).flow())

    async def aenqueue_on(self, connection: Any, requests: Sequence[NewJob]) -> list[Enqueued]:
        """The same on an async connection."""
        return await self._backend.arun_on(connection, _Enqueue(requests, None, None).flow())


#: Says what is asked for when it is known which requests become jobs.
Arrange = Callable[[Sequence[Enqueued]], Sequence[NewJob]]


def enqueue_flow(
    requests: Sequence[NewJob], drawn: list[JobId] | None, *, arrange: Arrange | None = None
) -> Operation[list[Enqueued]]:
    """The enqueue as part of another flow; *arrange* may change the requests once their keys are settled."""
    return _Enqueue(requests, drawn, None, arrange).flow()


class _Enqueue:
    """One enqueue call, in one transaction."""

    def __init__(
        self,
        requests: Sequence[NewJob],
        drawn: list[JobId] | None,
        holder: Lease | None,
        arrange: Arrange | None = None,
    ) -> None:
        self.requests = requests
        self.drawn = drawn
        self.holder = holder
        self.arrange = arrange
        seen: set[tuple[str, str, str]] = set()
        for request in requests:
            _check(request, seen)

    def flow(self) -> Operation[list[Enqueued]]:
        if self.holder is not None:
            yield from _check_holder(self.holder)
        ids = self.drawn or (yield from draw_ids(len(self.requests)))
        now = yield from read_now()
        answers = yield from self._settle_keys(ids)
        if self.arrange is not None:
            self.requests = self.arrange(answers)
        fresh = [i for i, answer in enumerate(answers) if answer.created]
        yield from self._insert(fresh, ids, now)
        return answers

    def _insert(self, fresh: list[int], ids: Sequence[JobId], now: datetime) -> Operation[None]:
        if not fresh:
            return
        requests, own = [self.requests[i] for i in fresh], [ids[i] for i in fresh]
        yield BulkInsert("job", _job_columns(requests, own, now, self.holder))
        yield BulkInsert("live", _live_columns(requests, own, now))
        traced = {job_id: request.trace for request, job_id in zip(requests, own, strict=True) if request.trace}
        if traced:
            yield BulkInsert("trace", {"job_id": [*traced], "context": [*traced.values()]})
        # Only now: one of them may need another.
        waiting = yield from _write_needs(requests, own)
        yield from dependencies.judge_waiting(waiting)

    def _settle_keys(self, ids: Sequence[JobId]) -> Operation[list[Enqueued]]:
        """Decide for each request whether it becomes a job, by its key."""
        requested = self._wanted_keys()
        answers = [Enqueued(ids[i], True) for i in range(len(self.requests))]
        if not requested:
            return answers
        order = sorted(requested)
        holders: list[KeyHolder] = yield query(
            "claim_keys", KeyHolder, requested=self._key_columns([requested[k] for k in order], ids)
        )
        owner = {(h.kind, h.key): h.job_id for h in holders}
        taken = [h for h in holders if h.job_id != ids[requested[h.kind, h.key]]]
        if taken:
            free = yield from _free_keys(taken)
            if free:
                yield query("transfer_keys", requested=self._key_columns([requested[k] for k in sorted(free)], ids))
                owner |= {key: ids[requested[key]] for key in free}
        for i, request in enumerate(self.requests):
            if request.unique is not None and owner[_key(request)] != ids[i]:
                first = requested[_key(request)]
                answers[i] = yield from _conflict(request, owner[_key(request)], again=first != i)
        return answers

    def _wanted_keys(self) -> dict[tuple[str, str], int]:
        """Each key and the first request that wants it."""
        requested: dict[tuple[str, str], int] = {}
        for i, request in enumerate(self.requests):
            if request.unique is not None:
                requested.setdefault(_key(request), i)
        return requested

    def _key_columns(self, places: list[int], ids: Sequence[JobId]) -> Rows:
        chosen = [self.requests[i] for i in places]
        uniques = [request.unique for request in chosen if request.unique is not None]
        return Rows(
            kind=[request.kind for request in chosen],
            key=[unique.key for unique in uniques],
            job_id=[ids[i] for i in places],
            scope=[unique.scope for unique in uniques],
            period=[unique.period for unique in uniques],
        )


def _free_keys(taken: list[KeyHolder]) -> Operation[set[tuple[str, str]]]:
    """Which of these keys may change hands, looked at under their locks."""
    rows = yield query("list_live_ids", ids=[h.job_id for h in taken])
    live = {row[0] for row in rows}
    return {(h.kind, h.key) for h in taken if is_free(h, live=h.job_id in live)}


def _conflict(request: NewJob, owner: JobId, *, again: bool) -> Operation[Enqueued]:
    """The answer for a request whose key is taken; *again*: by an earlier request of the same call."""
    assert request.unique is not None
    match request.on_conflict:
        case OnConflict.SKIP:
            return Enqueued(owner, False)
        case OnConflict.RAISE:
            raise DuplicateJob(
                f"the key {request.unique.key!r} of kind {request.kind!r} is taken by job {owner}", job_id=owner
            )
        case OnConflict.REPLACE:
            if again:
                raise InvalidInput(f"two requests of one call want to replace the key {request.unique.key!r}")
            rows = yield query("replace_job", **_replacement(request, owner))
            if rows:
                yield from record(EventName.REPLACED, {owner: None}, actor=request.actor)
            return Enqueued(owner, False, bool(rows))


def _check_holder(holder: Lease) -> Operation[None]:
    rows = yield query("lock_lease", id=holder.job_id, token=holder.token)
    if not rows:
        raise LeaseLost(f"job {holder.job_id} no longer holds its lease; its children were not enqueued")


def draw_ids(count: int) -> Operation[list[JobId]]:
    """Ids for new jobs, where they are not drawn before the transaction."""
    rows = yield query("allocate_job_ids", count=count)
    if len(rows) == count:
        return [row[0] for row in rows]
    return [JobId(rows[0][0] + place) for place in range(count)]


def _one(request: NewJob, job_id: JobId) -> Query:
    return query(
        "insert_job",
        kind=request.kind,
        queue=request.queue,
        hold=request.hold,
        parent_id=request.parent_id,
        actor=request.actor,
        max_attempts=request.max_attempts,
        max_crashes=request.max_crashes,
        on_lost=request.on_lost,
        retry=request.retry,
        no_prefetch=_careful(request),
        **_replacement(request, job_id),
    )


def _replacement(request: NewJob, job_id: JobId) -> dict[str, Any]:
    return {
        "id": job_id,
        "payload": request.payload,
        "label": request.label,
        "tags": request.tags,
        "priority": request.priority,
        "delay": request.delay,
        "run_at": request.run_at,
    }


def _write_needs(requests: list[NewJob], ids: list[JobId]) -> Operation[list[JobId]]:
    """Write down who needs whom; answers the jobs that have needs."""
    requested = [(request.after, job_id) for request, job_id in zip(requests, ids, strict=True) if request.after]
    if not requested:
        return []
    by_id = {need for after, _ in requested if after.only_ids for need in after.ids}
    if by_id:  # one look for all of them
        yield from dependencies.find_dependencies(After(ids=tuple(by_id)))
    found: dict[After, Sequence[JobId]] = {}
    for after, _ in requested:
        if after not in found:
            found[after] = after.ids if after.only_ids else (yield from dependencies.find_dependencies(after))
    pairs = [(job_id, dependency_id) for after, job_id in requested for dependency_id in found[after]]
    yield query(
        "insert_dependencies",
        dependencies=Rows(job_id=[pair[0] for pair in pairs], dependency_id=[pair[1] for pair in pairs]),
    )
    return sorted({job_id for job_id, _ in pairs})


def _job_columns(requests: list[NewJob], ids: list[JobId], now: datetime, holder: Lease | None) -> dict[str, list[Any]]:
    """What was asked, column by column: most of a bulk's columns hold one value throughout."""
    return {
        "id": ids,
        "kind": [request.kind for request in requests],
        "payload": [request.payload for request in requests],
        "label": [request.label for request in requests],
        "tags": [request.tags for request in requests],
        "key": [request.unique.key if request.unique else None for request in requests],
        "parent_id": [holder.job_id if holder else request.parent_id for request in requests],
        "actor": [request.actor for request in requests],
        "created_at": [now] * len(requests),
        "max_attempts": [request.max_attempts for request in requests],
        "max_crashes": [request.max_crashes for request in requests],
        "on_lost": [request.on_lost for request in requests],
        "retry": [request.retry for request in requests],
        "after_when": [request.after.when if request.after else None for request in requests],
        "after_failed": [request.after.if_not if request.after else None for request in requests],
    }


def _live_columns(requests: list[NewJob], ids: list[JobId], now: datetime) -> dict[str, list[Any]]:
    """Where the jobs stand at first."""
    dues = [due_at(request, now) for request in requests]
    return {
        "id": ids,
        "state": [_first_state(request, due, now) for request, due in zip(requests, dues, strict=True)],
        "queue": [request.queue for request in requests],
        "kind": [request.kind for request in requests],
        "priority": [request.priority for request in requests],
        "due_at": dues,
        "no_prefetch": [_careful(request) for request in requests],
    }


def _first_state(request: NewJob, due: datetime, now: datetime) -> State:
    if request.hold:
        return State.HELD
    if request.after is not None:
        return State.WAITING
    return State.SCHEDULED if due > now else State.READY


def _key(request: NewJob) -> tuple[str, str]:
    assert request.unique is not None
    return (request.kind, request.unique.key)


def _careful(request: NewJob) -> bool:
    return request.on_lost is not OnLost.RETRY


def _check(request: NewJob, seen: set[tuple[str, str, str]]) -> None:
    """Refuse what no store should have to keep; names that were *seen* need no second look."""
    names = (request.kind, request.queue, request.actor)
    if names not in seen:
        checked_name(request.kind, what="the kind")
        checked_name(request.queue, what="the queue")
        checked_actor(request.actor, system=SYSTEM)
        seen.add(names)
    if request.label is not None:
        checked_name(request.label, what="the label")
    if request.unique is not None:
        checked_text(request.unique.key, what="the key")
        if len(request.unique.key) > MAX_KEY:
            raise InvalidInput(f"a key has at most {MAX_KEY:,} characters, this one has {len(request.unique.key):,}")
    checked_number(request.priority, what="a priority")
    if request.delay is not None and request.run_at is not None:
        raise InvalidInput("a delay and a run_at exclude each other")
    if request.run_at is not None and (not isinstance(request.run_at, datetime) or request.run_at.tzinfo is None):
        raise InvalidInput("run_at needs a time zone", hint="Use datetime.now(UTC) or an aware datetime.")
