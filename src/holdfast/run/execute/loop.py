"""Coroutines on one event loop, in a thread of its own. They are stopped by cancellation."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from datetime import timedelta

from holdfast.run import clock
from holdfast.run.execute import Finish, MakeContext
from holdfast.run.handler import await_handler
from holdfast.run.held import Run
from holdfast.store.settlement import Settlement


class LoopExecutor:
    """Runs as many coroutines at a time as there are slots."""

    def __init__(self, slots: int, *, context: MakeContext, finish: Finish) -> None:
        self._slots = slots
        self._context = context
        self._finish = finish
        self._queue: deque[Run] = deque()
        self._lock = threading.Lock()
        self._running = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="holdfast-loop", daemon=True)
        self._thread.start()

    def submit(self, runs: list[Run]) -> None:
        with self._lock:
            self._queue.extend(runs)
        self._loop.call_soon_threadsafe(self._begin_waiting)

    def take_back(self) -> list[Run]:
        with self._lock:
            unbegun = list(self._queue)
            self._queue.clear()
            return unbegun

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def running(self) -> int:
        return self._running

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=1)

    def _serve(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def _begin_waiting(self) -> None:
        with self._lock:
            while self._queue and self._running < self._slots:
                run = self._queue.popleft()
                self._running += 1
                running = self._loop.create_task(self._run(run))
                run.on_stop(lambda running=running: self._loop.call_soon_threadsafe(running.cancel))

    async def _run(self, run: Run) -> None:
        run.begun_at = began = clock.now()
        outcome = await await_handler(run, self._context(run))
        run.on_stop(None)
        with self._lock:
            self._running -= 1
        self._finish([Settlement(run.lease, outcome, timedelta(seconds=clock.now() - began))])
        self._begin_waiting()
