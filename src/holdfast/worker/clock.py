"""The worker's clock: the time that leases are measured by, and waits that tests can fake."""

from __future__ import annotations

import time

if hasattr(time, "CLOCK_BOOTTIME"):

    def now() -> float:
        """Seconds since the machine was started, suspended time included."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:

    def now() -> float:
        """Seconds that only grow; time in which the machine is suspended does not count."""
        return time.monotonic()


def sleep(seconds: float) -> None:
    """Pause this thread; only for waits that no event can end."""
    time.sleep(seconds)
