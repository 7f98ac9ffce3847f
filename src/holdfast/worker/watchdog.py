"""The guard: what time does to runs. It asks no database, so nothing can hold it up."""

from __future__ import annotations

from holdfast.worker import clock
from holdfast.worker.active_runs import ActiveRuns, Run, StopReason
from holdfast.worker.service import TickResult

#: Shares of a lease after which, without a renewal, handlers are told to stop, and killed.
TELL, KILL = 0.60, 0.85
#: A handler that was told to stop is killed after so many seconds, where its executor can.
OBEY = 5.0
LOOK_EVERY = 0.1


class Watchdog:
    """Fences this worker by its own clock, before anybody may take its jobs over; ends runs past their timeout."""

    name = "guard"

    def __init__(self, held: ActiveRuns, *, obey: float = OBEY) -> None:
        self.bell = held.added
        #: Some lease has gone without a renewal for too long: nothing new may be claimed.
        self.fenced = False
        self._held = held
        self._obey = obey

    def tick(self) -> TickResult:
        runs = self._held.all()
        now = clock.now()
        self.fenced = any(now - run.dated >= TELL * run.lease_duration for run in runs)
        for run in runs:
            if not run.finished:
                self._look(run, now)
        return TickResult(LOOK_EVERY if runs else 60.0, considered=len(runs))

    def _look(self, run: Run, now: float) -> None:
        share = (now - run.dated) / run.lease_duration
        if share >= TELL:
            run.stop(StopReason.LEASE_LOST)
        if run.timeout is not None and run.begun_at is not None and now - run.begun_at > run.timeout:
            run.stop(StopReason.RUN_TIMEOUT)
        if share >= KILL or (run.told_at is not None and now - run.told_at > self._obey):
            run.kill()
