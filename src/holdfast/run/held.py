"""The runs that a worker holds: one entry per lease, from claim to settlement."""

from __future__ import annotations

import threading
from datetime import timedelta
from enum import StrEnum
from typing import Any

from holdfast.domain.job import JobId, Lease
from holdfast.domain.kind import Kind
from holdfast.run import clock


class StopReason(StrEnum):
    """Why a handler is told to stop."""

    CANCELLED = "cancelled"
    LEASE_LOST = "lease_lost"
    RUN_TIMEOUT = "run_timeout"
    SHUTDOWN = "shutdown"


class Run:
    """One run: its lease, how long it holds, and whether it has begun or is to stop."""

    __slots__ = ("_interrupt", "_lock", "begun_at", "dated", "kind", "lease", "stop_reason", "stopping", "term")

    def __init__(self, lease: Lease, kind: Kind, *, dated: float, term: timedelta) -> None:
        self.lease = lease
        self.kind = kind
        self.dated = dated
        self.term = term.total_seconds()
        self.begun_at: float | None = None
        self.stopping = threading.Event()
        self.stop_reason: StopReason | None = None
        self._lock = threading.Lock()
        self._interrupt: Any = None

    @property
    def lapsed_share(self) -> float:
        """How much of the lease has passed since it was last dated, 1 being all of it."""
        return (clock.now() - self.dated) / self.term

    def stop(self, reason: StopReason) -> None:
        """Tell the handler to stop; the first reason stays."""
        with self._lock:
            if self.stop_reason is None:
                self.stop_reason = reason
            self.stopping.set()
            interrupt = self._interrupt
        if interrupt is not None:
            interrupt()

    def on_stop(self, interrupt: Any) -> None:
        """Call *interrupt* when the run is to stop: at once if it is already."""
        with self._lock:
            self._interrupt = interrupt
            stopping = self.stopping.is_set()
        if stopping and interrupt is not None:
            interrupt()


class Held:
    """All runs of a worker, by job."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[JobId, Run] = {}

    def add(self, runs: list[Run]) -> None:
        with self._lock:
            self._runs.update({run.lease.job_id: run for run in runs})

    def drop(self, leases: list[Lease]) -> None:
        """Forget runs that were settled; one that was claimed anew meanwhile stays."""
        with self._lock:
            for lease in leases:
                run = self._runs.get(lease.job_id)
                if run is not None and run.lease.token == lease.token:
                    del self._runs[lease.job_id]

    def all(self) -> list[Run]:
        with self._lock:
            return list(self._runs.values())

    def __len__(self) -> int:
        return len(self._runs)
