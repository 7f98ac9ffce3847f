"""Maintenance: promotes due jobs, takes over expired leases and prunes old rows."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.domain.jobs.job import JobId
from holdfast.errors import StoreUnavailable
from holdfast.store import Store
from holdfast.store.jobs.retention import Retention
from holdfast.worker import clock
from holdfast.worker.service import TickResult

#: Intervals of the steps. Notifications shorten the wait for a promotion to the second value.
PROMOTE_INTERVAL_S, MIN_PROMOTE_INTERVAL_S = 3.0, 1.0
TAKE_OVER_INTERVAL_S = 5.0
DEPENDENCIES_INTERVAL_S = BATCHES_INTERVAL_S = 30.0
#: A take-over that had to wait longer for its transaction does nothing, until live workers have renewed.
MAX_LOCK_WAIT_S = 0.1
INBOX_INTERVAL_S = PRUNE_INTERVAL_S = 60.0


@dataclass(slots=True)
class MaintenanceStep:
    """A step, its interval and its next due time. It returns the number of rows, and whether more are due now."""

    run: Callable[[], tuple[int, bool]]
    interval: float
    due_at: float = 0.0


class Maintenance:
    """Runs on every worker; there is no leader. Each step is safe to run concurrently."""

    name = "maintenance"

    def __init__(
        self, store: Store, *, heartbeat: float, retention: Retention | None, maintained: Counter[str]
    ) -> None:
        self.wake = threading.Event()
        self._store = store
        #: At first, and after an outage, leases are taken over only after this time: live workers renew first.
        self._heartbeat = heartbeat
        self._retention = retention
        self._maintained = maintained
        self._cursor: JobId | None = None
        self._promoted_at = 0.0
        now = clock.now()
        self._promotion = MaintenanceStep(self._promote, PROMOTE_INTERVAL_S)
        interval = min(TAKE_OVER_INTERVAL_S, 2 * heartbeat)
        self._take_over = MaintenanceStep(self._take_over_expired, interval, now + heartbeat)
        self._steps = [
            self._promotion,
            self._take_over,
            MaintenanceStep(self._check_dependencies, DEPENDENCIES_INTERVAL_S),
            MaintenanceStep(self._revive_batches, BATCHES_INTERVAL_S),
            MaintenanceStep(self._expire_inbox, INBOX_INTERVAL_S),
            MaintenanceStep(self._prune, PRUNE_INTERVAL_S, now + PRUNE_INTERVAL_S),
        ]

    def tick(self) -> TickResult:
        total = 0
        for step in self._steps:
            if clock.now() >= step.due_at:
                # Set before the run: a failing step waits for its next turn and does not block the others.
                step.due_at = clock.now() + step.interval * random.uniform(0.8, 1.2)
                total += self._run(step)
        next_in = max(0.0, min(step.due_at for step in self._steps) - clock.now())
        return TickResult(next_in, processed=total)

    def _run(self, step: MaintenanceStep) -> int:
        try:
            count, more = step.run()
        except StoreUnavailable:
            self._take_over.due_at = clock.now() + self._heartbeat
            raise
        if more:
            step.due_at = clock.now()
        return count

    def on_notify(self) -> None:
        """A new job may be due soon: check again, at most once a second."""
        soon = self._promoted_at + MIN_PROMOTE_INTERVAL_S
        if self._promotion.due_at > soon:
            self._promotion.due_at = soon
            self.wake.set()

    def _promote(self) -> tuple[int, bool]:
        self._promoted_at = clock.now()
        wait = self._store.leases.next_due()
        next_in = PROMOTE_INTERVAL_S if wait is None else min(wait.total_seconds(), PROMOTE_INTERVAL_S)
        if next_in > 0:
            self._promotion.due_at = clock.now() + next_in
            return 0, False
        count = self._store.leases.promote(limit=1000)
        self._promotion.due_at = clock.now()  # the next job may be due at once
        return count, False

    def _take_over_expired(self) -> tuple[int, bool]:
        if not self._store.leases.any_expired():
            return 0, False
        began = clock.now()
        # On SQLite, renewals may have waited for the same lock: their workers are alive, and come first.
        count = len(self._store.leases.take_over(limit=100, proceed=lambda: clock.now() - began < MAX_LOCK_WAIT_S))
        if clock.now() - began >= MAX_LOCK_WAIT_S:
            self._take_over.due_at = clock.now() + 2 * self._heartbeat
        self._maintained["lease"] += count
        return count, count == 100

    def _check_dependencies(self) -> tuple[int, bool]:
        self._cursor = self._store.leases.check_waiting(after=self._cursor or JobId(0), limit=500)
        return 0, self._cursor is not None

    def _revive_batches(self) -> tuple[int, bool]:
        count = self._store.batches.revive(limit=100)
        self._maintained["batch"] += count
        return count, False

    def _expire_inbox(self) -> tuple[int, bool]:
        count = self._store.inbox.expire(limit=100)
        self._maintained["result"] += count
        return count, count == 100

    def _prune(self) -> tuple[int, bool]:
        pruner = self._store.pruner
        counts = {
            "job": sum(pruner.prune(self._retention, limit=1000).values()),
            "key": pruner.prune_keys(limit=1000),
            "worker": pruner.prune_workers(self._retention, limit=1000),
            "plan": pruner.prune_plans(self._retention, limit=1000),
            "decision": pruner.prune_autoscaler(self._retention, limit=1000),
            "audit": pruner.prune_audit(self._retention, limit=1000),
        }
        for table, count in counts.items():
            self._maintained[table] += count
        return sum(counts.values()), max(counts.values()) >= 1000
