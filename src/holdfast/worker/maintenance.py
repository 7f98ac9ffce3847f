"""The sweep: what is due becomes ready, what has lapsed is taken over, what was missed is found."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from holdfast.domain.jobs.job import JobId
from holdfast.errors import StoreUnavailable
from holdfast.store import Store
from holdfast.store.jobs.retention import Retention
from holdfast.worker import clock
from holdfast.worker.service import TickResult

#: With nothing due soon, one looks so often for what is; with news, so often at most.
LOOK_EVERY, PROMOTE_EVERY = 3.0, 1.0
TAKE_OVER_EVERY = 5.0
NEEDS_EVERY = 30.0
PRUNE_EVERY = 60.0
BATCHES_EVERY = 30.0
INBOX_EVERY = 60.0


class Maintenance:
    """Runs on every worker, without a leader: each step is safe beside the same step elsewhere.

    At first, and after an outage, nothing is taken over before *heartbeat* seconds have passed,
    so that holders who are alive renew first.
    """

    name = "sweeper"

    def __init__(
        self,
        store: Store,
        *,
        heartbeat: float,
        retention: Retention | None = None,
        swept: Callable[[str, int], None],
    ) -> None:
        self.bell = threading.Event()
        self._store = store
        self._heartbeat = heartbeat
        self._retention = retention
        self._swept = swept
        self._cursor: JobId | None = None
        self._looked_at = 0.0
        now = clock.now()
        self._due = {"promote": 0.0, "take_over": now + heartbeat, "dependencies": 0.0, "batches": 0.0, "inbox": 0.0}
        self._due["prune"] = now + PRUNE_EVERY

    def tick(self) -> TickResult:
        """Do what is due."""
        steps = {
            "promote": (self._promote, LOOK_EVERY),
            "take_over": (self._take_over, min(TAKE_OVER_EVERY, 2 * self._heartbeat)),
            "dependencies": (self._sweep_needs, NEEDS_EVERY),
            "batches": (self._revive, BATCHES_EVERY),
            "inbox": (self._expire, INBOX_EVERY),
            "prune": (self._prune, PRUNE_EVERY),
        }
        total = 0
        for name, (step, every) in steps.items():
            if clock.now() >= self._due[name]:
                # Before the step: one that fails is tried again in its time, and holds up no other.
                self._due[name] = clock.now() + every * random.uniform(0.8, 1.2)
                total += self._do(name, step)
        return TickResult(max(0.0, min(self._due.values()) - clock.now()), processed=total, swept=total)

    def _do(self, name: str, step: Callable[[], tuple[int, bool]]) -> int:
        try:
            count, more = step()
        except StoreUnavailable:
            self._due["take_over"] = clock.now() + self._heartbeat
            raise
        if more:
            self._due[name] = clock.now()
        return count

    def rung(self) -> None:
        """Something new may be due soon: look again, once a second at most."""
        soon = self._looked_at + PROMOTE_EVERY
        if self._due["promote"] > soon:
            self._due["promote"] = soon
            self.bell.set()

    def _promote(self) -> tuple[int, bool]:
        self._looked_at = clock.now()
        wait = self._store.leases.next_due()
        if wait is None or wait.total_seconds() > 0:
            rest = LOOK_EVERY if wait is None else min(wait.total_seconds(), LOOK_EVERY)
            self._due["promote"] = clock.now() + rest
            return 0, False
        count = self._store.leases.promote(limit=1000)
        self._due["promote"] = clock.now()  # the next one may be due in a moment
        return count, False

    def _take_over(self) -> tuple[int, bool]:
        if not self._store.leases.any_expired():
            return 0, False
        count = len(self._store.leases.take_over(limit=100))
        self._swept("lease", count)
        return count, count == 100

    def _sweep_needs(self) -> tuple[int, bool]:
        self._cursor = self._store.leases.check_waiting(after=self._cursor or JobId(0), limit=500)
        return 0, self._cursor is not None

    def _revive(self) -> tuple[int, bool]:
        count = self._store.batches.revive(limit=100)
        self._swept("batch", count)
        return count, False

    def _expire(self) -> tuple[int, bool]:
        count = self._store.inbox.expire(limit=100)
        self._swept("result", count)
        return count, count == 100

    def _prune(self) -> tuple[int, bool]:
        pruner = self._store.pruner
        counts = {
            "job": sum(pruner.prune(self._retention, limit=1000).values()),
            "key": pruner.prune_keys(limit=1000),
            "worker": pruner.prune_workers(self._retention, limit=1000),
            "plan": pruner.prune_plans(self._retention, limit=1000),
            "decision": pruner.prune_autoscaler(self._retention, limit=1000),
            "act": pruner.prune_audit(self._retention, limit=1000),
        }
        for table, count in counts.items():
            self._swept(table, count)
        return sum(counts.values()), max(counts.values()) >= 1000
