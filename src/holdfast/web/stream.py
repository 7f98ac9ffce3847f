"""What changed, told to open pages: one look at the store a second for all of them, and nothing but words.

A page that hears "jobs" asks for itself again, by the same way and under the same rules as before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

from msgspec import structs
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from holdfast.errors import HoldfastError
from holdfast.store.fleet.dashboard import ChangeCounters

log = logging.getLogger("holdfast")

#: Seconds between two looks at the store, and after which a silent stream says that it is there.
EVERY, ALIVE = 1.0, 10.0
#: Streams that one server keeps open; whoever comes later looks every few seconds.
MOST = 200


class Reader:
    """One open page: what has changed since it was told last, however slow it is."""

    def __init__(self) -> None:
        self._words: set[str] = set()
        self._bell = asyncio.Event()
        self.over = False

    def tell(self, words: set[str]) -> None:
        self._words |= words
        self._bell.set()

    def end(self) -> None:
        self.over = True
        self._bell.set()

    async def heard(self, patience: float) -> set[str]:
        """What changed; nothing, if nothing did for so many seconds."""
        try:
            await asyncio.wait_for(self._bell.wait(), patience)
        except TimeoutError:
            return set()
        self._bell.clear()
        words, self._words = self._words, set()
        return words


class LiveUpdates:
    """Looks at the store while somebody has a page open, and tells all of them what changed."""

    def __init__(self, look: Callable[[], ChangeCounters], *, every: float = EVERY, alive: float = ALIVE) -> None:
        self.readers: set[Reader] = set()
        self._look = look
        self._every = every
        self._alive = alive
        self._before: ChangeCounters | None = None
        self._looking: asyncio.Future[None] | None = None

    async def tick(self) -> set[str]:
        """Look once, and tell what is not as it was; the first look has nothing to compare with."""
        try:
            now = await run_in_threadpool(self._look)
        except HoldfastError as error:
            log.warning("open pages hear of nothing: %s", error)
            return set()
        before, self._before = self._before, now
        changed = set() if before is None else differing(before, now)
        if changed:
            for reader in self.readers:
                reader.tell(changed)
        return changed

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """A reader, for as long as its page is open."""
        reader = Reader()
        self.readers.add(reader)
        if self._looking is None or self._looking.done():
            self._before = None
            self._looking = asyncio.ensure_future(self._watch())
        try:
            yield reader
        finally:
            self.readers.discard(reader)

    def close(self) -> None:
        """End all streams: the server stops."""
        for reader in self.readers:
            reader.end()

    async def _watch(self) -> None:
        while self.readers:
            await self.tick()
            await asyncio.sleep(self._every)

    async def answer(self, request: Request, may_stay: Callable[[Request], bool]) -> Response:
        """The stream of one page; it ends when its reader may no longer look."""
        if len(self.readers) >= MOST:
            return PlainTextResponse("too many pages are open", 503)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        lines = self.lines(lambda: may_stay(request))
        return StreamingResponse(lines, media_type="text/event-stream", headers=headers)

    async def lines(self, may_stay: Callable[[], bool]) -> AsyncIterator[str]:
        """Server-sent events. Whether the reader may stay is asked in each silence, and before anything is told."""
        with self.reading() as reader:
            yield "retry: 2000\n\n"
            while not reader.over:
                words = await reader.heard(self._alive)
                if reader.over or not await run_in_threadpool(may_stay):
                    return
                yield f"event: changed\ndata: {' '.join(sorted(words))}\n\n" if words else ": still here\n\n"


def differing(before: ChangeCounters, now: ChangeCounters) -> set[str]:
    """The parts of the store that have changed between two looks."""
    return {name for name in structs.asdict(now) if getattr(before, name) != getattr(now, name)}
