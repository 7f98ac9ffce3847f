"""The application: a registry of kinds, a store, and the way from one to the other."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from holdfast.client.batches.api import Batching
from holdfast.client.jobs import kind_options
from holdfast.client.jobs.handler import AppHandle, Enqueuer, Handler
from holdfast.client.jobs.job_ref import JobRef
from holdfast.client.schedules.decorator import Scheduling
from holdfast.domain.commands.command import COMMAND
from holdfast.domain.fleet.admission import host_limit
from holdfast.domain.jobs.job import JobId
from holdfast.domain.jobs.kind import MAX_PAYLOAD, Kind, KindOptions, suggest
from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.retry import Curve
from holdfast.domain.text import Duration, as_bytes, as_duration, checked_name
from holdfast.errors import InvalidInput, InvalidKind, UnknownKind
from holdfast.settings import default_url, log_folder, settings
from holdfast.store import Store
from holdfast.store.engine.url import open_store
from holdfast.store.fleet.queues import Queues
from holdfast.store.jobs.control import JobControl
from holdfast.store.jobs.queries import JobQueries
from holdfast.worker.applications import APPLICATIONS

if TYPE_CHECKING:
    from holdfast.worker.autoscaler.autoscaler import AutoscalerOptions
    from holdfast.worker.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")


class Holdfast(Batching, Scheduling):
    """One application on one store.

    *url* is ``sqlite:///path.db`` or ``postgresql://user@host/database``. Without it the
    app takes ``HOLDFAST_URL``, then the configuration file, then a SQLite file of the user.
    Nothing is opened before it is needed. *version* names the code: attempts tell which one ran them.
    """

    def __init__(self, url: str | None = None, *, max_payload: int = MAX_PAYLOAD, version: str | None = None) -> None:
        super().__init__()
        self._url = url
        self._version = version
        self._max_payload = max_payload
        self._kinds: dict[str, Kind] = {}
        self._unpublished: set[str] = set()
        self._store: Store | None = None
        self._lock = threading.RLock()
        APPLICATIONS.add(self)

    @property
    def configured_url(self) -> str | None:
        """What the app was told, if anything."""
        return self._url

    @property
    def url(self) -> str:
        """Where the store is."""
        if self._url is None:
            self._url = default_url()
        return self._url

    def use(self, url: str | None, store: Store | None = None) -> None:
        """Work on another store from now on: the one at *url*, or one that is open already."""
        with self._lock:
            self.close()
            self._url = url
            self._store = store
            self._unpublished = set(self._kinds)
            self._undeclared = bool(self._declarations)

    @property
    def store(self) -> Store:
        """The store, opened now if it was not, with all kinds of this app published."""
        with self._lock:
            store = self._open()
            if self._unpublished:
                store.kinds.publish([self._kinds[name].published() for name in sorted(self._unpublished)])
                self._unpublished.clear()
            return store

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """The kinds that this app can run."""
        return self._kinds

    @property
    def control(self) -> JobControl:
        """What people do to jobs: cancel, retry, hold, change, remove."""
        return self.store.control

    @property
    def queues(self) -> Queues:
        """Limits, pause and resume."""
        return self.store.queues

    @property
    def views(self) -> JobQueries:
        """Lists, counts, history, and why a job is not running."""
        return self.store.views

    def job(
        self,
        name: str | None = None,
        *,
        queue: str = "default",
        priority: int = 0,
        max_attempts: int | None = 3,
        max_crashes: int | None = 3,
        retry: Curve | Sequence[Duration] | None = None,
        on_lost: str = "retry",
        timeout: Duration | None = "1h",
        lease: Duration = "60s",
        unique: Sequence[str] = (),
        unique_for: Duration | None = None,
        version: str | None = None,
        executor: str | None = None,
        memory: int | str | None = None,
        secrets: Sequence[str] = (),
    ) -> Callable[[Callable[P, R]], Handler[P, R]]:
        """Register a function as the handler of a kind of job.

        *name* defaults to the function's. *retry* is a list of delays, the last repeating,
        or a curve. *on_lost* says what to do when a worker dies in the middle: ``retry``,
        ``dead`` or ``hold``. *timeout* limits a run; *lease* is how long a silent worker keeps
        its job. *unique* names the parameters that form the unique key;
        *unique_for* keeps the key for a time, or ``"ever"``. *executor* is ``thread`` (the default
        for functions), ``async`` (for coroutines) or ``process``; a process that takes more than
        *memory* (``"512M"``) is killed. *secrets* names fields of the payload that are never shown;
        those called ``password``, ``token`` and the like are hidden anyhow.

        Raises:
            InvalidKind: The name is taken, or a setting makes no sense.
        """
        kind_options.refuse_bare(name)
        scope, period = kind_options.uniqueness(unique_for)
        options = KindOptions(
            queue=queue,
            priority=priority,
            max_attempts=max_attempts,
            max_crashes=max_crashes,
            retry=kind_options.curve(retry),
            on_lost=kind_options.on_lost(on_lost),
            timeout=as_duration(timeout) if timeout is not None else None,
            lease=as_duration(lease),
            unique=tuple(unique),
            unique_scope=scope,
            unique_period=period,
            version=version,
            executor=kind_options.executor(executor),
            memory=None if memory is None else as_bytes(memory),
            secrets=kind_options.names(secrets, what="secrets"),
        )

        def register(function: Callable[P, R]) -> Handler[P, R]:
            kind = self._register(Kind(name or function.__name__, function, options))
            return Handler(function, Enqueuer(self._sink(), kind))

        return register

    def _register(self, kind: Kind) -> Kind:
        with self._lock:
            if kind.name in self._kinds:
                raise InvalidKind(
                    f"the kind {kind.name!r} is registered already", hint="Give one of the two another name."
                )
            self._kinds[kind.name] = kind
            self._unpublished.add(kind.name)
        return kind

    def enqueue(self, kind: str, payload: Mapping[str, Any] | None = None, /, **options: Any) -> JobRef:
        """Enqueue a job by the name of its kind; *options* are those of :meth:`Handler.options`.

        Raises:
            UnknownKind: This app has no such kind; the hint names the nearest.
        """
        return self._enqueuer(kind).options(**options).enqueue(**(payload or {}))

    def request(self, kind: str, payload: Mapping[str, Any], options: dict[str, Any]) -> NewJob:
        """What :meth:`enqueue` would ask of the store: for running jobs, which enqueue under their own token."""
        return self._enqueuer(kind).options(**options).request(payload)

    def worker(
        self,
        *,
        queues: Sequence[str] | None = None,
        slots: int = 8,
        drain: bool = False,
        grace: Duration = 30,
        heartbeat: Duration = 10,
        poll: Duration = 1,
        child_jobs: int = 1000,
        child_memory: int | str = "512M",
        plans: bool = True,
        echo: Callable[[bytes], None] | None = None,
        memory_profiles: Mapping[str, str] | None = None,
        host_limits: Mapping[str, str] | None = None,
    ) -> Worker:
        """A worker for this app's kinds; ``run()`` works until ``stop()`` is called.

        *queues* defaults to those of the kinds. *drain*: end when nothing is ready or running.
        A process child is replaced after *child_jobs* jobs, or when it has grown to *child_memory*.
        It *plans* the schedules of the store as well, beside all others. *echo* is given what programs write.
        Where a queue is scaled, *memory_profiles* say what programs take, by label, and *host_limits* what they may
        take of a host, by its name; without them the configuration tells.
        """
        from holdfast.worker.executors.children import ChildOptions
        from holdfast.worker.options import WorkerOptions
        from holdfast.worker.worker import Worker

        if isinstance(queues, str) or not isinstance(slots, int) or slots < 1:
            raise InvalidInput(f"queues is a list of names and slots at least 1, not {queues!r} and {slots!r}")
        kinds = {**self._kinds, **self._shard_kinds()}
        served = queues or sorted({kind.options.queue for kind in kinds.values()}) or ["default"]
        for name in served:
            checked_name(name, what="the queue")
        kinds |= _built_in_kinds()
        options = WorkerOptions(
            queues=tuple(served),
            slots=slots,
            drain=drain,
            grace=as_duration(grace),
            heartbeat=as_duration(heartbeat).total_seconds(),
            poll=as_duration(poll).total_seconds(),
            version=self._version,
            children=ChildOptions(child_jobs, as_bytes(child_memory)),
            plans=plans,
            logs=log_folder(self.url),
            echo=echo,
            autoscaler=_autoscaler(memory_profiles, host_limits),
        )
        self.declare_schedules()
        self.store.kinds.publish([kinds[COMMAND].published()])
        return Worker(self.store, kinds, options=options, request=self.request, providers=self._providers)

    def _shard_kinds(self) -> dict[str, Kind]:
        from holdfast.domain.batches.sharding import is_shard

        return {name: kind for name, kind in self.unit_kinds().items() if is_shard(name)}

    def scheduler(self, *, heartbeat: Duration = 10) -> Worker:
        """A worker that runs no jobs: it plans the schedules of the store, and sweeps."""
        from holdfast.worker.options import WorkerOptions
        from holdfast.worker.worker import Worker

        self.declare_schedules()
        options = WorkerOptions(queues=(), slots=1, heartbeat=as_duration(heartbeat).total_seconds())
        return Worker(self.store, {}, options=options, request=self.request, providers=self._providers)

    def find_kind(self, name: str) -> Kind | None:
        """A kind by its name, also one that runs units."""
        return self._kinds.get(name) or self.unit_kinds().get(name)

    def _enqueuer(self, kind: str) -> Enqueuer:
        known = self._kinds.get(kind)
        if known is None:
            raise UnknownKind(f"this app has no kind {kind!r}", hint=suggest(kind, list(self._kinds)), kind=kind)
        return Enqueuer(self._sink(), known)

    def get(self, job_id: int) -> JobRef:
        """A reference to an existing job.

        Raises:
            NoSuchJob: It does not exist.
        """
        job = self.views.get(JobId(job_id))
        return JobRef(job.id, views=self._views, created=False)

    async def aget(self, job_id: int) -> JobRef:
        """:meth:`get` for async callers."""
        import asyncio

        return await asyncio.to_thread(self.get, job_id)

    def close(self) -> None:
        """Close the store; idempotent. It opens again when it is needed."""
        with self._lock:
            if self._store is not None:
                self._store.close()
                self._store = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _sink(self) -> AppHandle:
        return AppHandle(
            store=lambda: self.store,
            bare_store=self._open,
            unpublished=lambda: [self._kinds[name].published() for name in sorted(self._unpublished)],
            max_payload=self._max_payload,
        )

    def _views(self) -> JobQueries:
        return self.views

    def _open(self) -> Store:
        with self._lock:
            if self._store is None:
                self._store = open_store(self.url)
            return self._store


def _forget_stores() -> None:
    """After a fork: the connections belong to the parent, so that the child must not touch them."""
    for app in list(APPLICATIONS):
        assert isinstance(app, Holdfast)
        app._lock = threading.RLock()  # noqa: SLF001 - perhaps another thread held it when the process forked
        if app._store is not None:  # noqa: SLF001
            _inherited.append(app._store)  # noqa: SLF001 - kept, since closing it would close the parent's
            app._store = None  # noqa: SLF001


_inherited: list[Store] = []
os.register_at_fork(after_in_child=_forget_stores)


def _built_in_kinds() -> dict[str, Kind]:
    from holdfast.domain.schedules.definition import PING
    from holdfast.worker.commands.executor import command_kind
    from holdfast.worker.schedules.ping import ping_kind

    return {PING: ping_kind(settings()["ping_hosts"].value), COMMAND: command_kind()}


def _autoscaler(profiles: Mapping[str, str] | None, limits: Mapping[str, str] | None) -> AutoscalerOptions:
    """What people have said about programs and hosts: here, or in the configuration."""
    from holdfast.worker.autoscaler.autoscaler import AutoscalerOptions

    sizes: Mapping[str, str] = settings()["memory_profiles"].value if profiles is None else profiles
    told: Mapping[str, str] = settings()["host_limits"].value if limits is None else limits
    for limit in told.values():
        host_limit(limit, 1)
    memory = {label: as_bytes(size) for label, size in sizes.items()}
    return AutoscalerOptions(memory_profiles=memory, host_limits=dict(told))
