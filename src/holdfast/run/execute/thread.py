"""Plain functions in threads. A thread cannot be stopped: it is told, through its context."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from datetime import timedelta

from holdfast.run import clock
from holdfast.run.execute import Finish, MakeContext
from holdfast.run.handler import run_handler
from holdfast.run.held import Run
from holdfast.store.settlement import Settlement


class ThreadExecutor:
    """As many threads as slots. Short jobs are handed to a thread in groups, to save switches."""

    def __init__(self, slots: int, *, context: MakeContext, finish: Finish, group: Callable[[Run], int]) -> None:
        self._context = context
        self._finish = finish
        self._group = group
        self._queue: deque[Run] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._running = 0
        self._idle = 0
        self._slots = slots
        self._threads: list[threading.Thread] = []

    def submit(self, runs: list[Run]) -> None:
        with self._changed:
            self._queue.extend(runs)
            while len(self._threads) < self._slots and len(self._queue) > self._idle:
                self._add_thread()
            self._changed.notify(len(runs))

    def take_back(self) -> list[Run]:
        with self._changed:
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
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _add_thread(self) -> None:
        thread = threading.Thread(target=self._work, name=f"holdfast-slot-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        self._idle += 1
        thread.start()

    def _work(self) -> None:
        while group := self._next_group():
            try:
                self._finish([self._run(run) for run in group])
            finally:
                with self._changed:
                    self._running -= len(group)
                    self._idle += 1

    def _next_group(self) -> list[Run]:
        with self._changed:
            while not self._queue and not self._closed:
                self._changed.wait()
            if not self._queue:
                return []
            size = min(self._group(self._queue[0]), len(self._queue))
            group = [self._queue.popleft() for _ in range(size)]
            self._running += len(group)
            self._idle -= 1
            return group

    def _run(self, run: Run) -> Settlement:
        run.begun_at = began = clock.now()
        outcome = run_handler(run, self._context(run))
        return Settlement(run.lease, outcome, timedelta(seconds=clock.now() - began))
