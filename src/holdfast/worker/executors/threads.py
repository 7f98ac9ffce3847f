"""Plain functions in threads. A thread cannot be stopped: it is told, through its context."""

from __future__ import annotations

from holdfast.domain.jobs.verdict import Outcome
from holdfast.worker import clock
from holdfast.worker.active_runs import Run
from holdfast.worker.executors import Finish
from holdfast.worker.executors.slots import SlotExecutor
from holdfast.worker.handler import MakeContext, run_handler


def thread_executor(slots: int, *, context: MakeContext, finish: Finish) -> SlotExecutor:
    """Slots whose runs happen right there."""

    def perform(run: Run) -> Outcome:
        run.begun_at = clock.now()
        return run_handler(run, context)

    return SlotExecutor("slot", slots, make_slot=lambda: (perform, lambda: None), finish=finish)
