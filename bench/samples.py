"""What was measured: by figure and system, one value for each round."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import NamedTuple


class Spread(NamedTuple):
    """The median of the rounds, with the lowest and the highest."""

    middle: float
    low: float
    high: float


@dataclass
class Samples:
    """The systems take turns in a round, so values of the same round can be divided by each other."""

    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, system: str, figure: str, value: float) -> None:
        self.values.setdefault(figure, {}).setdefault(system, []).append(value)

    def spread(self, system: str, figure: str) -> Spread | None:
        return _spread(self.values.get(figure, {}).get(system, []))

    def ratio(self, ours: str, other: str, figure: str) -> Spread | None:
        """One system by another, round by round."""
        found = self.values.get(figure, {})
        pairs = zip(found.get(ours, []), found.get(other, []), strict=False)
        return _spread([value / divisor for value, divisor in pairs if divisor])

    def clear(self) -> None:
        """Forget the round that only warmed up."""
        self.values.clear()


def percentile(values: list[float], percent: int) -> float:
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, len(ranked) * percent // 100)]


def _spread(values: list[float]) -> Spread | None:
    return Spread(statistics.median(values), min(values), max(values)) if values else None
