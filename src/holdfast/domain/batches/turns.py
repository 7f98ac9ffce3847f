"""Turns of shards: after a slice of time, a shard makes room for a job that waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from holdfast.domain.jobs.job import JobId

#: A shard runs at least this long before it makes room for a job that waits.
SLICE_S = 10.0


class ShardTurn(Struct, frozen=True, kw_only=True):
    """A running shard of one worker. *began_at* is in seconds of the worker's clock."""

    job_id: JobId
    batch_label: str
    queue: str
    priority: int
    began_at: float


class ClaimableJob(Struct, frozen=True):
    """A ready job that a worker could claim. *room*: free places of its queue, None without a limit."""

    queue: str
    priority: int
    label: str | None
    room: int | None


def shards_to_stop(
    shards: Sequence[ShardTurn], waiting: Sequence[ClaimableJob], *, free: int, now: float
) -> set[JobId]:
    """The shards that make room: for each waiting job that needs it one, the longest turn first.

    *free* slots of the worker serve the first jobs. A shard never makes room for a less important job, nor for another
    shard of its batch. A queue that has reached its limit needs the place of one of its own shards.
    """
    stopped: set[JobId] = set()
    begun: Counter[str] = Counter()
    over = sorted((shard for shard in shards if now - shard.began_at >= SLICE_S), key=lambda shard: shard.began_at)
    for job in waiting:
        has_room = job.room is None or begun[job.queue] < job.room
        if has_room and free > 0:
            free -= 1
            begun[job.queue] += 1
            continue
        for shard in over:
            fits = shard.priority <= job.priority and shard.batch_label != job.label
            if shard.job_id not in stopped and fits and (has_room or shard.queue == job.queue):
                stopped.add(shard.job_id)
                begun[job.queue] += shard.queue != job.queue
                break
    return stopped
