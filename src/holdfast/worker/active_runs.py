"""The runs that a worker holds: one entry per lease, from claim to settlement."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from enum import StrEnum

from holdfast.domain.jobs.job import ControlRequest, JobId, Lease
from holdfast.domain.jobs.kind import Kind
from holdfast.worker import clock

Hook = Callable[[], object]

#: Runs are told to stop, and attached to, so seldom that they share one lock.
_rare = threading.Lock()


class StopReason(StrEnum):
    """Why a handler is told to stop."""

    CANCELLED = "cancelled"
    PAUSED = "paused"
    LEASE_LOST = "lease_lost"
    RUN_TIMEOUT = "run_timeout"
    SHUTDOWN = "shutdown"
    EVICTED = "evicted"


#: Why a handler is stopped when a person wants something of its job.
STOP_FOR = {ControlRequest.CANCEL: StopReason.CANCELLED, ControlRequest.PAUSE: StopReason.PAUSED}


class Run:
    """One run: its lease, how long it holds, whether it has begun, is to stop, or has ended."""

    __slots__ = (
        *("_dated", "_freeze", "_interrupt", "_kill", "_resident", "_stopping", "around", "begun_at", "claimed_at"),
        *(
            "dated",
            "finished",
            "kind",
            "lease",
            "measured",
            "peak",
            "stop_reason",
            "lease_duration",
            "timeout",
            "told_at",
        ),
    )

    def __init__(self, lease: Lease, kind: Kind, *, dated: float, lease_duration: timedelta) -> None:
        self.lease = lease
        self.kind = kind
        self.dated = dated
        self.claimed_at = dated
        self.lease_duration = lease_duration.total_seconds()
        #: Seconds that it may take: the kind's, unless the job has its own.
        self.timeout = None if kind.options.timeout is None else kind.options.timeout.total_seconds()
        self.begun_at: float | None = None
        self.told_at: float | None = None
        self.finished = False
        #: What is done around the handler: a span, where the application uses traces.
        self.around: Callable[[], AbstractContextManager[None]] = nullcontext
        self.stop_reason: StopReason | None = None
        self._stopping: threading.Event | None = None
        self._interrupt: Hook | None = None
        self._kill: Hook | None = None
        self._dated: Hook | None = None
        self._freeze: Callable[[bool], object] | None = None
        self._resident: Callable[[], int] | None = None
        #: Whether what it takes is to be measured; and the most bytes that it took, when it has ended.
        self.measured = False
        self.peak: int | None = None

    @property
    def stopping(self) -> threading.Event:
        """Set when the handler should stop. Most handlers never ask for it, so it is made when one does."""
        with _rare:
            if self._stopping is None:
                self._stopping = threading.Event()
                if self.stop_reason is not None:
                    self._stopping.set()
            return self._stopping

    def under_way_for(self, now: float) -> float:
        """Seconds since it has begun; nothing before, and after its end."""
        return 0.0 if self.begun_at is None or self.finished else now - self.begun_at

    def stop(self, reason: StopReason) -> None:
        """Tell the handler to stop; the first reason stays."""
        with _rare:
            if self.stop_reason is not None:
                return
            self.stop_reason = reason
            self.told_at = clock.now()
            if self._stopping is not None:
                self._stopping.set()
            interrupt = self._interrupt
        if interrupt is not None:
            interrupt()

    def kill(self) -> None:
        """End the handler where its executor can; a thread cannot be ended."""
        with _rare:
            kill, self._kill = self._kill, None
        if kill is not None:
            kill()

    def date(self, timestamp: float) -> None:
        """The lease was claimed or renewed by a call that was sent at *moment*."""
        self.dated = timestamp
        if self._dated is not None:
            self._dated()

    @property
    def lease_expires_at(self) -> float:
        """When somebody else may take the job over, by this machine's clock."""
        return self.dated + self.lease_duration

    @property
    def resident(self) -> int:
        """What a measured program takes now, in bytes, as far as that is known."""
        measure = self._resident
        return 0 if measure is None else measure()

    def freeze(self, *, frozen: bool) -> bool:
        """Stop a program for a while, or let it go on; whether there is one."""
        act = self._freeze
        if act is not None:
            act(frozen)
        return act is not None

    def attach(
        self,
        *,
        interrupt: Hook | None = None,
        kill: Hook | None = None,
        dated: Hook | None = None,
        freeze: Callable[[bool], object] | None = None,
        resident: Callable[[], int] | None = None,
    ) -> None:
        """How to tell and how to end the handler, and whom a renewal concerns; told at once if it is to stop.

        What is measured says how to *freeze* it, and how much it takes.
        """
        self._freeze = freeze
        self._resident = resident
        with _rare:
            self._interrupt = interrupt
            self._kill = kill
            self._dated = dated
        if self.stop_reason is not None and interrupt is not None:
            interrupt()


class ActiveRuns:
    """All runs of a worker, by job."""

    def __init__(self) -> None:
        self.added = threading.Event()
        self._lock = threading.Lock()
        self._runs: dict[JobId, Run] = {}

    def add(self, runs: list[Run]) -> None:
        with self._lock:
            self._runs.update({run.lease.job_id: run for run in runs})
        self.added.set()

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
