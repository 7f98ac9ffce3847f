"""Threads for what waits for the store: those who act have their own, so that who looks never waits for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from anyio import CapacityLimiter, to_thread
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

#: How many act at once; others wait for their turn.
ACTING = 20


class Threads:
    """Answers requests in threads."""

    def __init__(self) -> None:
        self._acting: CapacityLimiter | None = None

    async def answer(self, request: Request, answer: Callable[..., Response], *args: Any) -> Response:
        """Call *answer*: where a request acts, it may wait as long as a writer does."""
        if request.method in ("GET", "HEAD"):
            return await run_in_threadpool(answer, *args)
        if self._acting is None:  # it belongs to the loop that runs
            self._acting = CapacityLimiter(ACTING)
        return await to_thread.run_sync(partial(answer, *args), limiter=self._acting)
