"""What a running handler tells the store, as messages: they may come from another process."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.domain.jobs.new_job import Enqueued, NewJob
from holdfast.errors import LeaseLost
from holdfast.store import Store
from holdfast.store.jobs.steps import StoredStep
from holdfast.worker import clock
from holdfast.worker.active_runs import STOP_FOR, Run, StopReason


class ReportProgress(Struct, frozen=True, tag=True, kw_only=True):
    """Progress or a checkpoint."""

    done: int | None = None
    total: int | None = None
    message: str | None = None
    checkpoint: str | None = None


class EnqueueJob(Struct, frozen=True, tag=True):
    """A child of the job."""

    request: NewJob


class RenewLease(Struct, frozen=True, tag=True):
    """The lease, now."""


class RecallStep(Struct, frozen=True, tag=True):
    """The steps that are done."""


class KeepStep(Struct, frozen=True, tag=True, kw_only=True):
    """A step that is done now, or a sleep that begins."""

    name: str
    result: str | None = None
    delay: timedelta | None = None


Message = ReportProgress | EnqueueJob | RenewLease | RecallStep | KeepStep

ANSWERS: dict[type[Message], Any] = {
    ReportProgress: None,
    EnqueueJob: Enqueued,
    RenewLease: None,
    RecallStep: dict[str, StoredStep],
    KeepStep: StoredStep,
}


class Reporter:
    """Answers the messages of one run, under its token."""

    def __init__(self, run: Run, store: Store, *, enqueued: Callable[[], None] = lambda: None) -> None:
        self._run = run
        self._store = store
        self._enqueued = enqueued

    def tell(self, message: Message) -> Any:
        """Do what *message* says. A refused write tells the handler to stop, whatever it does with the error."""
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
            case RecallStep():
                return self._store.steps.kept(lease)
            case KeepStep():
                return self._store.steps.keep(lease, message.name, message.result, delay=message.delay)

    def _renew(self) -> None:
        before = clock.now()
        run = self._run
        mine = [run.lease]
        answers = self._store.leases.renew(
            mine, lease_duration=timedelta(seconds=run.lease_duration), begun=[run.lease.job_id]
        )
        if not answers:
            raise LeaseLost.of(run.lease.job_id, run.lease.token)
        if answers[0].renewed:
            run.date(before)
        if answers[0].requested is not None:
            run.stop(STOP_FOR[answers[0].requested])
