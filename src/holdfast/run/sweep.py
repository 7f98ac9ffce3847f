"""The sweep: what is due becomes ready, what has lapsed is taken over, what was missed is found."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from holdfast.domain.job import JobId
from holdfast.run import clock
from holdfast.store import Store
from holdfast.store.retention import Retention
from holdfast.store.settlement import TakenOver

PROMOTE_EVERY = 1.0
TAKE_OVER_EVERY = 5.0
NEEDS_EVERY = 30.0
PRUNE_EVERY = 60.0


class Sweeper:
    """Runs on every worker, without a leader: each step is safe beside the same step elsewhere."""

    name = "sweeper"

    def __init__(
        self,
        store: Store,
        *,
        retention: Retention | None = None,
        ready: Callable[[], None] = lambda: None,
        taken: Callable[[list[TakenOver]], None] | None = None,
    ) -> None:
        self.bell = threading.Event()
        self._store = store
        self._retention = retention
        self._ready = ready
        self._taken = taken or (lambda _: None)
        self._cursor: JobId | None = None
        self._due = {"promote": 0.0, "take_over": 0.0, "needs": 0.0, "prune": clock.now() + PRUNE_EVERY}

    def tick(self) -> float:
        """Do what is due; answers when the next step is."""
        steps = {
            "promote": (self._promote, PROMOTE_EVERY),
            "take_over": (self._take_over, TAKE_OVER_EVERY),
            "needs": (self._sweep_needs, NEEDS_EVERY),
            "prune": (self._prune, PRUNE_EVERY),
        }
        for name, (step, every) in steps.items():
            if clock.now() >= self._due[name]:
                # Before the step: one that fails is tried again in its time, and holds up no other.
                self._due[name] = clock.now() + every * random.uniform(0.8, 1.2)
                if step():
                    self._due[name] = clock.now()
        return max(0.0, min(self._due.values()) - clock.now())

    def _promote(self) -> bool:
        count = self._store.leases.promote(limit=1000)
        if count:
            self._ready()
        return count == 1000

    def _take_over(self) -> bool:
        taken = self._store.leases.take_over(limit=100)
        if taken:
            self._taken(taken)
            self._ready()
        return len(taken) == 100

    def _sweep_needs(self) -> bool:
        self._cursor = self._store.leases.sweep_waiting(after=self._cursor or JobId(0), limit=500)
        return self._cursor is not None

    def _prune(self) -> bool:
        pruner = self._store.pruner
        counts = [*pruner.prune(self._retention, limit=1000).values(), pruner.prune_keys(limit=1000)]
        counts.append(pruner.prune_workers(self._retention, limit=1000))
        return 1000 in counts
