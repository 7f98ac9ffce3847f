"""Turns of large claims: workers claim one after another."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from holdfast.domain.jobs.job import Lease
from holdfast.errors import JobLocked
from holdfast.worker import clock

#: A claim of more jobs than this is large. Smaller ones never wait.
LARGE_CLAIM = 32
#: The longest wait for a turn. A lease counts from before the wait, which may take this share of it.
MAX_WAIT, LEASE_SHARE = timedelta(seconds=3), 0.25
#: After a wait in vain, this worker makes no large claim for this long: the process that has the turn may be stopped.
PAUSE_S = 30.0


class ClaimTurns:
    """Takes turns with the large claims of other workers. On PostgreSQL.

    A claim that began before another was committed locks the jobs that the other has claimed, and passes over them one
    by one. Their settlements wait for it. So without turns, many workers spend most of their time on each other's jobs.
    """

    def __init__(self) -> None:
        self._paused_until = float("-inf")

    @property
    def paused(self) -> bool:
        return clock.now() < self._paused_until

    def run(self, claim: Callable[[timedelta], list[Lease]], shortest_lease: timedelta) -> list[Lease] | None:
        """Make a large claim. *claim* gets the longest wait for its turn. None: the turn did not come."""
        try:
            return claim(min(MAX_WAIT, shortest_lease * LEASE_SHARE))
        except JobLocked:
            self._paused_until = clock.now() + PAUSE_S
            return None
