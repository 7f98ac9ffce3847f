"""The watchdog: stops and kills runs whose lease or timeout runs out. It uses no store: nothing can block it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from holdfast.worker import clock
from holdfast.worker.active_runs import KILL_SHARE, STOP_SHARE, ActiveRuns, Run, StopReason
from holdfast.worker.service import TickResult

log = logging.getLogger("holdfast")

#: The start of a run that has taken this long is recorded soon.
LONG_RUN_S = 1.0
CHECK_INTERVAL_S, IDLE_INTERVAL_S = 0.1, 60.0


class Watchdog:
    """Fences runs and the worker by the worker's own clock, before another worker may take its jobs over.

    A run is fenced by its own last renewal, the worker by the last answer of the store.
    """

    name = "watchdog"

    def __init__(
        self,
        active_runs: ActiveRuns,
        *,
        worker: str = "WORKER",
        on_long_run: Callable[[], None] = lambda: None,
    ) -> None:
        self.wake = active_runs.added
        #: The store has not answered for too long: the worker must not claim.
        self.fenced = False
        self._active_runs = active_runs
        self._worker = worker
        self._on_long_run = on_long_run

    def tick(self) -> TickResult:
        runs = self._active_runs.all()
        now = clock.now()
        answered_at = self._active_runs.answered_at
        self.fenced = any(now - max(answered_at, run.renewed_at) >= STOP_SHARE * run.lease_duration for run in runs)
        if any(not run.started and run.under_way_for(now) > LONG_RUN_S for run in runs):
            self._on_long_run()
        for run in runs:
            if not run.finished:
                self._check(run, now)
        return TickResult(CHECK_INTERVAL_S if runs else IDLE_INTERVAL_S, considered=len(runs))

    def _check(self, run: Run, now: float) -> None:
        share = (now - run.renewed_at) / run.lease_duration
        if share >= STOP_SHARE:
            run.stop(StopReason.LEASE_LOST)
        if run.timeout is not None and run.begun_at is not None and now - run.begun_at > run.timeout:
            run.stop(StopReason.RUN_TIMEOUT)
        requested_at = run.stop_requested_at
        if share >= KILL_SHARE or (requested_at is not None and now - requested_at > run.stop_delay):
            unstoppable = run.kill()
            if unstoppable and run.stop_reason is StopReason.RUN_TIMEOUT:
                text = "job %d (%s) has run for %.0f s, past its timeout of %g s; its thread cannot be stopped: %s"
                command = f"holdfast ask {self._worker} stop"
                log.warning(text, run.lease.job_id, run.kind.name, run.under_way_for(now), run.timeout, command)
