"""Ids of new jobs, drawn from the database in blocks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from holdfast.domain.jobs.job import JobId


class IdSource:
    """Draws consecutive ids in growing blocks, so that a busy process needs one query for thousands."""

    MAX_BLOCK_SIZE = 4000

    def __init__(self, draw: Callable[[int], Sequence[JobId]]) -> None:
        self._draw = draw
        self._lock = threading.RLock()  # a finalizer that runs in its block may call the store
        self._remaining: Sequence[JobId] = ()
        self._block = 1
        self._discards = 0

    def discard(self) -> None:
        """Discard the ids that were drawn ahead."""
        with self._lock:
            self._remaining = ()
            self._discards += 1

    def draw(self, count: int) -> Sequence[JobId]:
        # The database is queried without the lock: while it does not answer, no thread waits for the tries of others.
        with self._lock:
            if count <= len(self._remaining):
                drawn, self._remaining = self._remaining[:count], self._remaining[count:]
                return drawn
            size = max(count, self._block)
            self._block = min(size * 2, self.MAX_BLOCK_SIZE)
            discards = self._discards
        ids = self._draw(size)
        with self._lock:
            if discards == self._discards:  # otherwise they may have been drawn before those that are in use
                self._remaining = max(self._remaining, ids[count:], key=len)
        return ids[:count]
