"""Measure several systems at the same steps, turn by turn.

The systems take turns at every step and another one begins in every round, so that a
slow disk or a busy neighbour hits all of them alike. Only ratios within a run count.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol


class Contestant(Protocol):
    """A system under measurement. Each method answers the seconds that it took."""

    def enqueue_one(self, count: int) -> float:
        """Enqueue *count* jobs, each in a transaction of its own."""
        ...

    def enqueue_bulk(self, count: int) -> float:
        """Enqueue *count* jobs in calls of :data:`bench.work.BULK`."""
        ...

    def drain(self, count: int, batch: int) -> float:
        """Claim and settle *count* jobs, *batch* at a time: two transactions a batch."""
        ...

    def close(self) -> None: ...


class Step(NamedTuple):
    """One measured act. *name* is what its rate is called; two steps may share a name."""

    name: str
    count: int
    act: Callable[[Contestant], float]


Samples = dict[str, dict[str, list[float]]]


def steps(*, ones: int, jobs: int) -> list[Step]:
    """What every system does in a round; each enqueue feeds the drain after it."""
    bulk = Step("bulk", jobs, lambda system: system.enqueue_bulk(jobs))
    return [
        Step("one", ones, lambda system: system.enqueue_one(ones)),
        Step("settle 1", ones, lambda system: system.drain(ones, 1)),
        bulk,
        Step("settle 100", jobs, lambda system: system.drain(jobs, 100)),
        bulk,
        Step("settle 1000", jobs, lambda system: system.drain(jobs, 1000)),
    ]


def compete(
    systems: dict[str, Contestant],
    plan: Iterable[Step],
    *,
    rounds: int,
    skip: frozenset[tuple[str, str]] = frozenset(),
    before_round: Callable[[], None] = lambda: None,
) -> Samples:
    """Jobs per second by system and step, one value per turn. *skip*: what a system cannot do."""
    samples: Samples = {name: {} for name in systems}
    warm_up(systems, skip)
    order = list(systems)
    for turn in range(rounds):
        before_round()
        shift = turn % len(order)
        for step in plan:
            for name in order[shift:] + order[:shift]:
                if (name, step.name) not in skip:
                    gc.collect()
                    rate = step.count / step.act(systems[name])
                    samples[name].setdefault(step.name, []).append(rate)
    return samples


def warm_up(systems: dict[str, Contestant], skip: frozenset[tuple[str, str]]) -> None:
    """A little of everything, so that statements are prepared and caches filled."""
    for name, system in systems.items():
        for step in steps(ones=10, jobs=2000):
            if (name, step.name) not in skip:
                step.act(system)


def medians(samples: Samples) -> dict[str, dict[str, float]]:
    return {
        name: {step: statistics.median(values) for step, values in found.items()} for name, found in samples.items()
    }
