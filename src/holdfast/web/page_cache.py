"""Copies of pages for open pages that fetch themselves again. Viewers of one role who watch one page share a copy."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

#: Time between two renderings of one page. A page needs at most six statements, so that all its viewers together cost
#: two a second.
RENDER_INTERVAL_S = 3.0
#: Copies that are kept, the latest ones.
MAX_COPIES = 50
#: Pages that are rendered at a time; others wait.
MAX_RENDERINGS = 4
#: The level of compression: a good part of the gain at a small part of the price.
GZIP_LEVEL = 5


class PageCopy(Struct, frozen=True):
    """A rendered page. It holds nothing of a person: neither a name nor a token."""

    status: int
    body: bytes
    compressed: bytes
    etag: str


class PageCache:
    """The copies of one server. *changed_at* returns when open pages last received changes (monotonic clock)."""

    def __init__(self, changed_at: Callable[[], float]) -> None:
        self._changed_at = changed_at
        self._copies: OrderedDict[Hashable, tuple[float, Future[PageCopy]]] = OrderedDict()
        self._threads = ThreadPoolExecutor(MAX_RENDERINGS, thread_name_prefix="page")

    async def answer(self, http: Request, key: Hashable, render: Callable[[], Response]) -> Response:
        """A copy that is younger than the last change, or 304 if the viewer has the same already."""
        copy = await self._get(key, render)
        headers = {"ETag": copy.etag, "Vary": "Accept-Encoding"}
        known = http.headers.get("if-none-match", "").removeprefix("W/")  # proxies that compress weaken it
        if copy.status == 200 and known == copy.etag:
            return Response(status_code=304, headers=headers)
        if "gzip" not in http.headers.get("accept-encoding", ""):
            return Response(copy.body, copy.status, headers, "text/html")
        return Response(copy.compressed, copy.status, {**headers, "Content-Encoding": "gzip"}, "text/html")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _get(self, key: Hashable, render: Callable[[], Response]) -> PageCopy:
        while True:
            now = time.monotonic()
            begun_at, copy = self._copies.get(key, (float("-inf"), None))
            due_in = begun_at + RENDER_INTERVAL_S - now
            if copy is None or due_in <= 0:
                copy = self._threads.submit(_copy_of, render)
                self._copies[key] = now, copy
                self._copies.move_to_end(key)
                if len(self._copies) > MAX_COPIES:
                    self._copies.popitem(last=False)
            elif begun_at < self._changed_at():
                await asyncio.sleep(due_in)
                continue
            # A viewer that leaves must not cancel the rendering for the others.
            return await asyncio.shield(asyncio.wrap_future(copy))


def _copy_of(render: Callable[[], Response]) -> PageCopy:
    answer = render()
    body = bytes(answer.body)
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    return PageCopy(answer.status_code, body, gzip.compress(body, GZIP_LEVEL, mtime=0), etag)
