"""How long jobs of each kind take, and what follows for fetching ahead."""

from __future__ import annotations

#: Short jobs are fetched ahead for about this long.
AHEAD = 0.1
#: A kind whose runs take longer than this is never fetched ahead.
SHORT = 0.05
LARGEST_FETCH = 1000


class RunTimes:
    """A moving mean of run times per kind. An unknown kind counts as long.

    Threads write here without a lock: a mean that misses one of many runs is as good.
    """

    def __init__(self) -> None:
        self._mean: dict[str, float] = {}

    def learn(self, kind: str, seconds: float) -> None:
        """Take in one run."""
        known = self._mean.get(kind)
        self._mean[kind] = seconds if known is None else known + 0.1 * (seconds - known)

    def is_short(self, kind: str) -> bool:
        return self._mean.get(kind, SHORT) < SHORT

    def ahead(self, kinds: list[str], slots: int) -> int:
        """How many short jobs to hold unbegun, judged by the slowest of *kinds*."""
        slowest = max((self._mean[kind] for kind in kinds), default=SHORT)
        return min(LARGEST_FETCH, int(slots * AHEAD / max(slowest, 1e-6)))
