"""Bitmaps over the keys of a range."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.domain.batches.unit import UnitKey
from holdfast.store.batches.state import UnitInFlight

FULL_BYTE = 0xFF


class Bitmap:
    """A set of keys of one range, with one bit for each key of the range."""

    def __init__(self, keys: range, members: Iterable[UnitKey]) -> None:
        self._keys = keys
        self._bits = bits = bytearray(len(keys) // 8 + 1)
        place_of = keys.index
        for key in members:
            try:
                place = place_of(int(key))
            except ValueError:  # not an integer, or outside this range
                continue
            bits[place >> 3] |= 1 << (place & 7)

    def remaining(self) -> Iterator[UnitInFlight]:
        """The keys of the range that are not in the set, with their places; full bytes are skipped whole."""
        keys, size = self._keys, len(self._keys)
        for byte, bits in enumerate(self._bits):
            if bits == FULL_BYTE:
                continue
            for place in range(8 * byte, min(8 * byte + 8, size)):
                if not bits & (1 << (place & 7)):
                    yield UnitKey(str(keys[place])), place
