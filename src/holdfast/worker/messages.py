"""Messages from a running handler to the store. A handler in a child process sends them over a socket."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.domain.jobs.new_job import Enqueued, NewJob
from holdfast.errors import LeaseLost
from holdfast.store import Store
from holdfast.store.jobs.leases import StoredStep
from holdfast.worker import clock
from holdfast.worker.active_runs import STOP_FOR, Run, StopReason


class ReportProgress(Struct, frozen=True, tag=True, kw_only=True):
    """Store progress or a checkpoint."""

    done: int | None = None
    total: int | None = None
    message: str | None = None
    checkpoint: str | None = None


class EnqueueJob(Struct, frozen=True, tag=True):
    """Enqueue a child of the job."""

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


class Reporter:
    """Answers the messages of one run; the store checks its token."""

    def __init__(self, run: Run, store: Store, *, enqueued: Callable[[], None] = lambda: None) -> None:
        self._run = run
        self._store = store
        self._enqueued = enqueued

    def answer(self, message: Message) -> Any:
        """Carry out *message*. A lost lease stops the run, even if the handler catches the error."""
        try:
            return self._answer(message)
        except LeaseLost:
            self._run.stop(StopReason.LEASE_LOST)
            raise

    def _answer(self, message: Message) -> Any:
        lease = self._run.lease
        match message:
            case ReportProgress():
                return self._store.leases.report(lease, **msgspec.structs.asdict(message))
            case EnqueueJob():
                self._enqueued()
                return self._store.jobs.enqueue(message.request, holder=lease)
            case RenewLease():
                return self._renew()
            case RecallSteps():
                return self._store.steps.kept(lease)
            case KeepStep():
                return self._store.steps.keep(lease, message.name, message.result, delay=message.delay)

    def _renew(self) -> None:
        sent_at = clock.now()
        run = self._run
        answers = self._store.leases.renew(
            [run.lease], lease_duration=timedelta(seconds=run.lease_duration), begun=[run.lease.job_id]
        )
        if not answers:
            raise LeaseLost.of(run.lease.job_id, run.lease.token)
        if answers[0].renewed:
            run.renewed(sent_at)
        if answers[0].requested is not None:
            run.stop(STOP_FOR[answers[0].requested])
