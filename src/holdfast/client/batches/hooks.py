"""Hooks of a unit function."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from holdfast.client.batches.report import unit_line
from holdfast.domain.batches.batch import Batch, Summary
from holdfast.domain.batches.unit import UnitOutcome

log = logging.getLogger("holdfast.batch")

Hook = Callable[[Any], object]


class Hooks(Struct):
    """Functions that are called at the start of a run, for each finished unit, and at the end of the run.

    Their exceptions are logged; no unit fails because of them.
    """

    on_begin: list[Hook] = []
    on_unit: list[Hook] = []
    on_end: list[Hook] = []

    def begin(self, batch: Batch) -> bool:
        """Call the hooks of the start. Returns whether the run may begin."""
        try:
            for hook in self.on_begin:
                hook(batch)
        except Exception:
            log.exception("the run cannot begin")
            return False
        return True

    def units(self, outcomes: Sequence[UnitOutcome]) -> None:
        for hook in self.on_unit:
            for outcome in outcomes:
                _call(hook, unit_line(outcome))

    def end(self, summary: Summary | None) -> None:
        for hook in self.on_end:
            _call(hook, summary)


def _call(hook: Hook, argument: Any) -> None:
    try:
        hook(argument)
    except Exception:
        log.exception("a hook failed")
