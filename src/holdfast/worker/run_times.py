"""Run-time estimates per kind: they decide how many jobs are claimed ahead."""

from __future__ import annotations

#: Claimed-ahead jobs should keep the slots busy for this long.
AHEAD_S = 0.1
#: A kind whose runs take longer than this is never claimed ahead.
SHORT_RUN_S = 0.05
MAX_AHEAD = 1000


class RunTimes:
    """A moving mean of run times per kind. An unknown kind counts as long.

    Threads write without a lock: a mean that misses one run of many is good enough.
    """

    def __init__(self) -> None:
        self._mean: dict[str, float] = {}

    def learn(self, kind: str, seconds: float) -> None:
        """Add the duration of one run."""
        known = self._mean.get(kind)
        self._mean[kind] = seconds if known is None else known + 0.1 * (seconds - known)

    def is_short(self, kind: str) -> bool:
        return self._mean.get(kind, SHORT_RUN_S) < SHORT_RUN_S

    def ahead(self, kinds: list[str], slots: int) -> int:
        """Number of jobs to hold ahead of free slots, by the slowest of *kinds*."""
        slowest = max((self._mean[kind] for kind in kinds), default=SHORT_RUN_S)
        return min(MAX_AHEAD, int(slots * AHEAD_S / max(slowest, 1e-6)))
