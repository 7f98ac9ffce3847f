"""Limits on requests: how many run at a time, on a server and for one caller."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors.http import Busy

#: Requests of callers who are signed in, their streams included.
MAX_REQUESTS = 400
#: Requests to pages that need no sign-in, except health checks.
MAX_PUBLIC_REQUESTS = 50
#: Searches in logs that one caller runs at a time.
MAX_SEARCHES = 1


class RequestLimit:
    """Lets a number of requests run at a time, in all or for each caller. The next one is refused."""

    def __init__(self, limit: int, label: str) -> None:
        self._limit = limit
        self._label = label
        self._running: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def slot(self, caller: str = "") -> Iterator[None]:
        """Take a slot for the duration of the body; Busy if none is left."""
        with self._lock:
            if self._running[caller] >= self._limit:
                raise Busy(f"too many {self._label} at a time: at most {self._limit}", headers={"Retry-After": "1"})
            self._running[caller] += 1
        try:
            yield
        finally:
            with self._lock:
                self._running[caller] -= 1
                self._running += Counter()  # drops callers without requests
