"""Handlers: registered functions whose calls can be enqueued as jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, cast

from msgspec import structs

from holdfast.client.jobs.job_ref import JobRef
from holdfast.client.jobs.kind_registry import KindRegistry
from holdfast.domain.jobs.enqueue_options import EnqueueArguments, EnqueueOptions, complete
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.new_job import Actor, Enqueued, NewJob
from holdfast.domain.jobs.request_checks import SYSTEM
from holdfast.domain.names import checked_actor
from holdfast.errors import InvalidInput
from holdfast.worker.tracing import enqueue_span

P = ParamSpec("P")
R = TypeVar("R")


class Enqueuer:
    """Enqueues jobs of one kind with one set of options."""

    def __init__(
        self,
        registry: KindRegistry,
        kind: Kind,
        options: EnqueueOptions | None = None,
        *,
        actor: str | None = None,
        connection: Any = None,
    ) -> None:
        self.kind = kind
        self._registry = registry
        self._options = options or EnqueueOptions()
        self._actor = checked_actor(actor, system=SYSTEM) if actor else Actor.CLIENT
        self._connection = connection
        self._views = lambda: registry.store().views

    def options(self, **options: Unpack[EnqueueArguments]) -> Enqueuer:
        """An enqueuer with these options: ``send.options(delay="5m").enqueue(to=7)``.

        - *queue* and *priority* replace those of the kind. *delay* is a duration from now, *run_at* a point in time.
        - *label* and *tags* are names to find the job by.
        - *key* makes the job unique within its kind: while it is live, for the duration *key_for*, or always with
          ``key_for="ever"``. *on_conflict* decides what happens when the key is taken: ``skip``, ``replace``, ``rerun``
          or ``raise``; the ``outcome`` of the reference says what happened.
        - *after* is a job, a list of jobs, or an :class:`After`. *hold* creates the job in the state ``held``.
        - *max_attempts* (0: no limit), *timeout* of one run (0: no limit) and *retry*, a curve or a list of delays,
          replace those of the kind.
        - *actor* is the name in the history. With *connection*, the jobs are enqueued in your own transaction on that
          connection.

        Raises:
            InvalidInput: An option has an invalid value.
        """
        actor, connection = options.pop("actor", None), options.pop("connection", None)
        return Enqueuer(
            self._registry, self.kind, EnqueueOptions(**cast("Any", options)), actor=actor, connection=connection
        )

    def enqueue(self, *args: Any, **kwargs: Any) -> JobRef:
        """Enqueue one job; the arguments are those of a call of the handler.

        Raises:
            InvalidPayload: The arguments do not fit the handler's annotations.
        """
        payload = self.kind.bind(args, kwargs)
        with enqueue_span(self.kind.name) as trace:
            request = self.request(payload, trace)
            if self._connection is None:
                return self._ref(self._registry.store().jobs.enqueue(request))
            return self._ref(self._enqueue_on([request])[0])

    def enqueue_many(self, payloads: Sequence[Mapping[str, Any]]) -> list[JobRef]:
        """Enqueue one job per payload, all in one transaction."""
        with enqueue_span(self.kind.name) as trace:
            if self._connection is None and not self.kind.options.unique:
                texts = self.kind.encode_many(payloads, limit=self._registry.max_payload)
                answers = self._registry.store().jobs.enqueue_alike(self._alike(trace), texts)
            elif self._connection is None:
                answers = self._registry.store().jobs.enqueue_many(self._requests(payloads, trace))
            else:
                answers = self._enqueue_on(self._requests(payloads, trace))
            return list(map(self._ref, answers))

    async def aenqueue(self, *args: Any, **kwargs: Any) -> JobRef:
        """:meth:`enqueue` for async callers."""
        return (await self.aenqueue_many([self.kind.bind(args, kwargs)]))[0]

    async def aenqueue_many(self, payloads: Sequence[Mapping[str, Any]]) -> list[JobRef]:
        """:meth:`enqueue_many` for async callers."""
        import asyncio

        if self._connection is None:
            return await asyncio.to_thread(self.enqueue_many, payloads)
        connection = await driver_connection_async(self._connection)
        store = await asyncio.to_thread(self._registry.store_beside)
        with enqueue_span(self.kind.name) as trace:
            requests = self._requests(payloads, trace)
            await store.kinds.apublish_on(connection, self._registry.unpublished())
            return list(map(self._ref, await store.jobs.aenqueue_on(connection, requests)))

    def _enqueue_on(self, requests: list[NewJob]) -> list[Enqueued]:
        connection = driver_connection(self._connection)
        store = self._registry.store_beside()
        store.kinds.publish_on(connection, self._registry.unpublished())
        return store.jobs.enqueue_on(connection, requests)

    def request(self, payload: Mapping[str, Any], trace: str | None = None) -> NewJob:
        """The job that an enqueue would create; *trace* is the caller's trace context."""
        encoded, own_key = self.kind.encode(payload, limit=self._registry.max_payload)
        if own_key is None:
            return structs.replace(self._alike(trace), payload=encoded)
        return structs.replace(self._complete(own_key), payload=encoded, trace=trace)

    def _alike(self, trace: str | None) -> NewJob:
        """The request of all jobs without unique fields; only their payloads differ."""
        return self._common if trace is None else structs.replace(self._common, trace=trace)

    @cached_property
    def _common(self) -> NewJob:
        return self._complete(None)

    def _complete(self, own_key: str | None) -> NewJob:
        kind = self.kind
        return complete(self._options, kind.options, own_key=own_key, kind=kind.name, actor=self._actor)

    def _requests(self, payloads: Sequence[Mapping[str, Any]], trace: str | None) -> list[NewJob]:
        if self.kind.options.unique:
            return [self.request(payload, trace) for payload in payloads]
        alike, texts = self._alike(trace), self.kind.encode_many(payloads, limit=self._registry.max_payload)
        return [structs.replace(alike, payload=text) for text in texts]

    def _ref(self, answer: Enqueued) -> JobRef:
        return JobRef(answer.id, self._views, answer.outcome)


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
