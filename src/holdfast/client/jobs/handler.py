"""Handlers: registered functions whose calls can be enqueued as jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

import msgspec

from holdfast.client.jobs.job_ref import JobRef
from holdfast.client.jobs.registry import KindRegistry
from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.job import JobId
from holdfast.domain.jobs.json_values import to_json
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.new_job import Actor, Enqueued, KeyScope, NewJob, OnConflict, Unique
from holdfast.domain.names import checked_name
from holdfast.domain.quantities import Duration, as_duration
from holdfast.errors import InvalidInput
from holdfast.worker.tracing import enqueue_span

P = ParamSpec("P")
R = TypeVar("R")


class EnqueueOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of an enqueue; None means the default of the kind."""

    queue: str | None = None
    priority: int | None = None
    delay: timedelta | None = None
    run_at: datetime | None = None
    label: str | None = None
    tags: tuple[str, ...] = ()
    key: str | None = None
    key_for: timedelta | str | None = None
    on_conflict: OnConflict = OnConflict.SKIP
    after: After | None = None
    hold: bool = False
    actor: str = Actor.CLIENT
    connection: Any = None


class Enqueuer:
    """Enqueues jobs of one kind with one set of options."""

    def __init__(self, registry: KindRegistry, kind: Kind, options: EnqueueOptions | None = None) -> None:
        self.kind = kind
        self._registry = registry
        self._options = options or EnqueueOptions()

    def options(
        self,
        *,
        queue: str | None = None,
        priority: int | None = None,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        label: str | None = None,
        tags: Sequence[str] = (),
        key: str | None = None,
        key_for: Duration | None = None,
        on_conflict: str = "skip",
        after: After | JobRef | int | Sequence[JobRef | int] | None = None,
        hold: bool = False,
        actor: str | None = None,
        connection: Any = None,
    ) -> Enqueuer:
        """An enqueuer with these options: ``send.options(delay="5m").enqueue(to=7)``.

        *key* makes the job unique within its kind: while it is live, for the duration *key_for*, or always with
        ``key_for="ever"``. *on_conflict* decides what happens when the key is taken: ``skip``, ``replace``, ``rerun``
        or ``raise``; the ``outcome`` of the reference says what happened. *after* is a job, a list of jobs, or an
        :class:`After`. *hold* creates the job in the state ``held``. With *connection*, the jobs are enqueued in
        your own transaction on that connection.

        Raises:
            InvalidInput: An option has an invalid value.
        """
        if on_conflict not in tuple(OnConflict):
            raise InvalidInput(f"on_conflict is 'skip', 'replace', 'rerun' or 'raise', not {on_conflict!r}")
        options = EnqueueOptions(
            queue=queue,
            priority=priority,
            delay=None if delay is None else as_duration(delay),
            run_at=run_at,
            label=label,
            tags=(tags,) if isinstance(tags, str) else tuple(tags),
            key=key,
            key_for=key_for if key_for is None or key_for == "ever" else as_duration(key_for),
            on_conflict=OnConflict(on_conflict),
            after=_after(after),
            hold=hold,
            actor=actor or Actor.CLIENT,
            connection=connection,
        )
        return Enqueuer(self._registry, self.kind, options)

    def enqueue(self, *args: Any, **kwargs: Any) -> JobRef:
        """Enqueue one job; the arguments are those of a call of the handler.

        Raises:
            InvalidPayload: The arguments do not fit the handler's annotations.
        """
        payload = self.kind.bind(args, kwargs)
        with enqueue_span(self.kind.name) as trace:
            request = self.request(payload, trace)
            if self._options.connection is None:
                return self._ref(self._registry.store().jobs.enqueue(request))
            return self._ref(self._enqueue_on([request])[0])

    def enqueue_many(self, payloads: Sequence[Mapping[str, Any]]) -> list[JobRef]:
        """Enqueue one job per payload, all in one transaction."""
        with enqueue_span(self.kind.name) as trace:
            requests = [self.request(payload, trace) for payload in payloads]
            if self._options.connection is None:
                return list(map(self._ref, self._registry.store().jobs.enqueue_many(requests)))
            return list(map(self._ref, self._enqueue_on(requests)))

    async def aenqueue(self, *args: Any, **kwargs: Any) -> JobRef:
        """:meth:`enqueue` for async callers."""
        return (await self.aenqueue_many([self.kind.bind(args, kwargs)]))[0]

    async def aenqueue_many(self, payloads: Sequence[Mapping[str, Any]]) -> list[JobRef]:
        """:meth:`enqueue_many` for async callers."""
        import asyncio

        if self._options.connection is None:
            return await asyncio.to_thread(self.enqueue_many, payloads)
        connection = await driver_connection_async(self._options.connection)
        store = await asyncio.to_thread(self._registry.store_beside)
        with enqueue_span(self.kind.name) as trace:
            requests = [self.request(payload, trace) for payload in payloads]
            await store.kinds.apublish_on(connection, self._registry.unpublished())
            return list(map(self._ref, await store.jobs.aenqueue_on(connection, requests)))

    def _enqueue_on(self, requests: list[NewJob]) -> list[Enqueued]:
        connection = driver_connection(self._options.connection)
        store = self._registry.store_beside()
        store.kinds.publish_on(connection, self._registry.unpublished())
        return store.jobs.enqueue_on(connection, requests)

    def request(self, payload: Mapping[str, Any], trace: str | None = None) -> NewJob:
        """The job that an enqueue would create; *trace* is the caller's trace context."""
        options, defaults = self._options, self.kind.options
        encoded, key = self.kind.encode(payload, limit=self._registry.max_payload)
        return NewJob(
            kind=self.kind.name,
            kind_version=self.kind.options.version,
            payload=encoded,
            queue=defaults.queue if options.queue is None else options.queue,
            priority=defaults.priority if options.priority is None else options.priority,
            delay=options.delay,
            run_at=options.run_at,
            label=options.label,
            tags=_tags(options.tags),
            unique=self._unique(key),
            on_conflict=options.on_conflict,
            after=options.after,
            hold=options.hold,
            max_attempts=defaults.max_attempts,
            max_crashes=defaults.max_crashes,
            on_lost=defaults.on_lost,
            retry=defaults.retry.dumps(),
            actor=options.actor,
            trace=trace,
        )

    def _unique(self, own_key: str | None) -> Unique | None:
        options, defaults = self._options, self.kind.options
        key = own_key if options.key is None else options.key
        if key is None:
            if options.key_for is not None:
                raise InvalidInput("key_for belongs to a key")
            return None
        if options.key_for == "ever":
            return Unique(key, KeyScope.FOREVER)
        if isinstance(options.key_for, timedelta):
            return Unique(key, KeyScope.PERIOD, options.key_for)
        return Unique(key, defaults.unique_scope, defaults.unique_period)

    def _ref(self, answer: Enqueued) -> JobRef:
        return JobRef(answer.id, views=lambda: self._registry.store().views, outcome=answer.outcome)


class Handler(Generic[P, R]):
    """A registered function. Call it as before, or enqueue a call of it.

    ``options``, ``enqueue``, ``enqueue_many``, ``aenqueue`` and ``aenqueue_many`` are those of :class:`Enqueuer`.
    """

    def __init__(self, function: Callable[P, R], enqueuer: Enqueuer) -> None:
        self._function = function
        self.kind = enqueuer.kind
        self.options = enqueuer.options
        self.enqueue = enqueuer.enqueue
        self.enqueue_many = enqueuer.enqueue_many
        self.aenqueue = enqueuer.aenqueue
        self.aenqueue_many = enqueuer.aenqueue_many
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)


def _after(after: After | JobRef | int | Sequence[JobRef | int] | None) -> After | None:
    if after is None or isinstance(after, After):
        return after
    jobs = [after] if isinstance(after, (JobRef, int)) else list(after)
    if not all(isinstance(job, (JobRef, int)) for job in jobs):
        raise InvalidInput(f"after is a job, its id, or a list of them, not {after!r}")
    return After(ids=tuple(JobId(job.id if isinstance(job, JobRef) else job) for job in jobs))


def _tags(tags: tuple[str, ...]) -> str | None:
    if not tags:
        return None
    if not all(isinstance(tag, str) for tag in tags):
        raise InvalidInput(f"tags are texts, not {tags!r}")
    return to_json([checked_name(tag, label="a tag") for tag in tags], label="the tags").decode()


def driver_connection(connection: Any) -> Any:
    """The sqlite3 or psycopg connection behind *connection*."""
    if _is_async(connection):
        raise InvalidInput("this is an async connection", hint="Use await handler.aenqueue(...).")
    if _is_session(connection):
        connection = connection.connection()
    if not hasattr(connection, "exec_driver_sql"):
        return connection
    # SQLAlchemy begins lazily: without a transaction of its own it would commit nothing.
    if not connection.in_transaction():
        connection.begin()
    return connection.connection.driver_connection


async def driver_connection_async(connection: Any) -> Any:
    """The same, also for async connections and sessions of SQLAlchemy."""
    if not _is_async(connection):
        return driver_connection(connection)
    if _is_session(connection):
        connection = await connection.connection()
    if not hasattr(connection, "get_raw_connection"):
        return connection
    if not connection.in_transaction():
        await connection.begin()
    raw = await connection.get_raw_connection()
    return raw.driver_connection


def _is_session(connection: Any) -> bool:
    # The check is on the class: on an instance, SQLAlchemy would connect to the database.
    return hasattr(type(connection), "add") and hasattr(type(connection), "flush")


def _is_async(connection: Any) -> bool:
    return type(connection).__name__.startswith("Async") or type(connection).__name__ == "async_scoped_session"
