"""Tools for tests of applications: an isolated store, a clock that you move, jobs that run in the test itself."""

from __future__ import annotations

import asyncio
import logging
import secrets
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from holdfast.app import Holdfast
from holdfast.client.jobs.handler import Handler
from holdfast.domain.jobs.context import Context
from holdfast.domain.jobs.job import Job, Lease, WorkerId
from holdfast.domain.jobs.json_values import to_json
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.quantities import Duration, as_duration
from holdfast.store import Store
from holdfast.store.jobs.leases import DEFAULT_LEASE
from holdfast.store.jobs.settlement import Settlement
from holdfast.worker import clock
from holdfast.worker.active_runs import Run
from holdfast.worker.context import Reporter, RunContext
from holdfast.worker.handler_call import await_handler, run_handler
from holdfast.worker.schedules.planner import Planner
from holdfast.worker.schedules.scopes import ScopeProviders
from holdfast.worker.stats import Stats

T = TypeVar("T")


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self, at: datetime | None = None) -> None:
        self._at = at or datetime.now(UTC)

    def now(self) -> datetime:
        return self._at

    def advance(self, duration: Duration) -> None:
        """Move the clock: scheduled jobs become due, and leases expire."""
        self._at += as_duration(duration)


@contextmanager
def isolated(app: Holdfast, *, at: datetime | None = None) -> Iterator[Clock]:
    """Switch the application to an empty store with a clock that the test moves, for the length of the ``with``."""
    from holdfast.store.sqlite.backend import SqliteBackend

    url, fake_clock = app.configured_url, Clock(at)
    with tempfile.TemporaryDirectory(prefix="holdfast-test-") as directory:
        backend = SqliteBackend(Path(directory) / "jobs.db", durability="fast", clock=fake_clock.now)
        app.use(url, Store(backend))
        try:
            yield fake_clock
        finally:
            app.use(url)


def drain(app: Holdfast) -> int:
    """Run ready jobs of the application's kinds in this thread until none is left. Returns how many ran."""
    return sum(1 for _ in run_ready(app))


def plan(app: Holdfast) -> int:
    """Decide all plans that are due, like a planner. Returns how many were fired."""
    app.declare_schedules()
    planner, fired = Planner(app.store, ScopeProviders(app.providers), counts=Stats(), provider_wait=60.0), 0
    while (ticked := planner.tick()).considered:
        fired += ticked.processed
    return fired


def run_ready(app: Holdfast) -> Iterator[Settlement]:
    """Run ready jobs one after the other, and yield each settlement. Expired leases are taken over first."""
    worker = WorkerId(f"inline-{secrets.token_hex(8)}")
    store, durations = app.store, {name: kind.options.lease for name, kind in app.served_kinds.items()}
    store.leases.take_over()
    store.leases.check_waiting()
    while True:
        store.leases.promote()
        leases = store.leases.claim(worker, queues=store.queues.with_ready_jobs(), leases=durations)
        if not leases:
            return
        store.leases.record_starts(leases)
        yield _run(app, worker, leases[0])


def enqueued(app: Holdfast, kind: str | None = None, **payload: Any) -> list[Job]:
    """The jobs of a kind whose payload has these values, oldest first; finished jobs included."""
    kinds = None if kind is None else (kind,)
    return [job for job in app.views.all(Selector(kinds=kinds)) if _matches(job, payload)][::-1]


def assert_enqueued(app: Holdfast, kind: str, *, times: int | None = None, **payload: Any) -> None:
    """Fail unless such a job was enqueued, or exactly *times* of them. The message lists the enqueued jobs."""
    count = len(enqueued(app, kind, **payload))
    if count == times or (times is None and count):
        return
    requested = f"{kind}({', '.join(f'{name}={value!r}' for name, value in payload.items())})"
    listing = "\n".join(f"  {job.kind} {job.payload}" for job in enqueued(app)) or "  nothing"
    expected = "a job" if times is None else f"{times} jobs"
    raise AssertionError(f"expected {expected} {requested}, found {count}; enqueued were:\n{listing}")


def run_inline(handler: Handler[..., T], /, *args: Any, context: FakeContext | None = None, **kwargs: Any) -> T:
    """Call a handler like a worker, but without a store: check the payload, and pass a context.

    Exceptions of the handler propagate.
    """
    kind = handler.kind
    payload, _ = kind.encode(kind.bind(args, kwargs))
    arguments = kind.arguments(payload, lambda: context or FakeContext())
    result: T = asyncio.run(kind.function(**arguments)) if kind.is_async else kind.function(**arguments)
    return result


class FakeContext(Context):
    """A context that records calls: ``progress_calls``, ``children``, ``checkpoints``, ``steps`` and ``slept``."""

    def __init__(self, *, attempt: int = 1, checkpointed: Any = None, deadline: datetime | None = None) -> None:
        self.id = 1
        self.attempt = attempt
        self.token = attempt
        self.worker = "test"
        self.checkpointed = checkpointed
        self.deadline = deadline
        self.stopping = threading.Event()
        self.log = logging.LoggerAdapter(logging.getLogger("holdfast.job"), {"job": 1, "attempt": attempt})
        self.progress_calls: list[tuple[int, int | None, str | None]] = []
        self.checkpoints: list[Any] = []
        self.children: list[tuple[str, dict[str, Any]]] = []
        self.steps: dict[str, Any] = {}
        self.slept: list[timedelta] = []

    def progress(self, done: int, total: int | None = None, message: str | None = None) -> None:
        self.progress_calls.append((done, total, message))

    def checkpoint(self, value: Any) -> None:
        self.checkpoints.append(msgspec.json.decode(to_json(value, label="the checkpoint")))

    def enqueue(self, kind: str, payload: Mapping[str, Any] | None = None, /, **options: Any) -> None:
        del options
        self.children.append((kind, dict(payload or {})))

    def heartbeat(self) -> None:
        """Do nothing: a lease is never lost here."""

    def step(self, name: str, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        if name not in self.steps:
            self.steps[name] = function(*args, **kwargs)
        return cast(T, self.steps[name])

    async def astep(self, name: str, function: Callable[..., Awaitable[T]], /, *args: Any, **kwargs: Any) -> T:
        if name not in self.steps:
            self.steps[name] = await function(*args, **kwargs)
        return cast(T, self.steps[name])

    def sleep(self, duration: Duration) -> None:
        self.slept.append(as_duration(duration))


def _run(app: Holdfast, worker: WorkerId, lease: Lease) -> Settlement:
    run = Run(lease, app.served_kinds[lease.kind], renewed_at=clock.now(), lease_duration=DEFAULT_LEASE)
    run.begun_at = clock.now()

    def context(run: Run) -> RunContext:
        return RunContext(run, Reporter(run, app.store).answer, worker, app.request)

    outcome = asyncio.run(await_handler(run, context)) if run.kind.is_async else run_handler(run, context)
    settlement = Settlement(run.lease, outcome, timedelta(seconds=clock.now() - run.begun_at))
    app.store.leases.settle_many([settlement])
    return settlement


def _matches(job: Job, payload: Mapping[str, Any]) -> bool:
    known = msgspec.json.decode(job.payload)
    requested = msgspec.json.decode(to_json(payload, label="the payload"))
    return all(name in known and known[name] == value for name, value in requested.items())
