"""Enqueue: the one way by which jobs enter the store."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

from msgspec import structs

from holdfast.domain.jobs.dependencies import After, When
from holdfast.domain.jobs.job import JobId, Lease, State, ids_from
from holdfast.domain.jobs.lane_position import EarlierJobs
from holdfast.domain.jobs.new_job import MAX_PREFETCH_BYTES, Enqueued, NewJob
from holdfast.domain.jobs.request_checks import check_requests
from holdfast.errors import LeaseLost
from holdfast.store.engine.backend import IdsTaken
from holdfast.store.engine.changes import Change, Changes, jobs_at, jobs_in
from holdfast.store.engine.interrupts import uninterrupted
from holdfast.store.engine.operation import (
    BulkInsert,
    MadeReady,
    Noun,
    Operation,
    Query,
    query,
    read_now,
    without_empty,
)
from holdfast.store.jobs import dependencies
from holdfast.store.jobs.job_rows import (
    insert_alike,
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
#: Builds a statement from ids, a nonce and the text of a notification.
Insert = Callable[[Sequence[JobId] | None, int | None, str | None], Query]


class EnqueueCall:
    """A call that enqueues jobs; by a running job if it has a *holder*, the parent of the new ones.

    It can be sent any number of times, by any path, and is the same call: its ids and its nonce are chosen before it is
    sent, and its jobs keep both. A repetition meets the jobs of the first try: their ids are taken, by its own nonce.
    """

    __slots__ = ("_nonce", "answers", "holder", "ids")

    def __init__(self, holder: Lease | None = None) -> None:
        self.holder = holder
        self._nonce: int | None = None
        #: The consecutive ids of its jobs; None on SQLite, where the transaction draws them.
        self.ids: Sequence[JobId] | None = None
        #: The answers of the last try that wrote everything. No other try can have been committed.
        self.answers: list[Enqueued] | None = None

    @property
    def nonce(self) -> int:
        """A random number, drawn on its first use."""
        if self._nonce is None:
            self._nonce = int.from_bytes(os.urandom(8), signed=True)
        return self._nonce


class Jobs(Noun):
    """Enqueues jobs, one or many, in a transaction of its own or in the caller's."""

    @uninterrupted
    def enqueue(self, request: NewJob) -> Enqueued:
        """Enqueue one job.

        - The answer holds the job's id, and says what happened: created, existing, replaced or rerun.
        - With ``on_conflict`` ``rerun``, a run that starts after this call sees the payload, whatever becomes of a
          run that is under way.
        - When the connection breaks, the job exists once, or an error is raised.

        Raises:
            DuplicateJob: The key is taken, and ``on_conflict`` is ``raise``.
            JobLocked: Another transaction holds the key or a dependency for some time.
            DependencyNotFound: ``after`` names a job, key or label that does not exist.
        """
        check_requests([request])
        call, changes = EnqueueCall(), changes_of([request], at_once=True, placed=not request.plain)
        if request.plain:
            return self._send(call, 1, changes, lambda: self._insert(call, partial(insert_one, request), changes))[0]
        return self._write([request], call, changes)[0]

    def enqueue_child(self, request: NewJob, call: EnqueueCall) -> Enqueued:
        """Enqueue one job for a running one, the holder of *call*, as :meth:`enqueue`.

        - A call that is sent again after an error creates no second job, also if the first is committed late.

        Raises:
            JobLocked: Another transaction has locked the row of the holder for some time; or as :meth:`enqueue`.
            LeaseLost: The holder no longer has its lease; nothing was written.
        """
        check_requests([request])
        return self._write([request], call, changes_of([request], placed=True))[0]

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
        call, changes = EnqueueCall(), changes_of([request], at_once=len(blocks) == 1)
        if len(blocks) == 1:
            insert = partial(insert_alike, request, blocks[0])
            return self._send(call, len(payloads), changes, lambda: self._insert(call, insert, changes))
        operation = partial(_insert_blocks, request, call, blocks)
        return self._send(call, len(payloads), changes, lambda: self._commit(call, changes, operation))

    def enqueue_many(self, requests: Sequence[NewJob]) -> list[Enqueued]:
        """Enqueue many jobs in one transaction: all of them, or none.

        The answers come in the order of *requests*. If two requests share a key, the later
        one gets the id of the earlier.
        """
        if not requests:
            return []
        check_requests(requests)
        return self._write(requests, EnqueueCall(), changes_of(requests, placed=True))

    def _write(self, requests: Sequence[NewJob], call: EnqueueCall, changes: Changes) -> list[Enqueued]:
        """Enqueue by an operation, in a transaction of its own."""
        operation = partial(_enqueue_alone, requests, call)
        return self._send(call, len(requests), changes, lambda: self._commit(call, changes, operation))

    def _commit(self, call: EnqueueCall, changes: Changes, operation: Callable[[], Answers]) -> list[Enqueued]:
        return self._wake(self._backend.write(_unless_done, call, operation), changes)

    def _insert(self, call: EnqueueCall, insert: Insert, changes: Changes) -> list[Enqueued]:
        """Enqueue by one statement, which is sent again until it is answered, and notify with its commit."""
        call.answers = [*map(Enqueued, call.ids or ())]
        with self._backend.notification(changes) as text:
            # Without ids the statement draws one, on SQLite, which answers always: it is never repeated.
            rows = self._backend.run(insert(call.ids, call.nonce if call.ids else None, text), repeatable=True)
        return call.answers or [Enqueued(rows[0][0])]

    def _send(
        self, call: EnqueueCall, count: int, changes: Changes, send: Callable[[], list[Enqueued]]
    ) -> list[Enqueued]:
        """Draw the ids of *call* and *send* it; with other ids again, if the database has given some out twice.

        If they are taken by jobs of the same call, its first try was committed, and only the answer was lost.
        """
        for tries_left in reversed(range(ID_TRIES + 1)):
            if call.ids is None:
                call.ids = self._backend.draw_ids(count)
            try:
                return send()
            except IdsTaken:
                if call.answers is not None and self._backend.read(_is_done, call.answers, call.nonce):
                    return self._wake(call.answers, changes)
                call.ids = call.answers = None
                self._backend.discard_ids()
                if not tries_left:
                    raise
        raise AssertionError("the last try has raised")

    def enqueue_on(self, connection: Any, requests: Sequence[NewJob]) -> list[Enqueued]:
        """Enqueue in the caller's transaction: the jobs exist if and only if it commits.

        Raises:
            OtherDatabase: The connection leads to another database.
            NoTransaction: The connection is in autocommit mode outside a transaction.
        """
        changes = changes_of(requests, placed=True)
        for _ in range(ID_TRIES):
            with suppress(IdsTaken):  # a try that failed has left nothing in the caller's transaction
                return self._backend.run_on(connection, enqueue_operation(requests), changes)
            self._backend.discard_ids()
        return self._backend.run_on(connection, enqueue_operation(requests), changes)

    async def aenqueue_on(self, connection: Any, requests: Sequence[NewJob]) -> list[Enqueued]:
        """Enqueue in the caller's transaction on an async connection."""
        changes = changes_of(requests, placed=True)
        for _ in range(ID_TRIES):
            with suppress(IdsTaken):
                return await self._backend.arun_on(connection, enqueue_operation(requests), changes)
            self._backend.discard_ids()
        return await self._backend.arun_on(connection, enqueue_operation(requests), changes)


def changes_of(requests: Sequence[NewJob], *, at_once: bool = False, placed: bool = False) -> Changes:
    """What workers have to know of new jobs. A ``run_at`` may be past already; a held job starts nothing.

    *at_once*: they become ready within a moment. In a longer transaction, jobs that are due later may begin before.
    *placed*: the operation itself says where they are.
    """
    ready = [request for request in requests if not request.hold and not request.delay]
    changes = jobs_in({request.queue for request in ready})
    if not placed:
        before = [request for request in ready if not (at_once and _comes_last(request))]
        if any(not at_once or request.run_at for request in before):
            changes |= {Change.EARLIER}
        else:
            changes |= jobs_at(EarlierJobs(request.queue, request.kind, request.priority) for request in before)
    if any(request.delay or request.run_at for request in requests):
        changes |= {Change.DELAYED}
    return changes


def _comes_last(request: NewJob) -> bool:
    """Whether every job before it was enqueued before it."""
    return request.plain and not (request.priority or request.run_at)


def enqueue_operation(requests: Sequence[NewJob]) -> Answers:
    """Enqueue as a part of another operation."""
    check_requests(requests)
    return _enqueue(requests)


def _enqueue(requests: Sequence[NewJob], call: EnqueueCall | None = None) -> Answers:
    ids = (call and call.ids) or (yield from draw_ids(len(requests)))
    now = yield from read_now()
    answers = yield from reserve_keys(requests, ids)
    yield from insert_jobs(requests, answers, ids, now, call=call)
    return answers


def _unless_done(call: EnqueueCall, operation: Callable[[], Answers]) -> Answers:
    """Run *operation* in a transaction of its own, unless an earlier try of *call* was committed."""
    if call.holder is not None:
        yield from _check_holder(call.holder)
    if call.answers is not None and (yield from _is_done(call.answers, call.nonce)):
        return call.answers
    # Only now: if these ids are taken, the answers before decide whether this call has taken them.
    call.answers = answers = yield from operation()
    return answers


def _is_done(answers: Sequence[Enqueued], nonce: int) -> Operation[bool]:
    """Whether a try with these answers was committed. One that created nothing can be repeated."""
    created = [answer.id for answer in answers if answer.created]
    if not created:
        return False
    rows = yield query("count_jobs_of_call", first=created[0], last=created[-1], nonce=nonce)
    return bool(rows[0][0])


def _enqueue_alone(requests: Sequence[NewJob], call: EnqueueCall) -> Answers:
    """Enqueue. Its waits for keys and dependencies are short: it keeps a connection."""
    if any(request.unique or request.after for request in requests):
        yield query("limit_lock_waits", longest="1s" if call.holder else "5s")
    return (yield from _enqueue(requests, call))


def _insert_blocks(request: NewJob, call: EnqueueCall, blocks: list[str]) -> Answers:
    """Enqueue jobs that differ in their payloads alone, by several statements."""
    assert call.ids is not None
    start = 0
    for block in blocks:
        end = start + block.count("\n") + 1
        yield insert_alike(request, block, call.ids[start:end], call.nonce, None)
        start = end
    return [*map(Enqueued, call.ids)]


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
    call: EnqueueCall | None = None,
) -> Operation[None]:
    """Insert the requests that :func:`reserve_keys` answered as created, with their dependencies."""
    created = [i for i, answer in enumerate(answers) if answer.created]
    if not created:
        return
    new, new_ids = [_following(requests[i], answers[i]) for i in created], [ids[i] for i in created]
    parent = call.holder.job_id if call and call.holder else None
    nonce = call.nonce if call else None
    yield BulkInsert("job", without_empty(job_columns(new, new_ids, now, parent=parent, nonce=nonce)))
    yield BulkInsert("live", live := live_columns(new, new_ids, now))
    yield MadeReady(_ready_jobs(live))
    traced = {job_id: request.trace for request, job_id in zip(new, new_ids, strict=True) if request.trace}
    if traced:
        yield BulkInsert("trace", {"job_id": [*traced], "context": [*traced.values()]})
    # After the jobs: one of them may depend on another.
    waiting = yield from dependencies.write_dependencies(
        [(request.after, job_id) for request, job_id in zip(new, new_ids, strict=True) if request.after]
    )
    yield from dependencies.judge_waiting(waiting)


def _ready_jobs(live: dict[str, list[Any]]) -> list[EarlierJobs]:
    """The places of those that are ready at once. Their transaction may last, and jobs after them may have begun."""
    rows = zip(*(live[name] for name in ("state", "queue", "kind", "priority", "due_at")), strict=True)
    places = {place[1:] for place in rows if place[0] is State.READY}
    return [EarlierJobs(queue, kind, priority, due_at, due_at) for queue, kind, priority, due_at in places]


def _following(request: NewJob, answer: Enqueued) -> NewJob:
    """The request of a rerun starts after the job that is running, however that one finishes."""
    if answer.waits_for is None:
        return request
    return structs.replace(request, after=After(ids=(answer.waits_for,), when=When.FINISHED))
