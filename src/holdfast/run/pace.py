"""How long jobs of each kind take, and what follows for fetching ahead."""

from __future__ import annotations

import threading

#: Short jobs are fetched ahead for about this long.
AHEAD = 0.1
#: A kind whose runs take longer than this is never fetched ahead.
SHORT = 0.05
LARGEST_FETCH = 1000
LARGEST_GROUP = 32


class Pace:
    """A moving mean of run times per kind. An unknown kind counts as long."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._mean: dict[str, float] = {}

    def learn(self, kind: str, seconds: float, count: int = 1) -> None:
        """Take in *count* runs that took *seconds* together."""
        with self._lock:
            each = seconds / count
            known = self._mean.get(kind)
            share = min(0.5, 0.1 * count)
            self._mean[kind] = each if known is None else known + share * (each - known)

    def is_short(self, kind: str) -> bool:
        return self._mean.get(kind, SHORT) < SHORT

    def ahead(self, kinds: list[str], slots: int) -> int:
        """How many short jobs to hold unbegun, judged by the slowest of *kinds*."""
        slowest = max((self._mean[kind] for kind in kinds), default=SHORT)
        return min(LARGEST_FETCH, int(slots * AHEAD / max(slowest, 1e-6)))

    def group(self, kind: str) -> int:
        """How many jobs of a kind to hand to a slot at once: about a millisecond of work."""
        mean = self._mean.get(kind, SHORT)
        return max(1, min(LARGEST_GROUP, int(0.001 / max(mean, 1e-6))))
