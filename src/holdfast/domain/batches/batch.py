"""Batches: one function over many units, under one identity."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NewType

import msgspec
from msgspec import Struct

from holdfast.domain.batches.checkpoint import CheckpointInterval
from holdfast.domain.batches.unit import Counters
from holdfast.domain.fleet.queue import DEFAULT_QUEUE
from holdfast.domain.jobs.job import ControlRequest
from holdfast.domain.jobs.new_job import NewJob, Unique
from holdfast.domain.jobs.retry_curve import Curve
from holdfast.domain.origin import is_same_place
from holdfast.errors import InvalidInput

BatchId = NewType("BatchId", int)
#: The kind of a foreground run's own job. No worker serves it.
DRIVER = "holdfast.driver"
#: The queue of these jobs: they take no place of a queue with a limit, and no worker serves it.
DRIVER_QUEUE = "holdfast.foreground"


class BatchState(StrEnum):
    """The state of a batch. A signal, a breaker or a deadline leads to ``stopped``, which is resumable."""

    READY = "ready"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    DONE = "done"
    PARTIAL = "partial"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def finished(self) -> bool:
        return self in (BatchState.DONE, BatchState.PARTIAL, BatchState.FAILED, BatchState.CANCELLED)


class AbortedBy(StrEnum):
    """The cause that stopped a run early."""

    SIGNAL = "signal"
    MAX_FAILURES = "max_failures"
    MAX_TOTAL_FAILURES = "max_total_failures"
    MAX_FAILURE_RATE = "max_failure_rate"
    DEADLINE = "deadline"
    PAUSE = "pause"
    CANCEL = "cancel"
    FATAL = "fatal"
    INPUT = "input"
    LIMIT = "limit"
    LEASE_LOST = "lease_lost"
    STOP_SWITCH = "stop_switch"


#: Causes that a person must fix before the next run.
BREAKERS = frozenset(
    {AbortedBy.MAX_FAILURES, AbortedBy.MAX_TOTAL_FAILURES, AbortedBy.MAX_FAILURE_RATE, AbortedBy.FATAL}
)
#: Exit codes of runs that stopped early; with any other cause, the states of the units decide.
_EXIT_CODES: dict[AbortedBy | None, int] = {
    AbortedBy.LEASE_LOST: 15,
    AbortedBy.CANCEL: 12,
    AbortedBy.DEADLINE: 10,
    AbortedBy.SIGNAL: 7,
    AbortedBy.STOP_SWITCH: 7,
    AbortedBy.PAUSE: 11,
    **dict.fromkeys((*BREAKERS, AbortedBy.INPUT), 8),
}


class Batch(Struct, frozen=True):
    """A batch as the store keeps it. *run_number* counts its runs; *version* and *inputs* are checked for drift.

    *failures* is JSON: the failures for which a breaker stopped the last run, grouped.
    """

    id: BatchId
    identity: str
    generation: int
    kind: str
    arguments: str
    source: str
    name: str | None
    state: BatchState
    requested: ControlRequest | None
    aborted_by: AbortedBy | None
    total: int | None
    run_number: int
    version: str | None
    inputs: str | None
    code: str | None
    options: str
    actor: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    failures: str | None = None
    #: Where the function of the last run lives; None if no function has the batch's name.
    origin: str | None = None

    def is_elsewhere(self, origin: str | None) -> bool:
        """Whether a function of the same name, but from another place, made the last run."""
        return self.origin is not None and origin is not None and not is_same_place(self.origin, origin)


class LeftBy(StrEnum):
    """The reason why a run that was not stopped leaves pending units behind."""

    LIMIT = "limit"
    ONLY = "only"
    RESUME_FROM = "resume_from"
    BREAK = "break"
    OTHERS = "others"


#: Labels in a summary for people.
SHOWN_LABELS = 20


class Summary(Struct, frozen=True, kw_only=True):
    """How a run ended. *left_by* says why pending units are left behind though nothing has stopped the run.

    *total* and *pending* are None while the number of keys is unknown: no run has read the input to its end.
    """

    total: int | None
    succeeded: int
    failed: int
    skipped: int
    cancelled: int
    pending: int | None
    in_doubt: int = 0
    in_inbox: int = 0
    warned: int = 0
    returned: int = 0
    aborted: bool = False
    aborted_by: AbortedBy | None = None
    max_failures_hit: bool = False
    left_by: LeftBy | None = None
    #: The 100 labels with the most units, and the number of other labels.
    labels: dict[str, int] = {}
    other_labels: int = 0

    @property
    def over(self) -> int:
        """Units that are finished, at least for this run: neither pending nor in an inbox."""
        return self.succeeded + self.failed + self.skipped + self.cancelled + self.in_doubt

    def largest_labels(self, most: int = SHOWN_LABELS) -> tuple[dict[str, int], int]:
        """The labels with the most units, for people, and the number of all others."""
        if len(self.labels) <= most:
            return self.labels, self.other_labels
        by_size = sorted(self.labels.items(), key=lambda label: (-label[1], label[0]))
        return dict(by_size[:most]), len(by_size) - most + self.other_labels


def known_total(batch: Batch, counted: Counters) -> int | None:
    """The number of units of a batch; None while no run has read its input to the end."""
    return None if batch.total is None else max(batch.total, counted.over + counted.in_inbox)


def summarise(counted: Counters, total: int | None, aborted_by: AbortedBy | None) -> Summary:
    """The summary of a batch with *total* units; None: their number is unknown."""
    pending = None if total is None else max(0, total - counted.over - counted.in_inbox)
    return Summary(
        total=total,
        succeeded=counted.done,
        failed=counted.failed,
        skipped=counted.skipped,
        cancelled=counted.cancelled,
        pending=pending,
        in_doubt=counted.in_doubt,
        in_inbox=counted.in_inbox,
        warned=counted.warned,
        # Those that ran again later are not pending any more.
        returned=counted.returned if pending is None else min(counted.returned, pending),
        aborted=aborted_by is not None,
        aborted_by=aborted_by,
        max_failures_hit=aborted_by is AbortedBy.MAX_FAILURES,
        labels=counted.labels,
        other_labels=counted.other_labels,
    )


def state_after(counted: Counters, total: int, aborted_by: AbortedBy | None) -> BatchState:
    """The state of a batch after a run."""
    match aborted_by:
        case AbortedBy.CANCEL:
            return BatchState.CANCELLED
        case AbortedBy.PAUSE:
            return BatchState.PAUSED
        case None if counted.over >= total and not counted.failed and not counted.in_doubt:
            return BatchState.DONE
        case None if counted.over >= total:
            return BatchState.PARTIAL if counted.done else BatchState.FAILED
        case None if counted.over + counted.in_inbox >= total:
            return BatchState.RUNNING
        case _:
            return BatchState.STOPPED


def exit_code(counted: Counters, aborted_by: AbortedBy | None) -> int:
    """The exit code of a run: the cause that stopped it comes first, then the states of its units."""
    if aborted_by in _EXIT_CODES:
        return _EXIT_CODES[aborted_by]
    if counted.failed or counted.in_doubt:
        return 6 if counted.done else 1
    return 0


def identity(kind: str, arguments: Mapping[str, Any], source: str) -> str:
    """The identity of a batch: runs of one function with equal arguments and key source share it."""
    text = msgspec.json.encode([kind, dict(arguments), source], order="sorted")
    return hashlib.sha256(text).hexdigest()[:32]


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


DEFAULT_SHARDS = 3
MAX_SHARDS = 1000
#: A shard whose worker was lost is retried within seconds: crash limits apply to its units, not to the shard.
SHARD_RETRY = Curve(steps=(1.0, 2.0, 5.0))


class Sharding(Struct, frozen=True, kw_only=True):
    """The options of a batch that workers run; stored with the batch."""

    kind: str
    shards: int = DEFAULT_SHARDS
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    limits: FailureLimits = FailureLimits()
    in_doubt_if_lost: bool = False
    until: datetime | None = None
    #: Units that all shards together may start per second.
    rate: float | None = None
    checkpoint: CheckpointInterval = CheckpointInterval()


class RunPlan(Struct, frozen=True, kw_only=True):
    """The limits and policies of one run of a batch: in the foreground, or of one shard."""

    jobs: int = 1
    limits: FailureLimits = FailureLimits()
    deadline: timedelta | None = None
    limit: int | None = None
    retry_failed: bool = True
    in_doubt_if_lost: bool = False
    rate: float | None = None
    checkpoint: CheckpointInterval = CheckpointInterval()


def shard_kind(function: str) -> str:
    """The kind of the jobs that run the units of a function."""
    return f"shard:{function}"


def batch_label(batch: Batch) -> str:
    """The label of all jobs of a batch."""
    return f"batch-{batch.id}"


def is_shard(kind: str) -> bool:
    """Whether a kind is one of shards."""
    return kind.startswith("shard:")


def sharding_of(batch: Batch) -> Sharding | None:
    """The sharding of a batch; None if no workers run it."""
    return None if batch.options == "{}" else msgspec.json.decode(batch.options, type=Sharding)


def shard_job(batch: Batch, sharding: Sharding, number: int) -> NewJob:
    """The job of one shard. It has no limit of attempts: limits apply to units."""
    return NewJob(
        kind=sharding.kind,
        payload=msgspec.json.encode({"batch": batch.id, "number": number}).decode(),
        queue=sharding.queue,
        priority=sharding.priority,
        label=batch_label(batch),
        unique=Unique(shard_key(batch, number)),
        max_attempts=None,
        max_crashes=None,
        retry=SHARD_RETRY.dumps(),
    )


def shard_key(batch: Batch, number: int) -> str:
    """The unique key of the job of a shard. Shards are counted from 0."""
    return f"{batch.id}/{number}"
