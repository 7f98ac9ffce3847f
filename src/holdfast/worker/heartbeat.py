"""The heartbeat: renews all leases of a worker and receives the requests of people."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta

from holdfast.domain.jobs.job import JobId, WorkerId, WorkerRequest
from holdfast.errors import StoreBusy, StoreLocked, StoreUnavailable
from holdfast.store import Store
from holdfast.worker import clock
from holdfast.worker.active_runs import ActiveRuns, Run
from holdfast.worker.service import REPORT_INTERVAL_S, TickResult

log = logging.getLogger("holdfast")

#: The start of a run that has taken this long is recorded: from then on the loss of its worker costs an attempt.
RECORD_START_AFTER_S = 0.5
#: A lease is renewed after this share of its duration. Before, only the requests of people are read.
RENEW_AFTER = 1 / 8
#: Delay before a failed renewal is retried.
RETRY_S = 1.0
#: Shortest time between two heartbeats when notifications request one.
MIN_INTERVAL_S = 1.0


class Heartbeat:
    """Renews in one statement per lease duration. It runs until the last handler has finished."""

    name = "heartbeat"

    def __init__(
        self,
        store: Store,
        worker: WorkerId,
        active_runs: ActiveRuns,
        *,
        interval: float,
        lost: Callable[[Run], None],
        on_request: Callable[[WorkerRequest | None], None] = lambda _: None,
    ) -> None:
        self.wake = threading.Event()
        self.last_beat_at = clock.now()
        self._store = store
        self._worker = worker
        self._active_runs = active_runs
        self._interval = interval
        self._lost = lost
        self._on_request = on_request
        self._notified = False
        self._long_run = False
        self._recorded_at = self._reported_at = float("-inf")
        #: When the first heartbeat of an outage was sent.
        self._failed_at: float | None = None

    def keep(self, interval: float) -> None:
        """Beat at least this often, in seconds."""
        self._interval = min(self._interval, interval)

    def on_notify(self) -> None:
        """A person may have requested something of an active run: renew soon, once for many notifications."""
        if not self._notified and len(self._active_runs):
            self._notified = True
            self.wake.set()

    def on_long_run(self) -> None:
        """A run has taken long enough for its start to be recorded before the next renewal."""
        if not self._long_run and clock.now() - self._recorded_at > MIN_INTERVAL_S:
            self._long_run = True
            self.wake.set()

    def tick(self) -> TickResult:
        """Renew all leases. The watchdog stops runs whose lease could not be renewed in time."""
        if self._long_run:
            self._long_run = False
            next_in = self.last_beat_at + self._interval - clock.now()
            if next_in > 0 and not self._notified:
                self._record_starts()
                return TickResult(next_in)
        early = self.last_beat_at + MIN_INTERVAL_S - clock.now()
        if self._notified and early > 0:
            return TickResult(early)
        self._notified = False
        runs = self._active_runs.all()
        if self._failed_at is None:
            self._warn_if_late(runs)
        sent_at = clock.now()
        try:
            self._renew(runs)
            # A row that another transaction has locked is not renewed, yet proves that the store answers.
            self._active_runs.answered_at = sent_at
            seen = self._store.workers.heartbeat(self._worker)
        except (StoreUnavailable, StoreBusy) as error:
            self._failed_at = sent_at if self._failed_at is None else self._failed_at
            if sent_at - self._reported_at >= REPORT_INTERVAL_S:
                self._reported_at = sent_at
                log.warning("a heartbeat failed: %s", error)
            if isinstance(error, StoreLocked):
                self._spare(runs)
                return TickResult(0.0, considered=len(runs))  # the renewal itself waits for the lock
            return TickResult(min(RETRY_S, self._interval), considered=len(runs))
        self.last_beat_at = clock.now()
        if self._failed_at is not None:
            log.info("the store answers again after %.0f s", self.last_beat_at - self._failed_at)
            self._failed_at, self._reported_at = None, float("-inf")
        if seen is not None:
            self._on_request(seen.requested)
        return TickResult(self._interval, considered=len(runs), processed=len(runs))

    def _spare(self, runs: list[Run]) -> None:
        """Another program writes to a SQLite file for long. A take-over needs the same lock, so it waits as well.

        Leases that this worker has now stay its own until the lock is free, and its renewal is next in line then.
        """
        checked_at = clock.now()
        tokens = self._store.leases.current_tokens(self._worker, [run.lease.job_id for run in runs])
        for run in runs:
            if tokens.get(run.lease.job_id) == run.lease.token:
                run.renewed(checked_at)

    def _record_starts(self) -> None:
        """Record the starts of runs that go on for some time: people see them run, and a loss costs an attempt."""
        self._recorded_at = now = clock.now()
        active = (run for run in self._active_runs.all() if not run.started)
        runs = [run for run in active if run.under_way_for(now) > RECORD_START_AFTER_S]
        started = self._store.leases.record_starts([run.lease for run in runs])
        for run in runs:
            run.started = run.lease.job_id in started

    def _warn_if_late(self, runs: list[Run]) -> None:
        """Name the running kinds: code that holds the interpreter's lock starves this thread."""
        late = clock.now() - self.last_beat_at
        if late > 2 * self._interval + 1:
            kinds = sorted({run.kind.name for run in runs if run.begun_at is not None})
            log.warning("the heartbeat is %.0f s late; running: %s", late, ", ".join(kinds) or "nothing")

    def _renew(self, runs: list[Run]) -> None:
        by_duration: dict[float, list[Run]] = {}
        for run in runs:
            by_duration.setdefault(run.lease_duration, []).append(run)
        for lease_duration, group in sorted(by_duration.items()):  # short leases cannot wait for the others
            sent_at = clock.now()
            begun = {run.lease.job_id for run in group if run.under_way_for(sent_at) > RECORD_START_AFTER_S}
            due = [run for run in group if self._is_due(run, begun, sent_at)]
            young = [run.lease for run in group if not self._is_due(run, begun, sent_at)]
            answers = self._store.leases.renew(
                [run.lease for run in due], lease_duration=timedelta(seconds=lease_duration), begun=begun
            )
            known = {answer.job_id: answer for answer in [*answers, *self._store.leases.requests(young)]}
            for run in group:
                answer = known.get(run.lease.job_id)
                if answer is not None:
                    run.apply(answer, sent_at=sent_at)
                    run.started |= answer.renewed and run.lease.job_id in begun
                elif not run.finished and not run.lost:  # a finished run was settled just now and lost nothing
                    self._lost(run)
                    run.drop()

    def _is_due(self, run: Run, begun: set[JobId], now: float) -> bool:
        """Whether a run's lease has to be renewed, or its start recorded."""
        if run.lease.job_id in begun and not run.started:
            return True
        return now - run.renewed_at >= RENEW_AFTER * run.lease_duration


class RemoteControl:
    """Applies requests that arrive with heartbeats. A *quiet* worker claims nothing until the request is withdrawn."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self.quiet = False
        self._stop = stop
        self._stopped = False

    def apply(self, request: WorkerRequest | None) -> None:
        """Apply the current request; a repeated request changes nothing."""
        quiet = request is WorkerRequest.QUIET
        if quiet != self.quiet:
            self.quiet = quiet
            log.info("quiet requested: the worker claims no more jobs" if quiet else "the worker claims jobs again")
        if request is WorkerRequest.STOP and not self._stopped:
            self._stopped = True
            log.info("stop requested")
            self._stop()
