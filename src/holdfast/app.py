"""The application: handlers, unit functions, schedules, and the store that they use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack

from holdfast.client.batches.registry import BatchRegistry
from holdfast.client.jobs.handler import Enqueuer, Handler
from holdfast.client.jobs.job_ref import JobRef
from holdfast.client.jobs.kind_registry import JobArguments, KindRegistry, handler_options
from holdfast.client.origin import application_of, origin_of
from holdfast.client.schedules.definition import ScheduleOptions, ScheduleRegistry
from holdfast.domain.batches.batch import is_shard
from holdfast.domain.commands.command import COMMAND
from holdfast.domain.jobs.job import JobId
from holdfast.domain.jobs.json_values import MAX_PAYLOAD
from holdfast.domain.jobs.kind import APPLICATIONS, Kind
from holdfast.domain.jobs.new_job import EnqueueOutcome, NewJob
from holdfast.domain.names import checked_name, refuse_unknown_options
from holdfast.domain.quantities import Duration
from holdfast.errors import InvalidKind
from holdfast.store import Store
from holdfast.store.fleet.registry import Queues
from holdfast.store.jobs.control import JobControl
from holdfast.store.jobs.queries import JobQueries

if TYPE_CHECKING:
    from holdfast.client.batches.function import BoundFunction, UnitFunction
    from holdfast.client.batches.inbox import Inbox
    from holdfast.client.batches.options import UnitArguments
    from holdfast.client.batches.report import BatchResult
    from holdfast.client.batches.session import BatchSession
    from holdfast.client.fleet.workers import WorkerArguments
    from holdfast.client.schedules.api import Schedules
    from holdfast.domain.batches.batch import Batch
    from holdfast.domain.schedules.definition import DeclarationResult
    from holdfast.worker.options import WorkerOptions
    from holdfast.worker.schedules.scopes import Provider
    from holdfast.worker.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")


class Holdfast:
    """An application on one store.

    *url* is ``sqlite:///path.db`` or ``postgresql://user@host/database``. The default is ``HOLDFAST_URL``, then the
    configuration file, then a SQLite file of the user. The store opens on first use. *version* names the code;
    attempts record the version that ran them. Payloads are limited to *max_payload* bytes.

    Names of kinds and schedules are global on a store. *namespace* is a prefix for those of this application
    (``shop`` makes ``shop.mail`` of ``mail``), so that several applications can share a store. *name* says which
    processes are one application; it defaults to the namespace, then to the top-level package of the calling module.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        max_payload: int = MAX_PAYLOAD,
        version: str | None = None,
        name: str | None = None,
        namespace: str | None = None,
    ) -> None:
        self._version = version
        known = namespace if name is None else checked_name(name, label="the name of the application")
        known = known or application_of(_caller(self))
        self._registry = KindRegistry(url, max_payload=max_payload, application=self, name=known, namespace=namespace)
        self.batches = BatchRegistry(self._registry)
        self._schedules = ScheduleRegistry(self._registry)
        APPLICATIONS.add(self)

    @property
    def name(self) -> str | None:
        """The name of the application; None for code without a module, such as a notebook."""
        return self._registry.name

    @property
    def configured_url(self) -> str | None:
        """The URL that the application was created with; None until the default is resolved."""
        return self._registry.configured_url

    @property
    def url(self) -> str:
        """The URL of the store."""
        return self._registry.url

    def use(self, url: str | None, store: Store | None = None) -> None:
        """Switch to another store: the one at *url*, or *store*, which is open already."""
        self._registry.use(url, store)
        self._schedules.reset()

    @property
    def store(self) -> Store:
        """The store. The first use opens it and publishes the kinds of this application."""
        return self._registry.store()

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """The kinds that are registered in this application, by name."""
        return self._registry.kinds

    @property
    def served_kinds(self) -> Mapping[str, Kind]:
        """The kinds by name and by alias: the jobs that workers of this application run."""
        return self._registry.by_any_name

    @property
    def control(self) -> JobControl:
        """Actions on jobs: cancel, retry, hold, change, delete."""
        return self.store.control

    @property
    def queues(self) -> Queues:
        """Queues: their limits, pause and resume."""
        return self.store.queues

    @property
    def views(self) -> JobQueries:
        """Queries: lists, counts, the history of a job, and why it is not running."""
        return self.store.views

    def job(
        self, name: str | None = None, **options: Unpack[JobArguments]
    ) -> Callable[[Callable[P, R]], Handler[P, R]]:
        """Register a function as the handler of a kind of job.

        - *name* defaults to the name of the function, *queue* to ``default``, *priority* to 0.
        - *max_attempts* and *max_crashes* default to 3; None means no limit.
        - *retry* is a curve, or a list of delays whose last one repeats.
        - *on_lost* decides what happens to a job whose worker died while it ran: ``retry``, ``dead`` or ``hold``.
        - *timeout* limits a run (1 h); *lease* is how long a silent worker keeps its job (60 s).
        - *unique* names the parameters that form the unique key. The key is taken while the job is live, for the
          duration *unique_for*, or always with ``unique_for="ever"``.
        - *version* is that of the payload: raise it when you change the parameters. *upgrade* maps a version to a
          function that turns its payload, a dict, into that of the next version. *aliases* are earlier names of the
          kind, whose jobs the handler runs too.
        - *executor* is ``thread`` (the default for functions), ``async`` (for coroutines) or ``process``. A process
          that takes more than *memory* (``"512M"``) is killed.
        - *secrets* names fields of the payload that are never shown. Fields called ``password``, ``token`` and the
          like are always hidden.

        Raises:
            InvalidKind: The name is taken, or an option is invalid.
        """
        if callable(name):  # without parentheses, Python passes the function as the name
            raise InvalidKind("@app.job needs parentheses", hint="Write @app.job() above the function.")
        refuse_unknown_options("a job", options, JobArguments.__annotations__)
        upgrades = options.pop("upgrade", None)
        checked = handler_options(**options)

        def register(function: Callable[P, R]) -> Handler[P, R]:
            kind = Kind(self._registry.prefixed(name or function.__name__), function, checked, upgrades)
            kind.origin = origin_of(function)
            return Handler(function, Enqueuer(self._registry, self._registry.add(kind)))

        return register

    def enqueue(self, kind: str, payload: Mapping[str, Any] | None = None, /, **options: Any) -> JobRef:
        """Enqueue a job by the name of its kind; the options are those of :meth:`Enqueuer.options`.

        Raises:
            UnknownKind: This application has no such kind; the hint names the nearest.
            InvalidPayload: The payload does not fit the handler's annotations.
        """
        return Enqueuer(self._registry, self._registry.kind(kind)).options(**options).enqueue(**(payload or {}))

    def request(self, kind: str, payload: Mapping[str, Any], options: dict[str, Any]) -> NewJob:
        """The job that :meth:`enqueue` would create; running jobs enqueue it under their own token."""
        return Enqueuer(self._registry, self._registry.kind(kind)).options(**options).request(payload)

    def unit(
        self, name: str | None = None, **options: Unpack[UnitArguments]
    ) -> Callable[[Callable[P, R]], UnitFunction[P, R]]:
        """Register a function as the unit of batches: see :meth:`BatchRegistry.unit`."""
        return self.batches.unit(name, **options)

    def run(self, units: UnitFunction[..., Any] | BoundFunction, keys: Iterable[Any], **options: Any) -> BatchResult:
        """Run a unit function over *keys* and wait for the result: see :meth:`BatchRegistry.run`."""
        return self.batches.run(units, keys, **options)

    def submit(self, units: UnitFunction[..., Any] | BoundFunction, keys: Iterable[Any], **options: Any) -> Batch:
        """Submit a run over *keys* to the workers: see :meth:`BatchRegistry.submit`."""
        return self.batches.submit(units, keys, **options)

    def inbox(self, name: str) -> Inbox:
        """The inbox of this name: see :meth:`BatchRegistry.inbox`."""
        return self.batches.inbox(name)

    def session(self, name: str, arguments: Mapping[str, Any] | None = None, **options: Any) -> BatchSession:
        """Run a batch as your own loop: see :meth:`BatchRegistry.session`."""
        return self.batches.session(name, arguments, **options)

    def schedule(
        self, expression: str, *, name: str | None = None, version: int = 1, **options: Unpack[ScheduleOptions]
    ) -> Callable[[Handler[P, R]], Handler[P, R]]:
        """Fire jobs of a handler by the clock: ``*/5 * * * *``, ``@daily`` or ``every 90s``. Goes above ``@app.job``.

        *name* defaults to that of the kind. Increase *version* when you change the schedule: replicas that run older
        code then never restore the old definition. The *options* are those of
        :class:`holdfast.ScheduleOptions`. A handler parameter of type :class:`holdfast.Plan` receives the plan.

        Raises:
            InvalidExpression: The expression is malformed.
            UnknownZone: There is no such time zone.
            NeverFires: No day of the calendar matches.
            InvalidInput: An option is invalid, or the handler does not accept the payload.
            InvalidKind: The name is taken, or the decorated function is not a job.
        """
        return self._schedules.decorator(expression, name, version, options)

    def scopes(self, name: str | None = None) -> Callable[[Provider], Provider]:
        """Register a function that returns the scopes of schedules, under *name* or its own name."""

        def register(function: Provider) -> Provider:
            self._schedules.add_provider(self._registry.prefixed(name or function.__name__), function)
            return function

        return register

    @property
    def providers(self) -> Mapping[str, Provider]:
        """The functions registered with :meth:`scopes`, by name."""
        return self._schedules.providers

    def declare_schedules(self) -> dict[str, DeclarationResult]:
        """Store the schedules that code declares, unless this store has them already."""
        return self._schedules.declare()

    @property
    def schedules(self) -> Schedules:
        """Create, change, pause, preview, trigger and backfill schedules. Stores those that code declares first."""
        return self._schedules.schedules

    def worker(self, *, commands: bool | None = None, **options: Unpack[WorkerArguments]) -> Worker:
        """Create a worker for the kinds of this application; ``run()`` works until ``stop()`` is called.

        - *queues* defaults to the queues of the kinds; ``["*"]`` is every queue, also those that are created later.
        - *kinds* restricts the worker to some kinds. Without it, kinds that are registered after its start run too.
        - *slots* is the number of jobs at a time (8). *version* names the code of this worker; default: the one of
          the application.
        - *drain* ends the worker when no job is ready or running; *grace* is the time that jobs get after ``stop()``
          (30 s).
        - *heartbeat* is the interval of lease renewals (10 s), *poll* the longest interval between claims (1 s).
        - A process child is replaced after *child_jobs* jobs (1000), or when it exceeds *child_memory* (512M).
        - *plans* makes the worker plan the schedules of the store (true). *echo* is called with the output of commands,
          and *stdin* is a descriptor that they read.
        - For queues with an autoscaler: *memory_profiles* gives the memory of commands by label, *host_limits* the
          share of a host that they may use, by host name. Both default to the configuration.
        - *retention* is how long finished rows stay, besides the configuration: ``{"done": "7d", "dead": 0}``.
        - *commands* makes it run commands (``holdfast add``), which can do all that the user of the process can. The
          default is false, also for an application without kinds of its own.

        Raises:
            InvalidInput: An option is invalid.
        """
        from holdfast.client.fleet.workers import built_in_kinds, chosen_kinds, worker_options

        kinds = {
            **self._registry.by_any_name,
            **{name: kind for name, kind in self.batches.kinds().items() if is_shard(name)},
        }
        names = options.get("kinds") or ()
        if not isinstance(names, str):
            names = options["kinds"] = [self._own_name(name, kinds) for name in names]
        built_in = built_in_kinds(commands=COMMAND in names if commands is None else commands)
        chosen = chosen_kinds({**kinds, **built_in}, names)
        own = {name: kind for name, kind in chosen.items() if name not in built_in}
        if options.get("version") is None:
            options["version"] = self._version
        checked = worker_options(own, url=self.url, **options)
        store = self._registry.migrated_store()
        if COMMAND in chosen:
            store.kinds.publish([built_in[COMMAND].published()])
        store.kinds.publish([kind.unit for kind in chosen.values() if kind.unit is not None])
        worker = self._worker(store, chosen, checked)
        if not names:
            self._registry.followers.add(worker)
        return worker

    def _own_name(self, name: str, kinds: Mapping[str, Kind]) -> str:
        """The name of a kind with the namespace of this application, if it has such a kind."""
        prefixed = self._registry.prefixed(name)
        return prefixed if prefixed in kinds else name

    def scheduler(
        self, *, heartbeat: Duration = 10, retention: Mapping[str, Duration] | None = None, version: str | None = None
    ) -> Worker:
        """Create a worker that runs no jobs: it plans the schedules of the store and does maintenance."""
        from holdfast.client.fleet.workers import scheduler_options

        options = scheduler_options(heartbeat, retention, version=version or self._version)
        return self._worker(self._registry.migrated_store(), {}, options)

    def _worker(self, store: Store, kinds: Mapping[str, Kind], options: WorkerOptions) -> Worker:
        from holdfast.worker.name_check import ApplicationCode
        from holdfast.worker.worker import Worker

        self.declare_schedules()
        declared = self._schedules
        code = ApplicationCode(
            name=self.name,
            schedules=declared.origins,
            scopes=declared.scope_origins,
            declare_refused=declared.declare_refused,
        )
        worker = Worker(store, kinds, options=options, request=self.request, providers=self.providers, code=code)
        declared.planners.add(worker)
        return worker

    def find_kind(self, name: str) -> Kind | None:
        """A kind by its name or an alias, including the kinds that run units."""
        return self._registry.by_any_name.get(name) or self.batches.kinds().get(name)

    def get(self, job_id: int) -> JobRef:
        """A reference to an existing job.

        Raises:
            NoSuchJob: It does not exist.
        """
        return JobRef(self.views.get(JobId(job_id)).id, lambda: self.views, EnqueueOutcome.EXISTING)

    async def aget(self, job_id: int) -> JobRef:
        """:meth:`get` for async callers."""
        import asyncio

        return await asyncio.to_thread(self.get, job_id)

    def close(self) -> None:
        """Close the store. Closing twice is harmless, and the next use opens the store again.

        A worker of the application that runs goes on: its connections are closed when it has wound down.
        """
        self._registry.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _caller(app: Holdfast) -> Mapping[str, Any]:
    """The global variables of the code that creates *app*, not those of subclasses."""
    frame = sys._getframe(2)  # noqa: SLF001 - the only way to learn who calls
    while type(app) is not Holdfast and frame.f_code.co_name == "__init__" and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_globals
