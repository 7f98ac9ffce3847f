"""Queues: limits, pauses, free slots."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import timedelta

from msgspec import Struct

from holdfast.domain.names import checked_name
from holdfast.domain.quantities import checked_number
from holdfast.errors import InvalidInput

DEFAULT_QUEUE = "default"
MAX_SLOTS = 10_000
#: A worker without a heartbeat for this time counts as lost.
WORKER_SILENCE = timedelta(seconds=60)
#: A worker without a heartbeat for this time is late: heartbeats come every ten seconds or less.
WORKER_LATE_AFTER = timedelta(seconds=30)
#: A lost worker stays visible for this time.
LOST_WORKERS_KEPT = timedelta(days=1)


class Bounds(Struct, frozen=True):
    """The minimum and maximum of commands of a queue on a host."""

    least: int
    most: int

    def __str__(self) -> str:
        return f"{self.least}-{self.most}"


def parse_bounds(text: str) -> Bounds | None:
    """Read ``1-8``; ``off`` is None."""
    if text == "off":
        return None
    match = re.fullmatch(r"(\d{1,5})-(\d{1,5})", text)
    bounds = Bounds(int(match[1]), int(match[2])) if match else Bounds(0, 0)
    if not 1 <= bounds.least <= bounds.most <= MAX_SLOTS:
        raise InvalidInput(f"{text!r} is not a valid range of slots", hint="Write it like 1-8, or off.")
    return bounds


#: Stands for every queue where a worker names its queues.
ALL_QUEUES = "*"
#: Queues with this prefix belong to one process: no other worker serves them.
PRIVATE_PREFIX = "holdfast."


def checked_queue(name: str) -> str:
    """The name of a queue, if it can be one."""
    if name == ALL_QUEUES:
        hint = "Name one queue; workers serve all of them with --queue '*'."
        raise InvalidInput("a queue cannot have the name '*': it stands for all queues", hint=hint)
    return checked_name(name, label="the queue")


def serves_queue(queues: Collection[str], queue: str) -> bool:
    """Whether a worker that names these *queues* serves this one."""
    return queue in queues or (ALL_QUEUES in queues and not queue.startswith(PRIVATE_PREFIX))


class Queue(Struct, frozen=True):
    """A queue's settings. ``None`` means no limit; a queue without a row has none.

    *scale_min* and *scale_max* bound the commands that the autoscaler runs on each host.
    """

    name: str
    limit: int | None = None
    worker_limit: int | None = None
    paused: bool = False
    note: str | None = None
    scale_min: int | None = None
    scale_max: int | None = None

    @property
    def bounds(self) -> Bounds | None:
        """The bounds of the autoscaler on each host; None: it is off."""
        if self.scale_min is None or self.scale_max is None:
            return None
        return Bounds(self.scale_min, self.scale_max)

    @property
    def limited(self) -> bool:
        return self.limit is not None or self.worker_limit is not None


class Usage(Struct, frozen=True):
    """The running jobs of a limited queue: in total, and on one worker."""

    name: str
    limit: int | None
    worker_limit: int | None
    running: int
    running_here: int


def free_slots(usage: Usage) -> int:
    """The number of jobs of a queue that one worker may start now."""
    free = [
        limit - running
        for limit, running in ((usage.limit, usage.running), (usage.worker_limit, usage.running_here))
        if limit is not None
    ]
    return max(0, min(free))


def checked_limit(limit: int | None) -> int | None:
    """Return *limit* if it is valid; 0 means no limit."""
    if limit is not None and checked_number(limit, label="a limit") < 0:
        raise InvalidInput(f"a limit is at least 1, or 0 for none, not {limit}", hint="Pause the queue to stop it.")
    return limit
