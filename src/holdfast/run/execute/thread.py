"""Plain functions in threads. A thread cannot be stopped: it is told, through its context."""

from __future__ import annotations

from holdfast.domain.verdict import Outcome
from holdfast.run import clock
from holdfast.run.execute import Finish
from holdfast.run.execute.slots import SlotExecutor
from holdfast.run.handler import MakeContext, run_handler
from holdfast.run.held import Run


def thread_executor(slots: int, *, context: MakeContext, finish: Finish) -> SlotExecutor:
    """Slots whose runs happen right there."""

    def perform(run: Run) -> Outcome:
        run.begun_at = clock.now()
        return run_handler(run, context)

    return SlotExecutor("slot", slots, make_slot=lambda: (perform, lambda: None), finish=finish)
