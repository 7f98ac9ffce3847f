"""The plan of a run: its limits and policies."""

from __future__ import annotations

from datetime import timedelta

from msgspec import Struct

from holdfast.domain.batches.batch import FailureLimits
from holdfast.domain.batches.checkpoint import CheckpointInterval


class RunPlan(Struct, frozen=True, kw_only=True):
    """The limits and policies of a run."""

    jobs: int = 1
    limits: FailureLimits = FailureLimits()
    deadline: timedelta | None = None
    limit: int | None = None
    retry_failed: bool = True
    in_doubt_if_lost: bool = False
    rate: float | None = None
    checkpoint: CheckpointInterval = CheckpointInterval()
