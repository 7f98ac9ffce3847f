"""The breaker: it stops a run after too many failures."""

from __future__ import annotations

from msgspec import Struct

from holdfast.domain.batches.batch import AbortedBy
from holdfast.errors import InvalidInput

#: A failure rate counts only after this number of units.
MIN_UNITS_FOR_RATE = 20


class FailureLimits(Struct, frozen=True, kw_only=True):
    """Limits of failures: in a row, in total, or as a share of all units. None or 0 switches a limit off."""

    in_a_row: int | None = 5
    total: int | None = None
    rate: float | None = None

    def __post_init__(self) -> None:
        for name in ("in_a_row", "total"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 0):
                raise InvalidInput(f"a limit of failures is a number from 0 on, not {value!r}")
        if self.rate is not None and not 0 <= self.rate <= 1:
            raise InvalidInput(f"a failure rate lies between 0 and 1, not {self.rate!r}")


class Breaker:
    """Counts outcomes of units in their order."""

    def __init__(self, limits: FailureLimits) -> None:
        self._limits = limits
        self.streak = 0
        self._failed = 0
        self._finished = 0
        self.tripped: AbortedBy | None = None
        #: Whether counting a success would change nothing.
        self.ignores_success = limits.rate is None

    def count(self, *, failed: bool) -> AbortedBy | None:
        """Count one outcome; return the cause to stop, if any."""
        self._finished += 1
        self._failed += failed
        self.streak = self.streak + 1 if failed else 0
        self.ignores_success = not self.streak and self._limits.rate is None
        if self.tripped is None and failed:
            self.tripped = self._exceeded()
        return self.tripped

    def _exceeded(self) -> AbortedBy | None:
        limits = self._limits
        if limits.in_a_row and self.streak >= limits.in_a_row:
            return AbortedBy.MAX_FAILURES
        if limits.total and self._failed >= limits.total:
            return AbortedBy.MAX_TOTAL_FAILURES
        if limits.rate is not None and limits.rate > 0 and self._finished >= MIN_UNITS_FOR_RATE:
            return AbortedBy.MAX_FAILURE_RATE if self._failed / self._finished > limits.rate else None
        return None
