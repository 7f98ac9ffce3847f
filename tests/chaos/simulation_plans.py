"""A planner that has seen an older state of the schedules than there is."""

from __future__ import annotations

from holdfast.store import Store
from holdfast.store.schedules.schedules import DueSchedules
from holdfast.worker.schedules.planner import Planner, _Tick
from tests.chaos.standing import Broken


def late_planner(planner: Planner, store: Store, seen: DueSchedules) -> None:
    """It decides by what it has *seen*, after another was faster: none of that may be taken."""
    tick = _Tick(seen.now, {})
    advances = [found for due in seen.schedules if (found := planner._try(due, tick)) is not None]
    if not advances:
        return
    decided = store.plans.advance(advances)
    if decided.fired or decided.moved:
        raise Broken("I7", f"plans of {decided.moved} were decided twice")
