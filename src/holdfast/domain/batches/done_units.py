"""Units that are done at the first attempt, and of which nothing else is known: most units of most batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress, pairwise, repeat
from operator import add, ne
from typing import Any, Self, cast

from holdfast.domain.batches.new_units import NewUnits
from holdfast.domain.batches.unit import UnitKey, UnitOutcome, UnitState

#: A unit that takes less time took 0 ms.
SHORTEST_S = 0.0005
#: Such a unit: its key, its place in the input, and its seconds unless they were less than SHORTEST_S.
DoneUnit = tuple[UnitKey, int] | tuple[UnitKey, int, float]


class DoneUnits(Sequence[UnitOutcome]):
    """Their outcomes by column. One outcome is created when it is read: the ledger needs only the columns."""

    __slots__ = ("durations_ms", "keys", "positions")

    def __init__(self, keys: Sequence[UnitKey], positions: Sequence[int], durations_ms: Sequence[int | None]) -> None:
        self.keys, self.positions, self.durations_ms = keys, positions, durations_ms

    @classmethod
    def of(cls, outcomes: Sequence[UnitOutcome]) -> Self | None:
        """The outcomes by column; None if more is known of one of them."""
        if isinstance(outcomes, cls):
            return outcomes
        if not all(map(_is_plain, outcomes)):
            return None
        return cls(*zip(*[(each.key, each.position, each.duration_ms) for each in outcomes], strict=True))

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, place: Any) -> Any:
        return _done(self.keys[place], self.positions[place], self.durations_ms[place])

    def durations(self) -> Iterator[tuple[UnitKey, int | None]]:
        """The keys with their durations in milliseconds."""
        return zip(self.keys, self.durations_ms, strict=True)

    def groups(self) -> list[tuple[int, int]]:
        """Where groups of units with one duration and consecutive places begin, and where they end."""
        durations, places, size = self.durations_ms, self.positions, len(self)
        starts = {0}
        if durations.count(durations[0]) < size:
            starts.update(compress(range(1, size), map(ne, durations[1:], durations)))
        if places != range(places[0], places[0] + size):
            starts.update(compress(range(1, size), map(ne, places[1:], map(add, places, repeat(1)))))
        return [*pairwise([*sorted(starts), size])]


def outcome_of(unit: UnitOutcome | DoneUnit) -> UnitOutcome:
    """The outcome of a unit in its long form."""
    if isinstance(unit, UnitOutcome):
        return unit
    key, position, *seconds = unit
    return _done(key, position, round(sum(seconds) * 1000))


def outcomes_of(units: Sequence[UnitOutcome | DoneUnit]) -> Sequence[UnitOutcome]:
    """The outcomes of units, by column if all of them have the short form."""
    if isinstance(units, NewUnits):  # they took almost no time
        return DoneUnits(units.all_keys, range(units[0][1], units[-1][1] + 1), [0] * len(units))
    if set(map(type, units)) != {tuple}:
        return [*map(outcome_of, units)]
    done = cast("Sequence[DoneUnit]", units)
    # zip() would create an iterator for each unit, and their number would make Python collect garbage.
    durations_ms = [0 if len(unit) == 2 else round(unit[2] * 1000) for unit in done]
    return DoneUnits([unit[0] for unit in done], [unit[1] for unit in done], durations_ms)


def _done(key: UnitKey, position: int, duration_ms: int | None) -> UnitOutcome:
    return UnitOutcome(key=key, position=position, state=UnitState.DONE, duration_ms=duration_ms)


def _is_plain(outcome: UnitOutcome) -> bool:
    return (
        outcome.state is UnitState.DONE
        and outcome.attempts == 1
        and (outcome.label, outcome.warning, outcome.data) == (None, None, None)
        and not outcome.earlier_errors
    )
