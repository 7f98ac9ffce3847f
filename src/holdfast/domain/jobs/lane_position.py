"""Positions in lanes: where a worker continues to claim, and which jobs may come before them."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence
from datetime import datetime
from itertools import islice, product
from typing import Any

from msgspec import Struct

from holdfast.domain.jobs.job import JobId, Lease
from holdfast.domain.jobs.new_job import HIGHEST_PRIORITY

#: A queue and a kind.
Lane = tuple[str, str]
LOWEST_PRIORITY = -(2**31)
#: The most positions of a route, and the most lanes that are searched for jobs of a higher priority.
MAX_POSITIONS = MAX_LANES = 500


class LanePosition(Struct, frozen=True):
    """The place of a job in its lane, among the jobs of one priority. *most*: how many jobs to claim after it."""

    queue: str
    kind: str
    priority: int
    due_at: datetime
    job_id: JobId
    most: int = 1


class Gap(Struct, frozen=True):
    """Priorities of a lane without a position, from *low* to *high*, both included."""

    queue: str
    kind: str
    low: int
    high: int


class LaneRoute(Struct, frozen=True):
    """Where to claim next: *positions*, the best first. A job in one of *better* would come before them.

    *elsewhere* are all priorities of all lanes without a position.
    """

    positions: Sequence[LanePosition]
    better: Sequence[Gap]
    elsewhere: Sequence[Gap]

    def columns(self, short: Container[str]) -> dict[str, list[Any]]:
        """The parameters of a claim, one list for each column."""
        names = ("queue", "kind", "priority", "due_at", "job_id", "most")
        columns = {f"lane_{name}": [getattr(each, name) for each in self.positions] for name in names}
        return columns | {"lane_slot_only": [each.kind not in short for each in self.positions]} | gaps(self.better)


def gaps(gaps: Sequence[Gap]) -> dict[str, list[Any]]:
    """The parameters of a search in gaps, one list for each column."""
    return {f"gap_{name}": [getattr(each, name) for each in gaps] for name in ("queue", "kind", "low", "high")}


class LanePositions:
    """The positions of one worker: behind the last job that it claimed, by priority and lane."""

    def __init__(self) -> None:
        #: The lane that was claimed from longest ago is the first of its priority.
        self._positions: dict[int, dict[Lane, tuple[datetime, JobId]]] = {}
        #: Those at which a job was claimed since the last :meth:`drop_unused`.
        self._used: set[tuple[int, Lane]] = set()

    def learn(self, leases: Iterable[Lease]) -> None:
        """Move the positions behind jobs that were claimed, in the order of the claim."""
        last = {(lease.priority, (lease.queue, lease.kind)): (lease.due_at, lease.job_id) for lease in leases}
        for (priority, lane), position in last.items():
            lanes = self._positions.setdefault(priority, {})
            lanes.pop(lane, None)
            lanes[lane] = position
        self._used.update(last)

    def drop_unused(self) -> None:
        """Drop positions at which nothing was claimed: most probably, nothing is there."""
        for priority, lanes in list(self._positions.items()):
            kept = {lane: position for lane, position in lanes.items() if (priority, lane) in self._used}
            self._positions[priority] = kept
            if not kept:
                del self._positions[priority]
        self._used.clear()

    def route(self, queues: Collection[str], kinds: Collection[str], jobs: int) -> LaneRoute | None:
        """Where to claim *jobs* in the lanes of *queues* and *kinds*; None if no position is known."""
        known = [
            (priority, lane, position)
            for priority in sorted(self._positions, reverse=True)
            for lane, position in self._positions[priority].items()
            if lane[0] in queues and lane[1] in kinds
        ][:MAX_POSITIONS]
        if not known:
            return None
        lowest = known[-1][0]
        # All jobs of a higher priority come before those of the lowest, of which each lane gives its share.
        last = sum(priority == lowest for priority, *_ in known)
        share = jobs if last == 1 else 2 + 2 * jobs // last
        positions = [
            LanePosition(*lane, priority, *position, jobs if priority > lowest else share)
            for priority, lane, position in known
        ]
        better = _gaps(positions, product(queues, kinds), lowest + 1)
        return LaneRoute(positions, better, _gaps(positions, product(queues, kinds), LOWEST_PRIORITY))


def _gaps(positions: list[LanePosition], lanes: Iterable[Lane], lowest: int) -> list[Gap]:
    """The priorities from *lowest* on at which a lane has no position."""
    priorities: dict[Lane, list[int]] = {}
    for each in positions:
        priorities.setdefault((each.queue, each.kind), []).append(each.priority)
    for lane in islice(lanes, max(0, MAX_LANES - len(priorities))):
        priorities.setdefault(lane, [])
    found = []
    for lane, known in priorities.items():
        high = HIGHEST_PRIORITY
        for priority in [*known, lowest - 1]:
            if max(priority + 1, lowest) <= high:
                found.append(Gap(*lane, max(priority + 1, lowest), high))
            high = priority - 1
    return found
