"""Enqueue: the one way by which jobs enter the store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from holdfast.domain.jobs.job import JobId, Lease, State
from holdfast.domain.jobs.new_job import Actor, Enqueued, NewJob, due_at
from holdfast.domain.names import MAX_KEY, checked_actor, checked_name, checked_text
from holdfast.domain.quantities import checked_number
from holdfast.errors import InvalidInput, LeaseLost, StoreUnavailable
from holdfast.store.engine.operation import BulkInsert, Noun, Operation, columns_of, query, read_now
from holdfast.store.jobs import dependencies
from holdfast.store.jobs.unique_keys import replaceable_columns, reserve_keys

#: The values of a request that a replacement does not change.
_INSERTED = ("kind", "queue", "hold", "parent_id", "actor", "max_attempts", "max_crashes", "on_lost", "retry")
SYSTEM = frozenset(str(actor) for actor in Actor)


class Jobs(Noun):
    """Enqueues jobs, one or many, in a transaction of its own or in the caller's."""

    def enqueue(self, request: NewJob, *, holder: Lease | None = None) -> Enqueued:
        """Enqueue one job.

        - The answer holds the job's id, and whether the job was created.
        - When the connection breaks, the job exists once, or an error is raised.
        - *holder*: the lease of the running job that enqueues it, its parent.

        Raises:
            DuplicateJob: The key is taken, and ``on_conflict`` is ``raise``.
            DependencyNotFound: ``after`` names a job, key or label that does not exist.
            LeaseLost: *holder* no longer holds its lease; nothing was written.
        """
        check_requests([request])
        drawn = self._backend.draw_ids(1)
        if drawn is not None and request.plain and holder is None:
            enqueued = self._enqueue_one(request, drawn[0])
        else:
            enqueued = self._backend.write(_enqueue, [request], drawn, holder=holder)[0]
        return self._wake(enqueued)

    def _enqueue_one(self, request: NewJob, job_id: JobId) -> Enqueued:
        """The common case, in one statement. If it inserts nothing, it was sent twice."""
        values = {name: getattr(request, name) for name in _INSERTED} | replaceable_columns(request, job_id)
        insert = query("insert_job", no_prefetch=request.no_prefetch, **values)
        if not self._backend.run(insert, repeatable=True):
            rows = self._fetch("get_job_request", id=job_id)
            if rows != [(request.kind, request.payload, request.actor)]:
                raise StoreUnavailable(
                    f"job id {job_id} is taken: the database has lost ids that it gave out before",
                    hint="Was it restored from a backup, or did a standby take over that lagged behind? Try again.",
                )
        return Enqueued(job_id, True)

    def enqueue_many(self, requests: Sequence[NewJob], *, holder: Lease | None = None) -> list[Enqueued]:
        """Enqueue many jobs in one transaction: all of them, or none.

        The answers come in the order of *requests*. If two requests share a key, the later
        one gets the id of the earlier.
        """
        if not requests:
            return []
        check_requests(requests)
        drawn = self._backend.draw_ids(len(requests))
        return self._wake(self._backend.write(_enqueue, requests, drawn, holder=holder))

    def enqueue_on(self, connection: Any, requests: Sequence[NewJob]) -> list[Enqueued]:
        """Enqueue in the caller's transaction: the jobs exist if and only if it commits.

        Raises:
            OtherDatabase: The connection leads to another database.
            NoTransaction: The connection is in autocommit mode outside a transaction.
        """
        return self._backend.run_on(connection, enqueue_operation(requests, None))

    async def aenqueue_on(self, connection: Any, requests: Sequence[NewJob]) -> list[Enqueued]:
        """Enqueue in the caller's transaction on an async connection."""
        return await self._backend.arun_on(connection, enqueue_operation(requests, None))


def enqueue_operation(requests: Sequence[NewJob], drawn: list[JobId] | None) -> Operation[list[Enqueued]]:
    """Enqueue as a part of another operation."""
    check_requests(requests)
    return _enqueue(requests, drawn)


def _enqueue(
    requests: Sequence[NewJob], drawn: list[JobId] | None, *, holder: Lease | None = None
) -> Operation[list[Enqueued]]:
    if holder is not None:
        yield from _check_holder(holder)
    ids = drawn or (yield from draw_ids(len(requests)))
    now = yield from read_now()
    answers = yield from reserve_keys(requests, ids)
    yield from insert_jobs(requests, answers, ids, now, holder=holder)
    return answers


def _check_holder(holder: Lease) -> Operation[None]:
    rows = yield query("lock_lease", id=holder.job_id, token=holder.token)
    if not rows:
        raise LeaseLost(f"job {holder.job_id} no longer holds its lease; its children were not enqueued")


def draw_ids(count: int) -> Operation[list[JobId]]:
    """Draw ids for new jobs, on backends that draw them inside the transaction."""
    rows = yield query("allocate_job_ids", count=count)
    if len(rows) == count:
        return [row[0] for row in rows]
    return [JobId(rows[0][0] + offset) for offset in range(count)]


def insert_jobs(
    requests: Sequence[NewJob],
    answers: Sequence[Enqueued],
    ids: Sequence[JobId],
    now: datetime,
    *,
    holder: Lease | None = None,
) -> Operation[None]:
    """Insert the requests that :func:`reserve_keys` answered as created, with their dependencies."""
    created = [i for i, answer in enumerate(answers) if answer.created]
    if not created:
        return
    new, new_ids = [requests[i] for i in created], [ids[i] for i in created]
    yield BulkInsert("job", _job_columns(new, new_ids, now, holder))
    yield BulkInsert("live", _live_columns(new, new_ids, now))
    traced = {job_id: request.trace for request, job_id in zip(new, new_ids, strict=True) if request.trace}
    if traced:
        yield BulkInsert("trace", {"job_id": [*traced], "context": [*traced.values()]})
    # After the jobs: one of them may depend on another.
    waiting = yield from dependencies.write_dependencies(
        [(request.after, job_id) for request, job_id in zip(new, new_ids, strict=True) if request.after]
    )
    yield from dependencies.judge_waiting(waiting)


def _job_columns(requests: list[NewJob], ids: list[JobId], now: datetime, holder: Lease | None) -> dict[str, list[Any]]:
    return {
        "id": ids,
        **columns_of(requests, "kind", "payload", "label", "tags", "actor"),
        **columns_of(requests, "max_attempts", "max_crashes", "on_lost", "retry"),
        "key": [request.unique.key if request.unique else None for request in requests],
        "parent_id": [holder.job_id if holder else request.parent_id for request in requests],
        "created_at": [now] * len(requests),
        "after_when": [request.after.when if request.after else None for request in requests],
        "after_failed": [request.after.if_not if request.after else None for request in requests],
    }


def _live_columns(requests: list[NewJob], ids: list[JobId], now: datetime) -> dict[str, list[Any]]:
    dues = [due_at(request, now) for request in requests]
    return {
        "id": ids,
        "state": [_first_state(request, due, now) for request, due in zip(requests, dues, strict=True)],
        **columns_of(requests, "queue", "kind", "priority", "no_prefetch"),
        "due_at": dues,
    }


def _first_state(request: NewJob, due: datetime, now: datetime) -> State:
    if request.hold:
        return State.HELD
    if request.after is not None:
        return State.WAITING
    return State.SCHEDULED if due > now else State.READY


def check_requests(requests: Sequence[NewJob]) -> None:
    """Refuse requests that no store should keep, before any transaction begins."""
    checked: set[tuple[str, str, str]] = set()  # most requests of one call share their names
    for request in requests:
        names = (request.kind, request.queue, request.actor)
        if names not in checked:
            checked_name(request.kind, label="the kind")
            checked_name(request.queue, label="the queue")
            checked_actor(request.actor, system=SYSTEM)
            checked.add(names)
        _check_values(request)


def _check_values(request: NewJob) -> None:
    if request.label is not None:
        checked_name(request.label, label="the label")
    if request.unique is not None:
        checked_text(request.unique.key, label="the key")
        if len(request.unique.key) > MAX_KEY:
            raise InvalidInput(f"a key has at most {MAX_KEY:,} characters, this one has {len(request.unique.key):,}")
    checked_number(request.priority, label="a priority")
    if request.delay is not None and request.run_at is not None:
        raise InvalidInput("a delay and a run_at exclude each other")
    if request.run_at is not None and (not isinstance(request.run_at, datetime) or request.run_at.tzinfo is None):
        raise InvalidInput("run_at needs a time zone", hint="Use datetime.now(UTC) or an aware datetime.")
