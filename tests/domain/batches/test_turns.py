"""Turns of shards: for whom a shard makes room, and which one."""

from __future__ import annotations

import pytest

from holdfast.domain.batches.turns import SLICE_S, ClaimableJob, ShardTurn, shards_to_stop

OVER = -SLICE_S


def shard(job_id, began_at=OVER, **options):
    values = {"batch_label": "batch-1", "queue": "b", "priority": 0} | options
    return ShardTurn(job_id=job_id, began_at=began_at, **values)


def job(queue="online", priority=0, label=None, room=None):
    return ClaimableJob(queue, priority, label, room)


@pytest.mark.parametrize(
    ("shards", "waiting", "free", "stopped"),
    [
        ([shard(1), shard(2)], [], 0, set()),
        ([shard(1), shard(2, OVER - 1)], [job()], 0, {2}),
        ([shard(1), shard(2)], [job(), job(), job()], 0, {1, 2}),
        ([shard(1, OVER + 1)], [job()], 0, set()),
        ([shard(1)], [job()], 1, set()),
        ([shard(1)], [job(), job()], 1, {1}),
        ([shard(1, priority=5)], [job(priority=4)], 0, set()),
        ([shard(1, priority=5)], [job(priority=5)], 0, {1}),
        ([shard(1)], [job("b", label="batch-1")], 0, set()),
        ([shard(1)], [job("b", label="batch-2")], 0, {1}),
        ([shard(1)], [job(room=0)], 0, set()),
        ([shard(1), shard(2)], [job(room=1), job(room=1)], 0, {1}),
        ([shard(1, queue="a"), shard(2)], [job("b", room=0)], 3, {2}),
    ],
    ids=[
        "nobody-waits",
        "the-longest-turn-ends-first",
        "one-for-each-job",
        "a-turn-lasts-a-slice",
        "a-free-slot-serves-the-first",
        "beyond-free-slots",
        "less-important",
        "equally-important",
        "the-same-batch",
        "another-batch",
        "a-full-queue",
        "as-many-as-the-queue-has-room-for",
        "a-full-queue-takes-the-place-of-its-own-shard",
    ],
)
def test_who_makes_room(shards, waiting, free, stopped):
    """K83: a shard makes room only for a job that could begin then, and no more shards do than jobs wait."""
    assert shards_to_stop(shards, waiting, free=free, now=0.0) == stopped
