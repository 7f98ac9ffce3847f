"""For tests of applications: a store of one's own, a clock to move, jobs run here and now."""

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
from typing import Any, TypeVar

import msgspec

from holdfast.app import Holdfast
from holdfast.client.jobs.handler import Handler
from holdfast.domain.jobs.context import Context
from holdfast.domain.jobs.job import Job, Lease, WorkerId
from holdfast.domain.jobs.kind import to_json
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.text import Duration, as_duration
from holdfast.store import Store
from holdfast.store.jobs.leases import DEFAULT_LEASE
from holdfast.store.jobs.settlement import Settlement
from holdfast.worker import clock
from holdfast.worker.active_runs import Run
from holdfast.worker.context import RunContext
from holdfast.worker.handler import await_handler, run_handler
from holdfast.worker.messages import Reporter
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
        """Let time pass: what was scheduled comes due, leases lapse."""
        self._at += as_duration(duration)


@contextmanager
def isolated(app: Holdfast, *, at: datetime | None = None) -> Iterator[Clock]:
    """The app on an empty store of its own, on a clock that the test moves; afterwards on its own store again."""
    from holdfast.store.sqlite.backend import SqliteBackend

    before, moving = app.configured_url, Clock(at)
    with tempfile.TemporaryDirectory(prefix="holdfast-test-") as directory:
        backend = SqliteBackend(Path(directory) / "jobs.db", durability="fast", clock=moving.now)
        app.use(before, Store(backend))
        try:
            yield moving
        finally:
            app.use(before)


def drain(app: Holdfast) -> int:
    """Run every job of the app's kinds that is ready, in this thread, until none is; answers how many."""
    return sum(1 for _ in run_ready(app))


def plan(app: Holdfast) -> int:
    """Decide on all plans of the store that are due, as a planner would; answers how many were fired."""
    app.declare_schedules()
    planner, fired = Planner(app.store, ScopeProviders(app.providers), counts=Stats(), patience=60.0), 0
    while (ticked := planner.tick()).considered:
        fired += ticked.processed
    return fired


def run_ready(app: Holdfast) -> Iterator[Settlement]:
    """Run ready jobs one after the other and tell how each ended; lapsed leases are taken over first."""
    worker = WorkerId(f"inline-{secrets.token_hex(8)}")
    store, kinds = app.store, list(app.kinds)
    store.leases.take_over()
    store.leases.check_waiting()
    while True:
        store.leases.promote()
        leases = store.leases.claim(worker, queues=store.queues.with_ready_jobs(), kinds=kinds, limit=1, mark=True)
        if not leases:
            return
        yield _settled(app, worker, leases[0])


def enqueued(app: Holdfast, kind: str | None = None, **payload: Any) -> list[Job]:
    """The jobs of a kind that were enqueued with these values in their payload, the oldest first."""
    kinds = None if kind is None else (kind,)
    found = [job for job in app.views.all(Selector(kinds=kinds)) if _matches(job, payload)]
    return found[::-1]


def assert_enqueued(app: Holdfast, kind: str, *, times: int | None = None, **payload: Any) -> None:
    """Fail unless such a job was enqueued, or exactly *times* of them; the message says what was."""
    found = len(enqueued(app, kind, **payload))
    if found == times or (times is None and found):
        return
    requested = f"{kind}({', '.join(f'{name}={value!r}' for name, value in payload.items())})"
    there = "\n".join(f"  {job.kind} {job.payload}" for job in enqueued(app)) or "  nothing"
    expected = "a job" if times is None else f"{times} jobs"
    raise AssertionError(f"expected {expected} {requested}, found {found}; enqueued were:\n{there}")


def run_inline(handler: Handler[..., T], /, *args: Any, context: FakeContext | None = None, **kwargs: Any) -> T:
    """Call a handler as a worker would, without a store: the payload is checked, a context is given.

    What the handler raises is raised here.
    """
    kind = handler.kind
    payload, _ = kind.encode(kind.bind(args, kwargs))
    arguments = kind.arguments(payload, lambda: context or FakeContext())
    result: T = asyncio.run(kind.function(**arguments)) if kind.is_async else kind.function(**arguments)
    return result


class FakeContext(Context):
    """Remembers what a handler says: ``told``, ``children``, ``checkpoints``, ``steps``, ``slept``."""

    def __init__(self, *, attempt: int = 1, checkpointed: Any = None, deadline: datetime | None = None) -> None:
        self.id = 1
        self.attempt = attempt
        self.token = attempt
        self.worker = "test"
        self.checkpointed = checkpointed
        self.deadline = deadline
        self.stopping = threading.Event()
        self.log = logging.LoggerAdapter(logging.getLogger("holdfast.job"), {"job": 1, "attempt": attempt})
        self.told: list[tuple[int, int | None, str | None]] = []
        self.checkpoints: list[Any] = []
        self.children: list[tuple[str, dict[str, Any]]] = []
        self.steps: dict[str, Any] = {}
        self.slept: list[timedelta] = []

    def progress(self, done: int, total: int | None = None, message: str | None = None) -> None:
        self.told.append((done, total, message))

    def checkpoint(self, value: Any) -> None:
        self.checkpoints.append(msgspec.json.decode(to_json(value, what="the checkpoint")))

    def enqueue(self, kind: str, payload: Mapping[str, Any] | None = None, /, **options: Any) -> None:
        del options
        self.children.append((kind, dict(payload or {})))

    def heartbeat(self) -> None:
        """The lease is never lost here."""

    def step(self, name: str, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        if name not in self.steps:
            self.steps[name] = function(*args, **kwargs)
        result: T = self.steps[name]
        return result

    async def astep(self, name: str, function: Callable[..., Awaitable[T]], /, *args: Any, **kwargs: Any) -> T:
        if name not in self.steps:
            self.steps[name] = await function(*args, **kwargs)
        result: T = self.steps[name]
        return result

    def sleep(self, duration: Duration) -> None:
        self.slept.append(as_duration(duration))


def _settled(app: Holdfast, worker: WorkerId, lease: Lease) -> Settlement:
    run = Run(lease, app.kinds[lease.kind], dated=clock.now(), lease_duration=DEFAULT_LEASE)
    run.begun_at = clock.now()

    def context(run: Run) -> RunContext:
        return RunContext(run, Reporter(run, app.store).tell, worker, app.request)

    outcome = asyncio.run(await_handler(run, context)) if run.kind.is_async else run_handler(run, context)
    settlement = Settlement(run.lease, outcome, timedelta(seconds=clock.now() - run.begun_at))
    app.store.leases.settle_many([settlement])
    return settlement


def _matches(job: Job, payload: Mapping[str, Any]) -> bool:
    known = msgspec.json.decode(job.payload)
    requested = msgspec.json.decode(to_json(payload, what="the payload"))
    return all(name in known and known[name] == value for name, value in requested.items())
