"""Coroutines on one event loop, in a thread of its own. They are stopped by cancellation."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

from holdfast.store.jobs.settlement import Settlement
from holdfast.worker import clock
from holdfast.worker.active_runs import Run
from holdfast.worker.executors import Finish, RunQueue, told_before
from holdfast.worker.handler import MakeContext, await_handler


class LoopExecutor:
    """Runs as many coroutines at a time as there are slots."""

    def __init__(self, slots: int, *, context: MakeContext, finish: Finish) -> None:
        self.waiting = RunQueue()
        self.running = 0
        self._slots = slots
        self._context = context
        self._finish = finish
        self._runs: set[asyncio.Future[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="holdfast-loop", daemon=True)
        self._thread.start()

    def submit(self, runs: list[Run]) -> None:
        self.waiting.put(runs)
        self._loop.call_soon_threadsafe(self._begin_waiting)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=1)

    def _serve(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def _begin_waiting(self) -> None:
        while self.running < self._slots:
            self.running += 1  # before it is taken: a run is always seen waiting or running
            run = self.waiting.take()
            if run is None:
                self.running -= 1
                return
            self._runs.add(running := self._loop.create_task(self._run(run)))
            running.add_done_callback(self._runs.discard)

    async def _run(self, run: Run) -> None:
        self._finish(run, await self._settlement(run))
        self.running -= 1
        self._begin_waiting()

    async def _settlement(self, run: Run) -> Settlement:
        before = told_before(run)
        if before is not None:
            return Settlement(run.lease, before)
        running = asyncio.current_task()
        assert running is not None
        run.attach(interrupt=lambda: self._loop.call_soon_threadsafe(running.cancel))
        run.begun_at = began = clock.now()
        outcome = await await_handler(run, self._context)
        run.finished = True
        run.attach()
        return Settlement(run.lease, outcome, timedelta(seconds=clock.now() - began))
