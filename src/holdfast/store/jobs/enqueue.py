"""Enqueue: the one way by which jobs enter the store."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cached_property, partial
from typing import Any

from msgspec import structs

from holdfast.domain.jobs.dependencies import After, When
from holdfast.domain.jobs.job import JobId, Lease, ids_from
from holdfast.domain.jobs.new_job import MAX_PREFETCH_BYTES, Enqueued, NewJob
from holdfast.domain.jobs.request_checks import check_requests
from holdfast.errors import LeaseLost
from holdfast.store.engine.backend import IdsTaken
from holdfast.store.engine.changes import Change, Changes, jobs_in
from holdfast.store.engine.operation import (
    BulkInsert,
    Noun,
    Operation,
    Query,
    T,
    query,
    read_now,
    without_empty,
)
from holdfast.store.engine.shared_calls import SharedCalls
from holdfast.store.jobs import dependencies
from holdfast.store.jobs.job_rows import (
    insert_alike,
    insert_blocks,
    insert_one,
    job_columns,
    live_columns,
    payload_blocks,
)
from holdfast.store.jobs.unique_keys import reserve_keys

#: Attempts to find ids that are free, after a restore or a failover.
ID_TRIES = 5
#: An operation whose answers come in the order of its requests.
Answers = Operation[list[Enqueued]]


class ChildCall:
    """One enqueue by a running job, *holder*, the parent of the new one. It can be sent again and is the same call."""

    def __init__(self, holder: Lease) -> None:
        self.holder = holder
        self.nonce = _new_nonce()
        #: The id of the new job, on backends that draw ids before the transaction.
        self.drawn: Sequence[JobId] | None = None


class Jobs(Noun):
    """Enqueues jobs, one or many, in a transaction of its own or in the caller's."""

    def enqueue(self, request: NewJob) -> Enqueued:
        """Enqueue one job.

        - The answer holds the job's id, and says what happened: created, existing, replaced or rerun.
        - With ``on_conflict`` ``rerun``, a run that starts after this call sees the payload, whatever becomes of a
          run that is under way.
        - When the connection breaks, the job exists once, or an error is raised.
        - Calls of many threads at once share transactions.

        Raises:
            DuplicateJob: The key is taken, and ``on_conflict`` is ``raise``.
            JobLocked: Another transaction holds the key or a dependency for some time.
            DependencyNotFound: ``after`` names a job, key or label that does not exist.
        """
        check_requests([request])
        # SQLite has one writer, whose transactions the threads share.
        if self._backend.single_writer or not request.plain:
            return self._enqueue_single(request)
        return self._shared.call(request)

    @cached_property
    def _shared(self) -> SharedCalls[NewJob, Enqueued]:
        return SharedCalls(self._enqueue_shared)

    def _enqueue_shared(self, requests: list[NewJob]) -> list[Enqueued]:
        first = requests[0]
        if len(requests) == 1:
            return [self._enqueue_single(first)]
        if all(structs.replace(request, payload=first.payload) == first for request in requests[1:]):
            return self.enqueue_alike(first, [request.payload for request in requests])
        return self.enqueue_many(requests)

    def _enqueue_single(self, request: NewJob) -> Enqueued:
        changes = changes_of([request], at_once=True)

        def enqueue(drawn: Sequence[JobId] | None) -> Enqueued:
            if not request.plain:
                return self._wake(self._backend.write(_enqueue_alone, [request], drawn)[0], changes)
            job_id = drawn[0] if drawn else None
            rows = self._insert(partial(insert_one, request, job_id), changes, job_id)
            return Enqueued(rows[0][0] if job_id is None else job_id)  # without an id, the statement draws it

        return self._with_ids(1, enqueue)

    def enqueue_child(self, request: NewJob, call: ChildCall) -> Enqueued:
        """Enqueue one job for a running one, as :meth:`enqueue`.

        - A call that is sent again after an error creates no second job, also if the first is committed late.

        Raises:
            JobLocked: Another transaction has locked the row of the holder for some time; or as :meth:`enqueue`.
            LeaseLost: The holder no longer has its lease; nothing was written.
        """
        check_requests([request])

        def enqueue() -> Enqueued:
            if call.drawn is None:
                call.drawn = self._backend.draw_ids(1)
            try:
                return self._backend.write(_enqueue_alone, [request], call.drawn, call=call)[0]
            except IdsTaken:
                if call.drawn and self._fetch("get_job_nonce", id=call.drawn[0]) == [(call.nonce,)]:
                    return Enqueued(call.drawn[0])
                call.drawn = None
                raise

        return self._wake(self._with_free_ids(enqueue), changes_of([request]))

    def _with_ids(self, count: int, enqueue: Callable[[Sequence[JobId] | None], T]) -> T:
        """Call *enqueue* with new ids, and again with others if the database has given some out twice."""
        return self._with_free_ids(lambda: enqueue(self._backend.draw_ids(count)))

    def _with_free_ids(self, enqueue: Callable[[], T]) -> T:
        for _ in range(ID_TRIES):
            try:
                return enqueue()
            except IdsTaken:
                self._backend.discard_ids()
        return enqueue()

    def _insert(self, insert: Callable[..., Query], changes: Changes, first_id: JobId | None) -> list[Any]:
        """Insert in one statement, and notify. If an id is taken, it was sent twice, or another job has the id."""
        nonce = None if first_id is None else _new_nonce()
        with self._backend.notification(changes) as text:
            try:
                return self._backend.run(insert(nonce, text), repeatable=True)
            except IdsTaken:
                if first_id is None or self._fetch("get_job_nonce", id=first_id) != [(nonce,)]:
                    raise
        return []

    def enqueue_alike(self, request: NewJob, payloads: Sequence[str]) -> list[Enqueued]:
        """Enqueue jobs that differ in their payloads alone, as :meth:`enqueue_many`."""
        if not payloads:
            return []
        longest = max(map(len, payloads))
        special = self._backend.single_writer or not request.plain or longest > MAX_PREFETCH_BYTES
        blocks = None if special else payload_blocks(payloads, longest)
        if blocks is None:
            return self.enqueue_many([structs.replace(request, payload=payload) for payload in payloads])
        check_requests([request])
        changes = changes_of([request], at_once=len(blocks) == 1)

        def enqueue(ids: Sequence[JobId] | None) -> list[Enqueued]:
            assert ids is not None
            if len(blocks) == 1:
                self._insert(partial(insert_alike, request, ids, blocks[0]), changes, ids[0])
            else:
                self._backend.write(insert_blocks, request, ids, blocks)
                self._backend.notify(changes)
            return list(map(Enqueued, ids))

        return self._with_ids(len(payloads), enqueue)

    def enqueue_many(self, requests: Sequence[NewJob]) -> list[Enqueued]:
        """Enqueue many jobs in one transaction: all of them, or none.

        The answers come in the order of *requests*. If two requests share a key, the later
        one gets the id of the earlier.
        """
        if not requests:
            return []
        check_requests(requests)
        answers = self._with_ids(len(requests), lambda drawn: self._backend.write(_enqueue_alone, requests, drawn))
        return self._wake(answers, changes_of(requests))

    def enqueue_on(self, connection: Any, requests: Sequence[NewJob]) -> list[Enqueued]:
        """Enqueue in the caller's transaction: the jobs exist if and only if it commits.

        Raises:
            OtherDatabase: The connection leads to another database.
            NoTransaction: The connection is in autocommit mode outside a transaction.
        """
        changes = changes_of(requests)
        # What fails leaves nothing in the caller's transaction, so that it can be tried again there.
        return self._with_free_ids(lambda: self._backend.run_on(connection, enqueue_operation(requests, None), changes))

    async def aenqueue_on(self, connection: Any, requests: Sequence[NewJob]) -> list[Enqueued]:
        """Enqueue in the caller's transaction on an async connection."""
        changes = changes_of(requests)
        for _ in range(ID_TRIES):
            try:
                return await self._backend.arun_on(connection, enqueue_operation(requests, None), changes)
            except IdsTaken:
                self._backend.discard_ids()
        return await self._backend.arun_on(connection, enqueue_operation(requests, None), changes)


def changes_of(requests: Sequence[NewJob], *, at_once: bool = False) -> Changes:
    """What workers have to know of new jobs. A ``run_at`` may be past already; a held job starts nothing.

    *at_once*: they become ready within a moment. In a longer transaction, jobs that are due later may begin before.
    """
    ready = jobs_in({request.queue for request in requests if not request.hold and not request.delay})
    if ready and not (at_once and all(map(_comes_last, requests))):
        ready |= {Change.EARLIER}
    if any(request.delay or request.run_at for request in requests):
        ready |= {Change.DELAYED}
    return ready


def _comes_last(request: NewJob) -> bool:
    """Whether every job before it was enqueued before it."""
    return request.plain and not (request.priority or request.run_at)


def enqueue_operation(requests: Sequence[NewJob], drawn: Sequence[JobId] | None) -> Answers:
    """Enqueue as a part of another operation."""
    check_requests(requests)
    return _enqueue(requests, drawn)


def _new_nonce() -> int:
    return int.from_bytes(os.urandom(8), signed=True)


def _enqueue(requests: Sequence[NewJob], drawn: Sequence[JobId] | None, *, call: ChildCall | None = None) -> Answers:
    ids = drawn or (yield from draw_ids(len(requests)))
    now = yield from read_now()
    answers = yield from reserve_keys(requests, ids)
    yield from insert_jobs(requests, answers, ids, now, call=call)
    return answers


def _enqueue_alone(requests: Sequence[NewJob], drawn: Sequence[JobId] | None, call: ChildCall | None = None) -> Answers:
    """Enqueue in a transaction of its own. Its waits for keys and dependencies are short: it keeps a connection."""
    if call is not None:
        yield from _check_holder(call.holder)
    if any(request.unique or request.after for request in requests):
        yield query("limit_lock_waits", longest="1s" if call else "5s")
    return (yield from _enqueue(requests, drawn, call=call))


def _check_holder(holder: Lease) -> Operation[None]:
    rows = yield query("lock_lease", **holder.fence)
    if not rows:
        raise LeaseLost(f"job {holder.job_id} no longer holds its lease; its children were not enqueued")


def draw_ids(count: int) -> Operation[Sequence[JobId]]:
    """Draw ids for new jobs, on backends that draw them inside the transaction."""
    ((first,),) = yield query("allocate_job_ids", count=count)
    return ids_from(first, count)


def insert_jobs(
    requests: Sequence[NewJob],
    answers: Sequence[Enqueued],
    ids: Sequence[JobId],
    now: datetime,
    *,
    call: ChildCall | None = None,
) -> Operation[None]:
    """Insert the requests that :func:`reserve_keys` answered as created, with their dependencies."""
    created = [i for i, answer in enumerate(answers) if answer.created]
    if not created:
        return
    new, new_ids = [_following(requests[i], answers[i]) for i in created], [ids[i] for i in created]
    parent, nonce = (call.holder.job_id, call.nonce) if call else (None, None)
    yield BulkInsert("job", without_empty(job_columns(new, new_ids, now, parent=parent, nonce=nonce)))
    yield BulkInsert("live", live_columns(new, new_ids, now))
    traced = {job_id: request.trace for request, job_id in zip(new, new_ids, strict=True) if request.trace}
    if traced:
        yield BulkInsert("trace", {"job_id": [*traced], "context": [*traced.values()]})
    # After the jobs: one of them may depend on another.
    waiting = yield from dependencies.write_dependencies(
        [(request.after, job_id) for request, job_id in zip(new, new_ids, strict=True) if request.after]
    )
    yield from dependencies.judge_waiting(waiting)


def _following(request: NewJob, answer: Enqueued) -> NewJob:
    """The request of a rerun starts after the job that is running, however that one finishes."""
    if answer.waits_for is None:
        return request
    return structs.replace(request, after=After(ids=(answer.waits_for,), when=When.FINISHED))
