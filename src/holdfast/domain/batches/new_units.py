"""Groups of new units, none of which has a row yet: taken, recorded and finished at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Self, cast

from msgspec import Struct

from holdfast.domain.batches.unit import UnitKey

if TYPE_CHECKING:
    from holdfast.domain.batches.done_units import DoneUnit


class NewUnits(tuple[tuple[UnitKey, int], ...]):  # noqa: SLOT001 - a tuple can have none
    """Units with their places, which follow each other. *span* and *all_keys* are their keys, each as one value."""

    span = range(0)
    all_keys: list[UnitKey] = []  # noqa: RUF012 - of no units, and never changed

    @classmethod
    def of(cls, span: range, first: int) -> Self:
        """The units of a range; *first* is the place of its first key."""
        keys = cast("list[UnitKey]", [*map(repr, span)])  # faster than str
        units = cls(zip(keys, count(first)))
        units.span, units.all_keys = span, keys
        return units


class HeldUnits(Struct, frozen=True, omit_defaults=True):
    """Units in flight as the store keeps them: keys and places, or a range and its first place."""

    keys: list[UnitKey] = []
    places: list[int] = []
    #: Start, stop and step, as text: JSON readers know no large numbers.
    span: tuple[str, str, str] | None = None
    first: int = 0

    @classmethod
    def of(cls, units: Sequence[tuple[UnitKey, int]]) -> Self:
        if isinstance(units, NewUnits) and units:
            span = units.span
            return cls(span=(str(span.start), str(span.stop), str(span.step)), first=units[0][1])
        return cls([key for key, _ in units], [place for _, place in units])

    def placed(self) -> Sequence[tuple[UnitKey, int]]:
        """The units with their places."""
        if self.span is not None:
            return NewUnits.of(range(*map(int, self.span)), self.first)
        return [*zip(self.keys, self.places, strict=True)]


class TakenUnits:
    """The units in flight of one run. A group of new units, which mostly finish together, needs no dict."""

    def __init__(self) -> None:
        self._group = NewUnits()
        self._places: dict[UnitKey, int] = {}

    def __len__(self) -> int:
        return len(self._group) + len(self._places)

    def items(self) -> list[tuple[UnitKey, int]]:
        return [*self._group, *self._places.items()]

    def take(self, units: Sequence[tuple[UnitKey, int]]) -> None:
        if isinstance(units, NewUnits) and not self._group:
            self._group = units
        else:
            self._places.update(units)

    def finish(self, *keys: UnitKey) -> None:
        for key in keys:
            if self._group:
                self._places.update(self._group)
                self._group = NewUnits()
            del self._places[key]

    def finish_all(self, results: list[Any]) -> Sequence[DoneUnit]:
        """Finish all units if these are their results, and all are just done. Returns nothing otherwise."""
        if len(results) != len(self):
            return ()
        done: Sequence[DoneUnit] = self._group
        if tuple(results) != done:  # some took their time, or threads have changed their order
            if set(map(type, results)) != {tuple}:
                return ()
            done = results
        self._group = NewUnits()
        self._places.clear()
        return done
