"""A check of the store's clock: planning waits after the clock jumps ahead."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

log = logging.getLogger("holdfast")

#: A clock that gains more than this on the monotonic clock has jumped.
MAX_GAIN = timedelta(minutes=5)
#: A clock that has jumped is trusted again after it has kept its new time for this long.
PROBATION_S = 60.0


class ClockCheck:
    """Compares the store's clock with the worker's monotonic clock.

    A clock that is set back is harmless, because cursors never move back. A clock that jumps ahead, if only for a
    short time, would fire plans long before they are due.
    """

    def __init__(self) -> None:
        self._trusted: tuple[datetime, float] | None = None
        self._jumped_at: float | None = None

    def trusts(self, now: datetime, at: float) -> bool:
        """Return whether plans may be decided by the store's time *now*; *at* is the monotonic time, in seconds."""
        if self._trusted is None:
            self._trusted = now, at
            return True
        ahead = (now - self._trusted[0]) - timedelta(seconds=at - self._trusted[1])
        if ahead <= MAX_GAIN:
            self._trusted, self._jumped_at = (now, at), None
            return True
        if self._jumped_at is None:
            self._jumped_at = at
            log.warning("the store's clock has leapt ahead by %s: nothing is planned until it has kept its time", ahead)
        if at - self._jumped_at < PROBATION_S:
            return False
        self._trusted, self._jumped_at = (now, at), None
        return True
