"""Ids of new jobs, drawn from the database in blocks."""

from __future__ import annotations

import threading
from collections.abc import Callable

from holdfast.domain.jobs.job import JobId


class IdSource:
    """Draws ids in growing blocks, so that a busy process needs one query for a thousand."""

    MAX_BLOCK_SIZE = 1000

    def __init__(self, draw: Callable[[int], list[JobId]]) -> None:
        self._draw = draw
        self._lock = threading.Lock()
        self._remaining: list[JobId] = []
        self._block = 1

    def discard(self) -> None:
        """Discard the ids that were drawn ahead."""
        with self._lock:
            self._remaining.clear()

    def draw(self, count: int) -> list[JobId]:
        # The database is queried without the lock: while it does not answer, no thread waits for the tries of others.
        with self._lock:
            drawn = self._remaining[:count]
            del self._remaining[:count]
            missing, block = count - len(drawn), self._block
            if missing:
                self._block = min(self._block * 2, self.MAX_BLOCK_SIZE)
        if missing:
            more = self._draw(max(missing, block))
            drawn += more[:missing]
            with self._lock:
                self._remaining += more[missing:]
        return drawn
