"""A pause after a statement that took long, so that its share of the time stays small."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.worker import clock

#: A statement that takes longer than this may read index entries of rows that are gone: PostgreSQL keeps them while an
#: old transaction is open.
QUICK_S = 0.05
#: The pause is this many times the excess.
EXCESS_FACTOR = 20


class Backoff:
    """Pauses after slow calls. A quick one causes no pause, nor does the first slow one after it.

    *longest* is the limit of a pause in seconds.
    """

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._excess, self._until = 0.0, float("-inf")

    @property
    def is_over(self) -> bool:
        return clock.now() >= self._until

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure a call; one that fails counts too: it may have been aborted because it took long."""
        began = clock.now()
        try:
            yield
        finally:
            now = clock.now()
            before, self._excess = self._excess, max(0.0, now - began - QUICK_S)
            self._until = now + min(self._longest, EXCESS_FACTOR * min(before, self._excess))
