"""Which keys of a range are marked: one bit for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.domain.batches.unit import UnitKey
from holdfast.store.batches.in_flight import UnitInFlight

FULL = 0xFF


class Bitmap:
    """Keys of one range that need not be looked at."""

    def __init__(self, keys: range, marked: Iterable[UnitKey]) -> None:
        self._keys = keys
        self._bits = bits = bytearray(len(keys) // 8 + 1)
        place_of = keys.index
        for key in marked:
            try:
                place = place_of(int(key))
            except ValueError:  # a key of another kind, or of a range that was larger
                continue
            bits[place >> 3] |= 1 << (place & 7)

    def rest(self) -> Iterator[UnitInFlight]:
        """The other keys, with their places in the range; eight at a time are passed over."""
        keys, size = self._keys, len(self._keys)
        for byte, bits in enumerate(self._bits):
            if bits == FULL:
                continue
            for place in range(8 * byte, min(8 * byte + 8, size)):
                if not bits & (1 << (place & 7)):
                    yield UnitKey(str(keys[place])), place
