"""The breaker of a run: it counts the failures of units, and groups those that stopped the run."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from holdfast.domain.batches.batch import AbortedBy, Batch, FailureLimits
from holdfast.domain.batches.unit import UnitOutcome
from holdfast.domain.jobs.error_clusters import SeenError, cluster_errors

#: A failure rate counts only after this number of units.
MIN_UNITS_FOR_RATE = 20


class Breaker:
    """Counts outcomes of units in their order.

    Units that failed in an earlier run come last, without successes between them. Their failures count for *in_a_row*
    and *rate* only after one of them has succeeded.
    """

    def __init__(self, limits: FailureLimits) -> None:
        self._limits = limits
        self.streak = 0
        self._failed = 0
        #: Outcomes that count for the rate, and the failures among them.
        self._rated = self._rated_failed = 0
        self._retry_succeeded = False
        self.tripped: AbortedBy | None = None

    def count(self, units: int = 1, *, failed: bool, retried: bool = False) -> AbortedBy | None:
        """Count one failure, or *units* successes; return the cause to stop, if any. *retried*: they failed before."""
        self._failed += failed
        self._retry_succeeded |= retried and not failed
        if not retried or self._retry_succeeded:
            self._rated += units
            self._rated_failed += failed
            self.streak = self.streak + 1 if failed else 0
        if self.tripped is None and failed:
            self.tripped = self._exceeded()
        return self.tripped

    def _exceeded(self) -> AbortedBy | None:
        limits = self._limits
        if limits.in_a_row and self.streak >= limits.in_a_row:
            return AbortedBy.MAX_FAILURES
        if limits.total and self._failed >= limits.total:
            return AbortedBy.MAX_TOTAL_FAILURES
        if limits.rate is not None and limits.rate > 0 and self._rated >= MIN_UNITS_FOR_RATE:
            return AbortedBy.MAX_FAILURE_RATE if self._rated_failed / self._rated > limits.rate else None
        return None


class FailureGroup(Struct, frozen=True):
    """Failures of units whose errors differ only in numbers and names. *key* and *error* are those of one of them."""

    count: int
    error: str
    key: str


def group_failures(kind: str, outcomes: Iterable[UnitOutcome]) -> list[FailureGroup]:
    """Group the failures of units; the largest group is the first."""
    clusters = cluster_errors(SeenError(each.key, kind, each.error or "") for each in outcomes)
    return [FailureGroup(each.count, each.sample, each.newest) for each in clusters]


def failure_groups(batch: Batch) -> list[FailureGroup]:
    """The failures that stopped the last run of a batch."""
    return [] if batch.failures is None else msgspec.json.decode(batch.failures, type=list[FailureGroup])
