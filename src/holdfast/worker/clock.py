"""The holder's own clock: it counts suspended time too, where the system can."""

from __future__ import annotations

import time

if hasattr(time, "CLOCK_BOOTTIME"):

    def now() -> float:
        """Seconds since the machine was started, sleep included."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:

    def now() -> float:
        """Seconds that only grow; a suspended machine does not count them."""
        return time.monotonic()
