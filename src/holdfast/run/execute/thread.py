"""Plain functions in threads. A thread cannot be stopped: it is told, through its context."""

from __future__ import annotations

from holdfast.run.execute import Finish
from holdfast.run.execute.slots import SlotExecutor
from holdfast.run.handler import MakeContext, run_handler


def thread_executor(slots: int, *, context: MakeContext, finish: Finish) -> SlotExecutor:
    return SlotExecutor(
        "slot",
        slots,
        make_slot=lambda: (lambda run: run_handler(run, context), lambda: None),
        finish=finish,
    )
