"""Live updates: a stream of server-sent events that name the parts of the store which changed.

One poller per server reads the change counters and the access of all viewers once a second: two statements for any
number of open pages. A page that receives "jobs" requests itself again, and viewers share the answer (page_cache.py).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct, structs
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from holdfast.errors import HoldfastError
from holdfast.web.page_cache import RENDER_INTERVAL_S
from holdfast.web.request import caller_of

if TYPE_CHECKING:
    from holdfast.web.security.authentication import Caller

log = logging.getLogger("holdfast")

#: Time between two readings of the counters.
INTERVAL_S = 1.0
#: Interval at which a silent stream sends a comment, so that proxies keep it open.
KEEP_ALIVE_S = 10.0
#: Open streams per server. Pages beyond this poll by themselves.
MAX_STREAMS = 200
#: Of these, the streams of one person or program.
MAX_STREAMS_PER_CALLER = 20


class Subscriber:
    """The stream of one open page. Changes accumulate while it is slow."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self._changes: set[str] = set()
        self._wake = asyncio.Event()
        self.closed = False

    def send(self, changes: set[str]) -> None:
        self._changes |= changes
        self._wake.set()

    def close(self) -> None:
        self.closed = True
        self._wake.set()

    async def receive(self, timeout_s: float) -> set[str]:
        """The changes since the last call; empty after *timeout_s* seconds without any."""
        try:
            await asyncio.wait_for(self._wake.wait(), timeout_s)
        except TimeoutError:
            return set()
        self._wake.clear()
        changes, self._changes = self._changes, set()
        return changes


class LiveUpdates:
    """Polls the store while any page is open, and sends changes to all of them.

    *read* returns the change counters; *confirm* those of some callers who still have access.
    """

    def __init__(
        self,
        read: Callable[[], Struct],
        confirm: Callable[[Collection[Caller]], Collection[Caller]],
        *,
        interval_s: float = INTERVAL_S,
        keep_alive_s: float = KEEP_ALIVE_S,
    ) -> None:
        self.subscribers: set[Subscriber] = set()
        #: When changes were last sent, by the monotonic clock.
        self.sent_at = float("-inf")
        self._unsent: set[str] = set()
        self._read = read
        self._confirm = confirm
        self._interval_s = interval_s
        self._keep_alive_s = keep_alive_s
        self._before: Struct | None = None
        self._poller: asyncio.Future[None] | None = None

    async def tick(self) -> set[str]:
        """Poll once and return the changes. The first poll has nothing to compare with.

        The first change is sent at once, those that follow together, when pages may be rendered again. Streams whose
        caller has lost access end before.
        """
        viewers = list(self.subscribers)  # others may join meanwhile
        try:
            now = await run_in_threadpool(self._read)
            confirmed = await run_in_threadpool(self._confirm, {each.caller for each in viewers})
        except HoldfastError as error:
            log.warning("open pages get no updates: %s", error)
            return set()
        before, self._before = self._before, now
        changes = set() if before is None else changed_parts(before, now)
        self._unsent |= changes
        for viewer in viewers:
            if viewer.caller not in confirmed:
                viewer.close()
        if self._unsent and time.monotonic() >= self.sent_at + RENDER_INTERVAL_S:
            self._send()
        return changes

    def _send(self) -> None:
        self.sent_at = time.monotonic()
        changes, self._unsent = self._unsent, set()
        for subscriber in self.subscribers:
            subscriber.send(changes)

    @contextmanager
    def subscribe(self, caller: Caller) -> Iterator[Subscriber]:
        """A subscriber for as long as its page is open. The first one starts the poller."""
        subscriber = Subscriber(caller)
        self.subscribers.add(subscriber)
        if self._poller is None or self._poller.done():
            self._before, self._unsent = None, set()
            self._poller = asyncio.ensure_future(self._poll())
        try:
            yield subscriber
        finally:
            self.subscribers.discard(subscriber)

    def close(self) -> None:
        """End all streams: the server stops."""
        for subscriber in self.subscribers:
            subscriber.close()

    async def _poll(self) -> None:
        while self.subscribers:
            await self.tick()
            await asyncio.sleep(self._interval_s)

    async def answer(self, request: Request) -> Response:
        """The stream of one page; it ends when the access of its caller ends."""
        caller = caller_of(request.scope)
        own = sum(each.caller.name == caller.name for each in self.subscribers)
        if len(self.subscribers) >= MAX_STREAMS or own >= MAX_STREAMS_PER_CALLER:
            return PlainTextResponse("too many pages are open", 503)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self.lines(caller), media_type="text/event-stream", headers=headers)

    async def lines(self, caller: Caller) -> AsyncIterator[str]:
        """Server-sent events."""
        with self.subscribe(caller) as subscriber:
            yield "retry: 2000\n\n"
            while True:
                changes = await subscriber.receive(self._keep_alive_s)
                if subscriber.closed:
                    return
                yield f"event: changed\ndata: {' '.join(sorted(changes))}\n\n" if changes else ": still here\n\n"


def changed_parts(before: Struct, now: Struct) -> set[str]:
    return {name for name in structs.asdict(now) if getattr(before, name) != getattr(now, name)}
