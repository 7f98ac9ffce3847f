"""Workers: which are alive, and the requests of people to them."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from holdfast.domain.fleet.queue import WORKER_SILENCE
from holdfast.domain.jobs.job import WorkerId, WorkerRequest
from holdfast.errors import Conflict, NotFound
from holdfast.store.engine.backend import Timeouts
from holdfast.store.engine.operation import Noun, Operation, query, transaction


class WorkerRow(Struct, frozen=True):
    """A worker. *queues* and *kinds* are JSON lists, *scaling* is the status of its autoscaler as JSON."""

    id: WorkerId
    host: str
    pid: int
    version: str | None
    queues: str
    kinds: str
    started_at: datetime
    seen_at: datetime
    autoscaler: str | None
    slots: int | None = None
    requested: WorkerRequest | None = None


class WorkerHeartbeat(Struct, frozen=True):
    """The answer to a heartbeat."""

    requested: WorkerRequest | None


class Workers(Noun):
    """The workers that are alive."""

    @transaction()
    def announce(
        self,
        worker: WorkerId,
        *,
        host: str,
        pid: int,
        queues: list[str],
        kinds: list[str],
        version: str | None = None,
        slots: int | None = None,
    ) -> Operation[None]:
        """Register a new worker.

        Raises:
            Conflict: The id was used before; each start has to draw a new one.
        """
        rows = yield query("get_worker_host", id=worker)
        if rows:
            raise Conflict(f"worker id {worker!r} was used before", hint="Draw a new id for each start.")
        values = {"host": host, "pid": pid, "queues": queues, "kinds": kinds, "version": version, "slots": slots}
        yield query("insert_worker", id=worker, **values)

    def heartbeat(self, worker: WorkerId) -> WorkerHeartbeat | None:
        """Record that a worker is alive, and return the request to it; None if it is not registered."""
        rows = self._backend.run(query("record_heartbeat", id=worker), repeatable=True, timeout=Timeouts.brief)
        return WorkerHeartbeat(None if rows[0][0] is None else WorkerRequest(rows[0][0])) if rows else None

    def request(self, worker: WorkerId, request: WorkerRequest | None) -> None:
        """Request a worker to be quiet or to stop; None: to go on. It receives this with its next heartbeat.

        Raises:
            NotFound: The worker is unknown or not alive.
        """
        if not self._backend.run(
            query("request_worker_control", id=worker, requested=request, silence=WORKER_SILENCE), repeatable=True
        ):
            raise NotFound(f"no worker {worker[:100]!r} is alive", hint="holdfast workers lists them.")
        self._backend.notify()

    def record_stop(self, worker: WorkerId) -> None:
        """Record that a worker has stopped."""
        self._backend.run(query("record_worker_stop", id=worker), repeatable=True)

    def list(self) -> list[WorkerRow]:
        """The workers that are alive, oldest first."""
        return self._backend.fetch(query("list_workers", WorkerRow, silence=WORKER_SILENCE))
