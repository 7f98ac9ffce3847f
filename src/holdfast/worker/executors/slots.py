"""Runs in threads, one per slot: of plain functions, or of the children that run them elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

from holdfast.domain.jobs.verdict import Outcome
from holdfast.store.jobs.settlement import Settlement
from holdfast.worker import clock
from holdfast.worker.active_runs import Run
from holdfast.worker.executors import Finish, RunQueue, told_before
from holdfast.worker.handler import outcome_of

Perform = Callable[[Run], Outcome]
#: A slot's way to perform runs, and what to do when the slot ends.
MakeSlot = Callable[[], tuple[Perform, Callable[[], None]]]


class SlotExecutor:
    """As many threads as slots, started when they are needed."""

    def __init__(self, name: str, slots: int, *, make_slot: MakeSlot, finish: Finish) -> None:
        self.waiting = RunQueue()
        self._name = name
        self._slots = slots
        self._make_slot = make_slot
        self._finish = finish
        self._closed = False
        self._busy: list[bool] = []

    def submit(self, runs: list[Run]) -> None:
        self.waiting.put(runs)
        with self.waiting.some:
            while len(self._busy) < self._slots and len(self.waiting) > self._busy.count(False):
                self._add_thread()
            self.waiting.some.notify(len(runs))

    @property
    def running(self) -> int:
        return sum(self._busy)

    def close(self) -> None:
        with self.waiting.some:
            self._closed = True
            self.waiting.some.notify_all()

    def _add_thread(self) -> None:
        place = len(self._busy)
        self._busy.append(False)
        name = f"holdfast-{self._name}-{place}"
        threading.Thread(target=self._work, args=(place,), name=name, daemon=True).start()

    def _work(self, place: int) -> None:
        perform, close = self._make_slot()
        try:
            while (run := self._next(place)) is not None:
                self._finish(run, self._settlement(run, perform))
                self._busy[place] = False
        finally:
            close()

    def _next(self, place: int) -> Run | None:
        self._busy[place] = True  # before it is taken: a run is always seen waiting or running
        run = self.waiting.take()
        if run is not None:
            return run
        self._busy[place] = False
        with self.waiting.some:
            while not self._closed:
                self._busy[place] = True
                run = self.waiting.take()
                if run is not None:
                    return run
                self._busy[place] = False
                self.waiting.some.wait()
        return None

    def _settlement(self, run: Run, perform: Perform) -> Settlement:
        before = told_before(run)
        if before is not None:
            return Settlement(run.lease, before)
        try:
            outcome = perform(run)
        except BaseException as error:  # noqa: BLE001 - a slot survives whatever happens in it
            outcome = outcome_of(error, run.stop_reason)
        run.finished = True
        ran = None if run.begun_at is None else timedelta(seconds=clock.now() - run.begun_at)
        return Settlement(run.lease, outcome, ran)
