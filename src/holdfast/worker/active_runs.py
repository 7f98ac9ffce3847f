"""The active runs of a worker: one per lease, from claim to settlement."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from enum import StrEnum

from holdfast.domain.jobs.job import ControlRequest, JobId, Lease
from holdfast.domain.jobs.kind import Kind
from holdfast.store.jobs.leases import Renewal
from holdfast.worker import clock

#: Shares of a lease after which, without a renewal, no run starts, handlers get a stop request, and are killed.
STOP_SHARE, KILL_SHARE = 0.60, 0.85
#: Seconds between the stop request to a handler and its kill, where the executor can kill. A command has its own.
STOP_DELAY_S = 5.0
#: All runs share one lock, since stops and attachments are rare.
_stop_lock = threading.Lock()


class StopReason(StrEnum):
    """Why a handler has to stop."""

    CANCELLED = "cancelled"
    PAUSED = "paused"
    LEASE_LOST = "lease_lost"
    RUN_TIMEOUT = "run_timeout"
    SHUTDOWN = "shutdown"
    EVICTED = "evicted"


#: The stop reason for each request that a person can make about a running job.
STOP_FOR = {ControlRequest.CANCEL: StopReason.CANCELLED, ControlRequest.PAUSE: StopReason.PAUSED}


class Handle:
    """Controls the coroutine or process behind a run. Executors override the operations that they support."""

    __slots__ = ()

    def interrupt(self) -> None:
        """Send the handler a stop request."""

    def kill(self) -> None:
        """End the handler."""

    def renewed(self) -> None:
        """Note that the lease of the run was renewed."""

    def freeze(self, *, frozen: bool) -> bool:  # noqa: ARG002 - for subclasses
        """Suspend or continue the process; false where there is none."""
        return False

    def resident(self) -> int:
        """Resident memory of a measured command, in bytes, as far as it is known."""
        return 0


class Run:
    """One run of a job: its lease, its progress towards the end, and its stop request."""

    __slots__ = (
        *("_handle", "_killed", "_stopping", "begun_at", "claimed_at", "finished", "kind", "lease", "lease_duration"),
        *("lost", "measured", "peak", "renewed_at", "span", "started", "stop_delay", "stop_reason"),
        *("stop_requested_at", "timeout"),
    )

    def __init__(self, lease: Lease, kind: Kind, *, renewed_at: float, lease_duration: timedelta) -> None:
        """*renewed_at*: when the call that claimed the lease was sent, by the worker's clock."""
        self.lease = lease
        self.kind = kind
        self.renewed_at = renewed_at
        #: When the answer was there: the claim may have waited for others.
        self.claimed_at = clock.now()
        self.lease_duration = lease_duration.total_seconds()
        #: Longest duration in seconds: the kind's, unless the job has its own.
        limit = None if kind.options.timeout is None else kind.options.timeout.total_seconds()
        #: Seconds; None: no limit.
        self.timeout = limit if lease.timeout is None else lease.timeout or None
        #: Seconds between the stop request and the kill.
        self.stop_delay = STOP_DELAY_S
        self.begun_at: float | None = None
        self.stop_requested_at: float | None = None
        self.finished = False
        #: Whether the start is recorded durably, and whether the lease is known to be lost.
        self.started = False
        self.lost = False
        #: Opens the tracing span around the handler, if the application uses traces.
        self.span: Callable[[], AbstractContextManager[None]] | None = None
        self.stop_reason: StopReason | None = None
        self._stopping: threading.Event | None = None
        self._handle: Handle | None = None
        self._killed = False
        #: Whether the memory of the run is measured, and its peak in bytes, known at the end.
        self.measured = False
        self.peak: int | None = None

    @property
    def stopping(self) -> threading.Event:
        """Set when the handler should stop. Created on first use: most handlers never need it."""
        with _stop_lock:
            if self._stopping is None:
                self._stopping = threading.Event()
                if self.stop_reason is not None:
                    self._stopping.set()
            return self._stopping

    def under_way_for(self, now: float) -> float:
        """Seconds since the handler began; 0 before that and after its end."""
        return 0.0 if self.begun_at is None or self.finished else now - self.begun_at

    def may_begin(self) -> bool:
        """Whether no stop was requested, and the last renewal of the lease is so recent that the run may go on."""
        return self.stop_reason is None and clock.now() - self.renewed_at < STOP_SHARE * self.lease_duration

    def stop(self, reason: StopReason) -> None:
        """Send the handler a stop request; only the first reason counts."""
        with _stop_lock:
            if self.stop_reason is not None:
                return
            self.stop_reason = reason
            self.stop_requested_at = clock.now()
            if self._stopping is not None:
                self._stopping.set()
            handle = self._handle
        if handle is not None:
            handle.interrupt()

    def drop(self) -> None:
        """Stop the handler, and end it where its executor can: the lease is lost, and the outcome will be refused."""
        self.lost = True
        self.stop(StopReason.LEASE_LOST)
        self.kill()

    def kill(self) -> bool:
        """End the handler where its executor can, once; true if that is impossible: a thread cannot be ended."""
        with _stop_lock:
            first, handle, self._killed = not self._killed, self._handle, True
        if first and handle is not None:
            handle.kill()
        return first and handle is None

    def renewed(self, sent_at: float) -> None:
        """Note that a call sent at *sent_at* has renewed the lease."""
        self.renewed_at = sent_at
        if (handle := self._handle) is not None:
            handle.renewed()

    def apply(self, answer: Renewal, *, sent_at: float) -> None:
        """Apply the store's answer to a renewal: its success, and the request of a person."""
        if answer.renewed:
            self.renewed(sent_at)
        if answer.requested is not None:
            self.stop(STOP_FOR[answer.requested])

    @property
    def lease_expires_at(self) -> float:
        """When another worker may take the job over, by this worker's clock."""
        return self.renewed_at + self.lease_duration

    @property
    def fenced_at(self) -> float:
        """When the handler gets a stop request, unless the lease is renewed."""
        return self.renewed_at + STOP_SHARE * self.lease_duration

    @property
    def resident(self) -> int:
        """Resident memory of a measured command, in bytes; 0 where it is unknown."""
        handle = self._handle
        return 0 if handle is None else handle.resident()

    def freeze(self, *, frozen: bool) -> bool:
        """Suspend or continue a command; false where there is none."""
        handle = self._handle
        return handle is not None and handle.freeze(frozen=frozen)

    def attach(self, handle: Handle) -> None:
        """Set the handle; it is interrupted at once if a stop was requested before."""
        with _stop_lock:
            self._handle = handle
            self._killed = False
        if self.stop_reason is not None:
            handle.interrupt()

    def detach(self) -> None:
        """The coroutine or process behind the run has finished."""
        with _stop_lock:
            self._handle = None


class FinishSignal:
    """Wakes threads that wait for finished or settled runs; *watched* is the number of these threads."""

    def __init__(self) -> None:
        self.watched = 0
        self._condition = threading.Condition()

    def notify(self) -> None:
        if self.watched:  # otherwise finishing threads do not take the lock
            with self._condition:
                self._condition.notify_all()

    def wait_for(self, ready: Callable[[], bool], *, deadline: float) -> bool:
        """Wait until *ready* holds; false when the clock passes *deadline* first."""
        with self._condition:
            # Set before the first check: a run that finishes after the check sees it and notifies.
            self.watched += 1
            try:
                while not ready():
                    seconds = deadline - clock.now()
                    if seconds <= 0:
                        return False
                    self._condition.wait(min(seconds, threading.TIMEOUT_MAX))
                return True
            finally:
                self.watched -= 1


class ActiveRuns:
    """All active runs of a worker, by job."""

    def __init__(self) -> None:
        #: Set when the first run is added to none.
        self.added = threading.Event()
        #: When the last heartbeat that the store answered was sent, by the worker's clock; 0 before the first.
        self.answered_at = 0.0
        self.finish_signal = FinishSignal()
        self._lock = threading.Lock()
        self._runs: dict[JobId, Run] = {}

    def add(self, runs: list[Run]) -> None:
        with self._lock:
            first = not self._runs
            self._runs.update({run.lease.job_id: run for run in runs})
        if first:
            self.added.set()

    def discard(self, leases: list[Lease]) -> None:
        """Take settled runs out; a run of the same job under a newer token stays."""
        with self._lock:
            for lease in leases:
                run = self._runs.get(lease.job_id)
                if run is not None and run.lease.token == lease.token:
                    del self._runs[lease.job_id]

    def all(self) -> list[Run]:
        with self._lock:
            return list(self._runs.values())

    @property
    def unfinished(self) -> list[Run]:
        """The runs whose handlers have not returned."""
        return [run for run in self.all() if not run.finished]

    @property
    def without_lease(self) -> list[JobId]:
        """The jobs whose handlers still run here although their leases are lost, or have expired and may be lost."""
        now = clock.now()
        return [run.lease.job_id for run in self.unfinished if run.lost or now - run.renewed_at >= run.lease_duration]

    def __len__(self) -> int:
        return len(self._runs)
