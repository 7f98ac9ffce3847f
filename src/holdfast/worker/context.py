"""The context that a handler receives, and its messages to the process that has the lease."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from holdfast.domain.jobs.context import Asleep, Context
from holdfast.domain.jobs.job import WorkerId
from holdfast.domain.jobs.json_values import to_json
from holdfast.domain.jobs.new_job import Enqueued, NewJob
from holdfast.domain.names import checked_name, clean_text
from holdfast.domain.quantities import Duration, as_duration, checked_count
from holdfast.errors import HoldfastError, InvalidInput, LeaseLost, StoreBusy, StoreUnavailable
from holdfast.store import Store
from holdfast.store.jobs.enqueue import EnqueueCall
from holdfast.store.jobs.leases import MAX_MESSAGE
from holdfast.store.jobs.steps import StoredStep
from holdfast.worker import clock
from holdfast.worker.active_runs import Handle, Run, StopReason
from holdfast.worker.stats import Stats

if TYPE_CHECKING:
    from holdfast.worker.batches.turns import ShardTurns


class ReportProgress(Struct, frozen=True, tag=True, kw_only=True):
    done: int | None = None
    total: int | None = None
    message: str | None = None
    checkpoint: str | None = None


class EnqueueJob(Struct, frozen=True, tag=True):
    request: NewJob


class RenewLease(Struct, frozen=True, tag=True):
    """Renew the lease now."""


class RecallSteps(Struct, frozen=True, tag=True):
    """Read the finished steps."""


class KeepStep(Struct, frozen=True, tag=True, kw_only=True):
    """Store the result of a step, or the start of a sleep."""

    name: str
    result: str | None = None
    delay: timedelta | None = None


Message = ReportProgress | EnqueueJob | RenewLease | RecallSteps | KeepStep

#: The type of the answer to each message.
ANSWERS: dict[type[Message], Any] = {
    ReportProgress: None,
    EnqueueJob: Enqueued,
    RenewLease: None,
    RecallSteps: dict[str, StoredStep],
    KeepStep: StoredStep,
}

#: Seconds between two tries while the store does not answer.
RETRY_S = 0.5


def _on_event_loop() -> bool:
    """Whether this thread runs an event loop: a wait here would stop all its coroutines."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class Reporter:
    """Answers the messages of one run; the store checks its token."""

    def __init__(self, run: Run, store: Store, *, enqueued: Callable[[], None] = lambda: None) -> None:
        self._run = run
        self._store = store
        self._enqueued = enqueued

    def answer(self, message: Message) -> Any:
        """Carry out *message*; during an outage, wait for the store until the lease fences the run.

        A lost lease stops the run, even if the handler catches the error.

        Raises:
            LeaseLost: Another worker has the job, or could have it soon.
            StoreUnavailable: The run was stopped meanwhile, or the call would block an event loop.
        """
        call = EnqueueCall(self._run.lease)
        while True:
            try:
                return self._carry_out(message, call)
            except LeaseLost:
                self._run.stop(StopReason.LEASE_LOST)
                raise
            except (StoreUnavailable, StoreBusy) as error:
                if _on_event_loop():
                    if isinstance(message, ReportProgress) and message.checkpoint is None:
                        logger.warning("a progress report of job %d is lost: %s", self._run.lease.job_id, error)
                        return None
                    raise
                self._wait(error)

    def _wait(self, error: HoldfastError) -> None:
        """Wait before the next try; raises when the run has to stop."""
        run = self._run
        if clock.now() >= run.fenced_at:
            run.stop(StopReason.LEASE_LOST)
        if run.stopping.wait(RETRY_S):
            if run.stop_reason is StopReason.LEASE_LOST:
                text = f"the store did not answer within the lease of job {run.lease.job_id}: {error.message}"
                raise LeaseLost(text, job_id=run.lease.job_id, token=run.lease.token) from error
            raise StoreUnavailable(f"the run stops, and the store does not answer: {error.message}") from error

    def _carry_out(self, message: Message, call: EnqueueCall) -> Any:
        lease = self._run.lease
        match message:
            case ReportProgress():
                return self._store.leases.report(lease, **msgspec.structs.asdict(message))
            case EnqueueJob():
                enqueued = self._store.jobs.enqueue_child(message.request, call)
                self._enqueued()
                return enqueued
            case RenewLease():
                return self._renew()
            case RecallSteps():
                return self._store.steps.kept(lease)
            case KeepStep():
                return self._store.steps.keep(lease, message.name, message.result, delay=message.delay)

    def _renew(self) -> None:
        sent_at = clock.now()
        run = self._run
        duration = timedelta(seconds=run.lease_duration)
        answers = self._store.leases.renew([run.lease], lease_duration=duration, begun=[run.lease.job_id])
        if not answers:
            raise LeaseLost.of(run.lease.job_id, run.lease.token)
        run.apply(answers[0], sent_at=sent_at)


T = TypeVar("T")

logger = logging.getLogger("holdfast.job")

SendMessage = Callable[[Message], Any]
MakeRequest = Callable[[str, Mapping[str, Any], dict[str, Any]], NewJob]


@dataclass(slots=True, eq=False)
class RenewalHandle(Handle):
    """Calls a hook with the send time of each renewal."""

    _run: Run
    _hook: Callable[[float], object]

    def renewed(self) -> None:
        self._hook(self._run.renewed_at)


class RunContext(Context):
    """Sends the handler's messages to the process that has the lease."""

    def __init__(
        self,
        run: Run,
        send: SendMessage,
        worker: WorkerId,
        request: MakeRequest,
        *,
        leaving: threading.Event | None = None,
        counts: Stats | None = None,
        turns: ShardTurns | None = None,
    ) -> None:
        self.lease = lease = run.lease
        #: The shards of this worker; None outside of a worker.
        self.turns = turns
        self.counts = counts or Stats()
        #: Set when the worker stops: a handler that can continue later should return.
        self.leaving = leaving or threading.Event()
        self._run = run
        self._send = send
        self._request = request
        self._used: set[str] = set()
        self._sleeps = 0
        self.id = lease.job_id
        self.attempt = lease.attempt
        self.token = lease.token
        self.worker = worker

    def on_renewal(self, hook: Callable[[float], object]) -> None:
        """Call *hook* with the time that the lease is counted from, now and at each renewal."""
        self._run.attach(RenewalHandle(self._run, hook))
        hook(self._run.renewed_at)

    @property
    def lease_duration(self) -> timedelta:
        """How long the lease lasts after a renewal."""
        return timedelta(seconds=self._run.lease_duration)

    @property
    def stopping(self) -> threading.Event:  # type: ignore[override]
        return self._run.stopping

    @property
    def checkpointed(self) -> Any:
        text = self._run.lease.checkpoint
        return None if text is None else msgspec.json.decode(text)

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:  # type: ignore[override]
        fields = {"job": self.id, "attempt": self.attempt, "token": self.token, "worker": self.worker}
        return logging.LoggerAdapter(logger, fields)

    @property
    def deadline(self) -> datetime | None:  # type: ignore[override]
        timeout = self._run.timeout
        if timeout is None:
            return None
        ran = clock.now() - (self._run.begun_at or clock.now())
        return datetime.fromtimestamp(datetime.now(UTC).timestamp() - ran + timeout, UTC)

    def progress(self, done: int, total: int | None = None, message: str | None = None) -> None:
        text = None if message is None else clean_text(message, limit=MAX_MESSAGE)
        numbers = [None if count is None else checked_count(count) for count in (done, total)]
        self._send(ReportProgress(done=numbers[0], total=numbers[1], message=text))

    def checkpoint(self, value: Any) -> None:
        self._send(ReportProgress(checkpoint=to_json(value, label="the checkpoint").decode()))

    def enqueue(self, kind: str, payload: Mapping[str, Any] | None = None, /, **options: Any) -> Enqueued:
        enqueued: Enqueued = self._send(EnqueueJob(self._request(kind, payload or {}, options)))
        return enqueued

    def heartbeat(self) -> None:
        self._send(RenewLease())

    def step(self, name: str, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        name = checked_name(name, label="the step")
        stored = self._recall(name)
        value: T = _value(stored or self._keep(name, function(*args, **kwargs)))
        return value

    async def astep(self, name: str, function: Callable[..., Awaitable[T]], /, *args: Any, **kwargs: Any) -> T:
        name = checked_name(name, label="the step")
        stored = await asyncio.to_thread(self._recall, name)
        if stored is None:
            stored = await asyncio.to_thread(self._keep, name, await function(*args, **kwargs))
        value: T = _value(stored)
        return value

    def sleep(self, duration: Duration) -> None:
        self._sleeps += 1
        name = f"sleep {self._sleeps}"
        step: StoredStep = self._recall(name) or self._send(KeepStep(name=name, delay=as_duration(duration)))
        if step.remaining is not None and step.remaining > timedelta(0):
            raise Asleep(step.remaining)

    @cached_property
    def _stored_steps(self) -> dict[str, StoredStep]:
        steps: dict[str, StoredStep] = self._send(RecallSteps())
        return steps

    def _recall(self, name: str) -> StoredStep | None:
        if name in self._used:
            raise InvalidInput(f"the step {name!r} was used before in this run", hint="Give each step its own name.")
        self._used.add(name)
        return self._stored_steps.get(name)

    def _keep(self, name: str, value: Any) -> StoredStep:
        result = to_json(value, label=f"the result of step {name!r}").decode()
        step: StoredStep = self._send(KeepStep(name=name, result=result))
        return step


def _value(step: StoredStep) -> Any:
    return None if step.result is None else msgspec.json.decode(step.result)
