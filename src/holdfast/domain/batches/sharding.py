"""Shards: the jobs by which workers run a batch, until no unit is left."""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import Struct

from holdfast.domain.batches.batch import Batch, FailureLimits
from holdfast.domain.fleet.queue import DEFAULT_QUEUE
from holdfast.domain.jobs.new_job import NewJob, Unique
from holdfast.domain.jobs.verdict import Curve

DEFAULT_SHARDS = 3
MAX_SHARDS = 1000
#: A shard whose worker was lost returns soon: crash limits apply to its units, not to the shard.
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


def shard_kind(function: str) -> str:
    """The kind of the jobs that run the units of a function."""
    return f"shard:{function}"


def is_shard(kind: str) -> bool:
    """Whether a kind is one of shards."""
    return kind.startswith("shard:")


def sharding_of(batch: Batch) -> Sharding | None:
    """The sharding of a batch; None if no workers run it."""
    return None if batch.options == "{}" else msgspec.json.decode(batch.options, type=Sharding)


def shard_jobs(batch: Batch, sharding: Sharding) -> list[NewJob]:
    """The jobs of all shards. They have no limit of attempts: limits apply to units."""
    return [
        NewJob(
            kind=sharding.kind,
            payload=msgspec.json.encode({"batch": batch.id, "number": number}).decode(),
            queue=sharding.queue,
            priority=sharding.priority,
            label=f"batch-{batch.id}",
            unique=Unique(f"{batch.id}/{number}"),
            max_attempts=None,
            max_crashes=None,
            retry=SHARD_RETRY.dumps(),
        )
        for number in range(sharding.shards)
    ]
