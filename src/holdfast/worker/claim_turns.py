"""Turns of large claims: workers claim one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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

    def longest(self, leases: Iterable[timedelta]) -> timedelta:
        """The longest wait for the turn of a claim of these leases."""
        return min(MAX_WAIT, min(leases) * LEASE_SHARE)

    def run(self, claim: Callable[[], list[Lease]]) -> list[Lease]:
        """Make a large claim, or receive its answer. Without its turn it claims nothing, and turns are paused."""
        try:
            return claim()
        except JobLocked:
            self._paused_until = clock.now() + PAUSE_S
            return []
