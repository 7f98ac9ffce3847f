"""Threads that answer requests. Actions have threads of their own, so that reads never queue behind writes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from anyio import CapacityLimiter, to_thread
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

#: Actions at a time; others wait.
MAX_ACTIONS = 20


class Threads:
    def __init__(self) -> None:
        self._actions: CapacityLimiter | None = None

    async def answer(self, request: Request, answer: Callable[..., Response], *args: Any) -> Response:
        """Call *answer* in a thread. Everything but GET and HEAD may wait for a writer."""
        if request.method in ("GET", "HEAD"):
            return await run_in_threadpool(answer, *args)
        if self._actions is None:  # bound to the running event loop
            self._actions = CapacityLimiter(MAX_ACTIONS)
        return await to_thread.run_sync(partial(answer, *args), limiter=self._actions)
