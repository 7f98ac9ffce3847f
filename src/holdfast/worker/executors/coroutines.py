"""The executor of coroutines: one event loop in a thread of its own. Cancellation stops a handler."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

from holdfast.store.jobs.settlement import Settlement
from holdfast.worker import clock
from holdfast.worker.active_runs import Handle, Run
from holdfast.worker.executors.threads import RunQueue, outcome_before_begin
from holdfast.worker.handler import await_handler
from holdfast.worker.lifecycle import RunLifecycle


class TaskHandle(Handle):
    """Cancels the task of a run, from any thread."""

    __slots__ = ("_loop", "_task")

    def __init__(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
        self._loop = loop
        self._task = task

    def interrupt(self) -> None:
        self._loop.call_soon_threadsafe(self._task.cancel)


class LoopExecutor:
    """Runs as many coroutines at a time as there are slots."""

    def __init__(self, slots: int, *, lifecycle: RunLifecycle) -> None:
        self.waiting = RunQueue()
        self.running = 0
        self._slots = slots
        self._lifecycle = lifecycle
        self._tasks: set[asyncio.Task[None]] = set()
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
            self.running += 1  # before the take: a run always counts as waiting or running
            run = self.waiting.take()
            if run is None:
                self.running -= 1
                return
            self._tasks.add(task := self._loop.create_task(self._run(run)))
            task.add_done_callback(self._tasks.discard)

    async def _run(self, run: Run) -> None:
        self._lifecycle.finished(run, await self._settlement(run))
        self.running -= 1
        self._begin_waiting()
        self._lifecycle.finish_signal.notify()

    async def _settlement(self, run: Run) -> Settlement:
        unbegun = outcome_before_begin(run)
        if unbegun is not None:
            return Settlement(run.lease, unbegun)
        task = asyncio.current_task()
        assert task is not None
        run.attach(TaskHandle(self._loop, task))
        run.begun_at = began = clock.now()
        outcome = await await_handler(run, self._lifecycle.context)
        run.finished = True
        run.detach()
        return Settlement(run.lease, outcome, timedelta(seconds=clock.now() - began))
