"""The settler: outcomes are written in groups, without anybody waiting for them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from holdfast.domain.job import JobId, Lease
from holdfast.errors import HoldfastError
from holdfast.run.held import Held
from holdfast.store import Store
from holdfast.store.settlement import Settlement

GROUP = 1000
#: A settlement waits no longer than this for company.
PATIENCE = 0.05


class Settler:
    """Collects settlements and writes them in groups of at most a thousand."""

    name = "settler"

    def __init__(self, store: Store, held: Held, *, settled: Callable[[list[Settlement], set[JobId]], None]) -> None:
        self.bell = threading.Event()
        self._store = store
        self._held = held
        self._settled = settled
        self._waiting: deque[Settlement] = deque()
        self._empty = threading.Condition()

    def put(self, settlements: list[Settlement]) -> None:
        """Hand settlements over; they are written soon."""
        self._waiting.extend(settlements)
        self.bell.set()

    def tick(self) -> float:
        """Write one group. What could not be written is tried again: it is safe to write it twice."""
        group: list[Settlement] = []
        while self._waiting and len(group) < GROUP:
            group.append(self._waiting.popleft())
        if group:
            try:
                lost = self._store.leases.settle_many(group)
            except HoldfastError:
                self._waiting.extendleft(reversed(group))
                raise
            self._held.drop([settlement.lease for settlement in group])
            self._settled(group, lost)
        return 0.0 if self._waiting else PATIENCE

    def give_back(self, leases: list[Lease]) -> None:
        """Return unbegun jobs to the store."""
        if leases:
            self._store.leases.give_back(leases)
            self._held.drop(leases)

    def __len__(self) -> int:
        return len(self._waiting)
