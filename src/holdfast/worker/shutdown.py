"""The shutdown of a worker: active runs finish within the grace period, and the others are released."""

from __future__ import annotations

import logging
import threading

from holdfast.domain.jobs.kind_options import ExecutorName
from holdfast.worker import clock
from holdfast.worker.active_runs import StopReason
from holdfast.worker.executors.pool import ExecutorPool
from holdfast.worker.options import WorkerSetup
from holdfast.worker.run_lifecycle import RunLifecycle, try_write, write_within
from holdfast.worker.service import stop_threads
from holdfast.worker.settler import FLUSH_TIMEOUT_S
from holdfast.worker.worker_services import Services

log = logging.getLogger("holdfast")

#: Handlers receive a stop request this long before the end of the grace period.
STOP_BEFORE_END_S = 1.0
#: Longest wait before the stop requests are due again: a command may have begun meanwhile.
RECHECK_S = 0.5
#: Time for outcomes when a process is left at once, for services that stop, and for the last writes to a silent store.
ABANDON_FLUSH_S, HELPER_TIMEOUT_S, LAST_WRITE_TIMEOUT_S = 0.3, 5.0, 5.0


def notice_of_handlers(grace: float) -> float:
    """Seconds that a handler has between its stop request and the end of a grace period."""
    return min(STOP_BEFORE_END_S, max(0.2, grace / 4))


def stop_request_after(grace: float, *, stop_delay: float | None = None) -> float:
    """Seconds from the beginning of a grace period to the stop request of a run.

    A command is killed at the end of the period. It has its *stop_delay* before that, or the whole of a shorter period.
    Other handlers (None) have one second, or a quarter of a short period.
    """
    return max(0.0, grace - (notice_of_handlers(grace) if stop_delay is None else stop_delay))


class Shutdown:
    """Ends the work of a worker that claims no more jobs."""

    def __init__(self, setup: WorkerSetup, pool: ExecutorPool, lifecycle: RunLifecycle, services: Services) -> None:
        self._store, self._workers = setup.store, setup.store.workers
        self._worker, self._options = setup.worker, setup.options
        self._pool, self._lifecycle, self._services = pool, lifecycle, services

    def wind_down(self, *, exits: bool) -> None:
        """Let active runs finish, then request their stop, then kill what can be killed. See ``Worker.run``."""
        grace, began = self._options.grace.total_seconds(), clock.now()
        ends_at = began + grace
        self._pool.release()
        stop_threads(self._services.helpers, min(HELPER_TIMEOUT_S, grace))
        if self._lifecycle.autoscaler is not None:
            write_within(LAST_WRITE_TIMEOUT_S, self._lifecycle.autoscaler.thaw_all)
        self._lifecycle.settler.flush(locked=False)
        self._stop_in_time(began, grace)
        for run in self._lifecycle.active_runs.all():
            run.kill()
        self._pool.wait_killed(clock.now() + STOP_BEFORE_END_S)
        if exits or not self._pool.running:
            self._close(ends_at)
            return
        log.warning("handlers that continue: %d; their leases are kept until they finish", self._pool.running)
        # An embedded worker cannot end its threads, so it renews their leases until they finish.
        threading.Thread(target=self._close_when_idle, name="holdfast-last", daemon=True).start()

    def _stop_in_time(self, began: float, grace: float) -> None:
        """Wait for active runs until the end of the grace period, and request the stop of each in time."""
        grace = max(grace, clock.now() - began + notice_of_handlers(grace))
        while (now := clock.now()) < began + grace:
            next_at = min(began + grace, now + RECHECK_S)
            for run in self._lifecycle.active_runs.all():
                delay = run.stop_delay if run.kind.executor is ExecutorName.COMMAND else None
                stop_at = began + stop_request_after(grace, stop_delay=delay)
                if now >= stop_at:
                    run.stop(StopReason.SHUTDOWN)
                else:
                    next_at = min(next_at, stop_at)
            if self._pool.wait_idle(next_at):
                return

    def abandon(self) -> None:
        """Kill child processes and release all jobs at once."""
        self._pool.release()  # runs that wait must not begin in the slots of those that are killed
        self._lifecycle.settler.flush(clock.now() + ABANDON_FLUSH_S, locked=False)
        unfinished = self._lifecycle.unfinished  # a kill finishes some, which are released all the same
        for run in self._lifecycle.active_runs.all():
            run.kill()
        self._lifecycle.release(unfinished)
        try_write(lambda: self._workers.record_stop(self._worker))

    def _close_when_idle(self) -> None:
        self._pool.wait_idle(float("inf"))
        self._close()

    def _close(self, ends_at: float = 0.0) -> None:
        """Write the last outcomes. Jobs that another transaction has locked get the rest of the grace period."""
        self._lifecycle.settler.flush(max(ends_at, clock.now() + FLUSH_TIMEOUT_S))
        self._pool.close()
        stop_threads([*reversed(self._services.keepers)], HELPER_TIMEOUT_S)
        write_within(LAST_WRITE_TIMEOUT_S, self._write_rest)
        self._store.release(self._worker)

    def _write_rest(self) -> None:
        """Release the jobs of handlers that go on, and write the outcomes of those that have just finished."""
        self._lifecycle.release(self._lifecycle.unfinished)
        settler = self._services.settler
        while len(settler.service) and not (result := settler.tick()).skipped and result.next_in == 0:
            pass
        self._workers.record_stop(self._worker)
