"""The context of a run in a worker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

import msgspec

from holdfast.domain.context import Context
from holdfast.domain.job import WorkerId
from holdfast.domain.kind import to_json
from holdfast.domain.request import Enqueued, NewJob
from holdfast.errors import LeaseLost
from holdfast.run import clock
from holdfast.run.held import Run, StopReason
from holdfast.store import Store

T = TypeVar("T")

logger = logging.getLogger("holdfast.job")


class RunContext(Context):
    """Writes through the worker's store, under the run's token."""

    def __init__(
        self,
        run: Run,
        store: Store,
        worker: WorkerId,
        request: Callable[[str, Mapping[str, Any], dict[str, Any]], NewJob],
    ) -> None:
        lease = run.lease
        self._run = run
        self._store = store
        self._request = request
        self.job_id = lease.job_id
        self.attempt = lease.attempt
        self.token = lease.token
        self.worker = worker
        self.stopping = run.stopping

    @property
    def checkpointed(self) -> Any:
        text = self._run.lease.checkpoint
        return None if text is None else msgspec.json.decode(text)

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:  # type: ignore[override]
        facts = {"job": self.job_id, "attempt": self.attempt, "token": self.token, "worker": self.worker}
        return logging.LoggerAdapter(logger, facts)

    @property
    def remaining(self) -> timedelta | None:
        timeout = self._run.kind.options.timeout
        if timeout is None:
            return None
        begun = self._run.begun_at or clock.now()
        return max(timeout - timedelta(seconds=clock.now() - begun), timedelta(0))

    def progress(self, done: int, total: int | None = None, message: str | None = None) -> None:
        self._fenced(lambda: self._store.leases.report(self._run.lease, done=done, total=total, message=message))

    def checkpoint(self, value: Any) -> None:
        text = to_json(value, what="the checkpoint").decode()
        self._fenced(lambda: self._store.leases.report(self._run.lease, checkpoint=text))

    def enqueue(self, kind: str, payload: Mapping[str, Any] | None = None, /, **options: Any) -> Enqueued:
        request = self._request(kind, payload or {}, options)
        return self._fenced(lambda: self._store.jobs.enqueue(request, holder=self._run.lease))

    def heartbeat(self) -> None:
        before = clock.now()
        answers = self._store.leases.renew([self._run.lease], term=timedelta(seconds=self._run.term))
        if not answers:
            self._run.stop(StopReason.LEASE_LOST)
            raise LeaseLost(f"job {self.job_id} was taken over", job_id=self.job_id, token=self.token)
        if answers[0].renewed:
            self._run.dated = before
        if answers[0].cancel_wanted:
            self._run.stop(StopReason.CANCELLED)

    def _fenced(self, write: Callable[[], T]) -> T:
        """A write that is refused tells the handler to stop, whatever it does with the error."""
        try:
            return write()
        except LeaseLost:
            self._run.stop(StopReason.LEASE_LOST)
            raise
