"""The timekeeper: whether the store's clock can be believed."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

log = logging.getLogger("holdfast")

#: A clock that is ahead of ours by more has leapt, and is believed when it has kept its new time for so long.
LEAP, PROBATION = timedelta(minutes=5), 60.0


class ClockCheck:
    """Compares the store's clock with one that nobody sets.

    A clock that goes back is harmless: no cursor goes back with it. One that leaps ahead for a moment would have plans
    fired long before their time.
    """

    def __init__(self) -> None:
        self._seen: tuple[datetime, float] | None = None
        self._doubted_at: float | None = None

    def believes(self, now: datetime, at: float) -> bool:
        """Whether *now* of the store is to be acted on; *at* is the time of our own clock, in seconds."""
        if self._seen is None:
            self._seen = now, at
            return True
        ahead = (now - self._seen[0]) - timedelta(seconds=at - self._seen[1])
        if ahead <= LEAP:
            self._seen, self._doubted_at = (now, at), None
            return True
        if self._doubted_at is None:
            self._doubted_at = at
            log.warning("the store's clock has leapt ahead by %s: nothing is planned until it has kept its time", ahead)
        if at - self._doubted_at < PROBATION:
            return False
        self._seen, self._doubted_at = (now, at), None
        return True
