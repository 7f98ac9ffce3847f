"""The heartbeat: it renews all leases and brings what people want."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from datetime import timedelta

from holdfast.domain.jobs.job import WorkerId, WorkerRequest
from holdfast.domain.jobs.kind import Kind
from holdfast.errors import StoreUnavailable
from holdfast.store import Store
from holdfast.worker import clock
from holdfast.worker.active_runs import STOP_FOR, ActiveRuns, Run, StopReason
from holdfast.worker.service import TickResult

log = logging.getLogger("holdfast")

INTERVAL = 10.0
#: A run that has taken so many seconds is marked: from then on the loss of its worker costs an attempt.
MARK_AFTER = 0.5
#: After a failed renewal the next one follows so soon, in seconds.
AGAIN = 1.0
#: Rings ask for a heartbeat no sooner than so many seconds after the last one.
SOONEST = 1.0


class Heartbeat:
    """Renews in one statement, from a thread of its own. It goes on until the last handler has ended."""

    name = "heartbeat"

    def __init__(
        self,
        store: Store,
        worker: WorkerId,
        held: ActiveRuns,
        *,
        interval: float,
        lost: Callable[[Run], None],
        wished: Callable[[WorkerRequest | None], None] = lambda _: None,
    ) -> None:
        self.bell = threading.Event()
        self.beaten_at = clock.now()
        self._store = store
        self._worker = worker
        self._held = held
        self._interval = interval
        self._lost = lost
        self._wished = wished
        self._asked = False

    def rung(self) -> None:
        """Somebody may want something of what runs here: ask soon, however many rings there are."""
        if not self._asked and len(self._held):
            self._asked = True
            self.bell.set()

    def tick(self) -> TickResult:
        """Renew what is held. The guard stops what could not be renewed for too long."""
        early = self.beaten_at + SOONEST - clock.now()
        if self._asked and early > 0:
            return TickResult(early)
        self._asked = False
        runs = self._held.all()
        self._warn_if_late(runs)
        try:
            self._renew(runs)
            seen = self._store.workers.heartbeat(self._worker)
        except StoreUnavailable as error:
            log.warning("a heartbeat failed: %s", error)
            return TickResult(min(AGAIN, self._interval), considered=len(runs))
        self.beaten_at = clock.now()
        if seen is not None:
            self._wished(seen.requested)
        return TickResult(self._interval, considered=len(runs), processed=len(runs))

    def _warn_if_late(self, runs: list[Run]) -> None:
        """Code that holds the interpreter's lock starves this thread: say who was at work."""
        late = clock.now() - self.beaten_at
        if late > 2 * self._interval + 1:
            kinds = sorted({run.kind.name for run in runs if run.begun_at is not None})
            log.warning("the heartbeat comes %.0f s late; running: %s", late, ", ".join(kinds) or "nothing")

    def _renew(self, runs: list[Run]) -> None:
        by_duration: dict[float, list[Run]] = {}
        for run in runs:
            by_duration.setdefault(run.lease_duration, []).append(run)
        for lease_duration, group in by_duration.items():
            before = clock.now()
            begun = {run.lease.job_id for run in group if run.under_way_for(before) > MARK_AFTER}
            leases = [run.lease for run in group]
            answers = self._store.leases.renew(leases, lease_duration=timedelta(seconds=lease_duration), begun=begun)
            known = {answer.job_id: answer for answer in answers}
            for run in group:
                answer = known.get(run.lease.job_id)
                if answer is None:
                    self._gone(run)
                    continue
                if answer.renewed:
                    run.date(before)
                if answer.requested is not None:
                    run.stop(STOP_FOR[answer.requested])

    def _gone(self, run: Run) -> None:
        """Not held any more: taken over, or settled just now, which is no loss."""
        if not run.finished:
            self._lost(run)
            run.stop(StopReason.LEASE_LOST)
            run.kill()


def interval_for(longest: float, kinds: Iterable[Kind]) -> float:
    """A lease survives several heartbeats that fail, the shortest one too."""
    return min([longest, *(kind.options.lease.total_seconds() / 5 for kind in kinds)])
