"""Which keys of a range are marked: one bit for each."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.domain.batch import UnitKey


class Marked:
    """A set of keys of one range, in an eighth of a byte each."""

    def __init__(self, keys: range, marked: Iterable[UnitKey]) -> None:
        self._keys = keys
        self._bits = bytearray(len(keys) // 8 + 1)
        first, step, bits = keys.start, keys.step, self._bits
        size = len(keys)
        for key in marked:
            place, rest = divmod(int(key) - first, step) if key.lstrip("-").isdecimal() else (-1, 1)
            if not rest and 0 <= place < size:
                bits[place >> 3] |= 1 << (place & 7)

    def __contains__(self, key: object) -> bool:
        place = (int(str(key)) - self._keys.start) // self._keys.step
        return bool(self._bits[place >> 3] & (1 << (place & 7)))
