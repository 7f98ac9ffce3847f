"""Failed tries to sign in: how many wrong secrets a server answers in one second."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors.http import SlowDown

#: Wrong tokens, sessions and links that a server answers in one second. The secrets cannot be guessed: the limit keeps
#: logs short, and slows down guesses of HOLDFAST_METRICS_TOKEN, which a person may have made up.
MAX_FAILURES_PER_S = 20


class FailedTries:
    """Limits wrong secrets per server and second. Right tokens and sessions are never delayed."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=MAX_FAILURES_PER_S)
        self._lock = threading.Lock()

    def check(self) -> None:
        """Raise SlowDown after too many failures in the last second."""
        with self._lock:
            full = len(self._times) == MAX_FAILURES_PER_S and time.monotonic() - self._times[0] < 1.0
        if full:
            raise SlowDown("too many wrong tokens", headers={"Retry-After": "1"})

    @contextmanager
    def counted(self, failure: type[Exception]) -> Iterator[None]:
        """Count a *failure* of the body; after too many it becomes SlowDown."""
        try:
            yield
        except failure:
            self.check()
            with self._lock:
                self._times.append(time.monotonic())
            raise
