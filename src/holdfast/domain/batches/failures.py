"""Failures of units, grouped: they explain why a breaker stopped a run."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from holdfast.domain.batches.batch import Batch
from holdfast.domain.batches.unit import UnitOutcome
from holdfast.domain.jobs.error_clusters import SeenError, cluster_errors


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
