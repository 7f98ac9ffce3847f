"""The heartbeat: it renews all leases, brings cancels, and fences its own worker."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta

from holdfast.domain.job import WorkerId
from holdfast.errors import HoldfastError
from holdfast.run import clock
from holdfast.run.held import Held, Run, StopReason
from holdfast.store import Store

log = logging.getLogger("holdfast")

INTERVAL = 10.0
#: Shares of a lease after which, without a renewal, handlers are told to stop, and killed.
TELL, KILL = 0.60, 0.85


class Heartbeat:
    """Renews in one statement, from a thread of its own. It goes on until the last handler has ended."""

    name = "heartbeat"

    def __init__(
        self, store: Store, worker: WorkerId, held: Held, *, interval: float = INTERVAL, lost: Callable[[Run], None]
    ) -> None:
        self.bell = threading.Event()
        self.beaten_at = clock.now()
        self._store = store
        self._worker = worker
        self._held = held
        self._interval = interval
        self._lost = lost

    def tick(self) -> float:
        """Renew what is held; where that fails, stop what could be taken over soon."""
        try:
            self._renew(self._held.all())
            self._store.workers.seen(self._worker)
        except HoldfastError as error:
            log.warning("a heartbeat failed: %s", error)
            self.fence()
            return min(1.0, self._interval)
        self.beaten_at = clock.now()
        self.fence()
        return self._interval

    @property
    def fenced(self) -> bool:
        """Whether some lease has gone without a renewal for too long: nothing new may be claimed."""
        return any(run.lapsed_share >= TELL for run in self._held.all())

    def fence(self) -> None:
        """Stop handlers before anybody may take their jobs over, by this machine's own clock."""
        for run in self._held.all():
            if run.lapsed_share >= TELL:
                run.stop(StopReason.LEASE_LOST)

    def _renew(self, runs: list[Run]) -> None:
        before = clock.now()
        by_term: dict[float, list[Run]] = {}
        for run in runs:
            by_term.setdefault(run.term, []).append(run)
        for term, group in by_term.items():
            answers = self._store.leases.renew([run.lease for run in group], term=timedelta(seconds=term))
            known = {answer.job_id: answer for answer in answers}
            for run in group:
                answer = known.get(run.lease.job_id)
                if answer is None:
                    self._lost(run)
                    continue
                if answer.renewed:
                    run.dated = before
                if answer.cancel_wanted:
                    run.stop(StopReason.CANCELLED)
