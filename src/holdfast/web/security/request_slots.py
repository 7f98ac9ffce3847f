"""Limits on requests: how many run at a time, on a server and for one caller."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from holdfast.errors.http import Busy

#: Requests of callers who are signed in, their streams included: in all, and of one caller.
MAX_REQUESTS, MAX_CALLER_REQUESTS = 400, 40
#: Requests to pages that need no sign-in, except health checks and files: in all, and from one address.
MAX_PUBLIC_REQUESTS, MAX_ADDRESS_REQUESTS = 50, 25
#: Bodies that arrive at a time, in all and of one caller or address. The oldest one gives way.
MAX_BODIES, MAX_CALLER_BODIES = 200, 40
#: Searches in logs that one caller runs at a time.
MAX_SEARCHES = 1


class RequestLimit:
    """Lets a number of requests run at a time, in all or for each caller. The next one is refused."""

    def __init__(self, limit: int, label: str) -> None:
        self._limit = limit
        self._label = label
        self._running: Counter[object] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def slot(self, caller: object = "") -> Iterator[None]:
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


class ArrivingBodies:
    """Lets bodies arrive before their requests take slots: a slow body keeps nobody out.

    At most *limit* arrive at a time, and *caller_limit* of one caller. A new one is never refused: the oldest of the
    caller, or of all, is given up. The body of a person who signs in arrives within milliseconds.
    """

    def __init__(self, limit: int = MAX_BODIES, caller_limit: int = MAX_CALLER_BODIES) -> None:
        self._limit, self._caller_limit = limit, caller_limit
        #: The deadlines of the bodies that arrive, oldest first, and their callers.
        self._arriving: dict[asyncio.Timeout, object] = {}

    @asynccontextmanager
    async def arrival(self, caller: object) -> AsyncIterator[None]:
        """The body of a request of *caller* arrives. Busy if newer ones took its place."""
        own = [deadline for deadline, each in self._arriving.items() if each == caller]
        if len(own) >= self._caller_limit:
            self._give_up(own[0])
        elif len(self._arriving) >= self._limit:
            self._give_up(next(iter(self._arriving)))
        deadline = asyncio.timeout(None)
        try:
            async with deadline:
                self._arriving[deadline] = caller
                yield
        except TimeoutError:
            if not deadline.expired():
                raise
            raise Busy("too many bodies of requests arrive at a time", headers={"Retry-After": "1"}) from None
        finally:
            self._arriving.pop(deadline, None)

    def _give_up(self, deadline: asyncio.Timeout) -> None:
        del self._arriving[deadline]
        deadline.reschedule(asyncio.get_running_loop().time())
