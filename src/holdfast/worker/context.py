"""The context of a run, in the worker or in a child of it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, TypeVar

import msgspec

from holdfast.domain.durations import Duration, as_duration
from holdfast.domain.jobs.context import Context
from holdfast.domain.jobs.handler_exceptions import Asleep
from holdfast.domain.jobs.job import WorkerId
from holdfast.domain.jobs.json_values import to_json
from holdfast.domain.jobs.new_job import Enqueued, NewJob
from holdfast.domain.names import checked_name, clean_text
from holdfast.domain.sizes import checked_count
from holdfast.errors import InvalidInput
from holdfast.store.jobs.leases import MAX_MESSAGE
from holdfast.store.jobs.steps import StoredStep
from holdfast.worker import clock
from holdfast.worker.active_runs import Run
from holdfast.worker.messages import EnqueueJob, KeepStep, Message, RecallStep, RenewLease, ReportProgress
from holdfast.worker.stats import Stats

T = TypeVar("T")

logger = logging.getLogger("holdfast.job")

Tell = Callable[[Message], Any]
MakeRequest = Callable[[str, Mapping[str, Any], dict[str, Any]], NewJob]


class RunContext(Context):
    """Tells what the handler says to whoever holds the lease."""

    def __init__(
        self,
        run: Run,
        tell: Tell,
        worker: WorkerId,
        request: MakeRequest,
        *,
        leaving: threading.Event | None = None,
        counts: Stats | None = None,
    ) -> None:
        self.lease = lease = run.lease
        #: What the worker has done so far.
        self.counts = counts or Stats()
        #: Set when the worker is to end: who can go on later gives way.
        self.leaving = leaving or threading.Event()
        self._run = run
        self._tell = tell
        self._request = request
        self._used: set[str] = set()
        self._sleeps = 0
        self.id = lease.job_id
        self.attempt = lease.attempt
        self.token = lease.token
        self.worker = worker

    def on_renewal(self, hook: Callable[[float], object]) -> None:
        """Call *hook* with the moment from which the lease holds on, now and at each renewal."""
        self._run.attach(dated=lambda: hook(self._run.dated))
        hook(self._run.dated)

    @property
    def stopping(self) -> threading.Event:  # type: ignore[override]
        return self._run.stopping

    @property
    def checkpointed(self) -> Any:
        text = self._run.lease.checkpoint
        return None if text is None else msgspec.json.decode(text)

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:  # type: ignore[override]
        facts = {"job": self.id, "attempt": self.attempt, "token": self.token, "worker": self.worker}
        return logging.LoggerAdapter(logger, facts)

    @property
    def deadline(self) -> datetime | None:  # type: ignore[override]
        timeout = self._run.kind.options.timeout
        if timeout is None:
            return None
        ran = clock.now() - (self._run.begun_at or clock.now())
        return datetime.fromtimestamp(datetime.now(UTC).timestamp() - ran + timeout.total_seconds(), UTC)

    def progress(self, done: int, total: int | None = None, message: str | None = None) -> None:
        text = None if message is None else clean_text(message, limit=MAX_MESSAGE)
        counted = [None if count is None else checked_count(count) for count in (done, total)]
        self._tell(ReportProgress(done=counted[0], total=counted[1], message=text))

    def checkpoint(self, value: Any) -> None:
        self._tell(ReportProgress(checkpoint=to_json(value, label="the checkpoint").decode()))

    def enqueue(self, kind: str, payload: Mapping[str, Any] | None = None, /, **options: Any) -> Enqueued:
        enqueued: Enqueued = self._tell(EnqueueJob(self._request(kind, payload or {}, options)))
        return enqueued

    def heartbeat(self) -> None:
        self._tell(RenewLease())

    def step(self, name: str, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        known = self._recall(name)
        value: T = _value(known or self._keep(name, function(*args, **kwargs)))
        return value

    async def astep(self, name: str, function: Callable[..., Awaitable[T]], /, *args: Any, **kwargs: Any) -> T:
        known = await asyncio.to_thread(self._recall, name)
        if known is None:
            known = await asyncio.to_thread(self._keep, name, await function(*args, **kwargs))
        value: T = _value(known)
        return value

    def sleep(self, duration: Duration) -> None:
        self._sleeps += 1
        name = f"sleep {self._sleeps}"
        step: StoredStep = self._recall(name) or self._tell(KeepStep(name=name, delay=as_duration(duration)))
        if step.remaining is not None and step.remaining > timedelta(0):
            raise Asleep(step.remaining)

    @cached_property
    def _kept(self) -> dict[str, StoredStep]:
        kept: dict[str, StoredStep] = self._tell(RecallStep())
        return kept

    def _recall(self, name: str) -> StoredStep | None:
        checked_name(name, label="the step")
        if name in self._used:
            raise InvalidInput(f"the step {name!r} was used before in this run", hint="Give each step its own name.")
        self._used.add(name)
        return self._kept.get(name)

    def _keep(self, name: str, value: Any) -> StoredStep:
        result = to_json(value, label=f"the result of step {name!r}").decode()
        step: StoredStep = self._tell(KeepStep(name=name, result=result))
        return step


def _value(step: StoredStep) -> Any:
    return None if step.result is None else msgspec.json.decode(step.result)
