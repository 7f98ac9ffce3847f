"""Positions in lanes: where a worker continues to claim, and which jobs may come before them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice, product
from typing import Any

from msgspec import Struct, structs

from holdfast.domain.jobs.job import JobId, Lease
from holdfast.domain.jobs.new_job import HIGHEST_PRIORITY

#: A queue and a kind.
Lane = tuple[str, str]
LOWEST_PRIORITY = -(2**31)
#: The start of a lane: no job is due before.
EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
#: The most positions of a route, and the most lanes that it covers.
MAX_POSITIONS = MAX_LANES = 500
#: A worker with more lanes names fewer in a claim: each costs a search for jobs of a higher priority. It names one for
#: this many jobs, and claims up to twice as many of each. So half of the lanes may be empty.
JOBS_OF_LANE, MIN_LANES = 8, 100


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
    """Where to claim next, the best position first. A lane in which nothing was claimed begins at its start."""

    positions: Sequence[LanePosition]
    #: Other positions are known, and come next.
    continues: bool = False

    @property
    def better(self) -> list[Gap]:
        """The priorities without a position at which a job would come before the last of these."""
        return _gaps(self.positions, self.positions[-1].priority + 1)

    @property
    def elsewhere(self) -> list[Gap]:
        """All priorities without a position."""
        return _gaps(self.positions, LOWEST_PRIORITY)

    def earlier(self, by: timedelta) -> LaneRoute:
        """The same lanes, from a time before each position on."""
        starts = [each.due_at - by if each.due_at > EARLIEST else EARLIEST for each in self.positions]
        pairs = zip(self.positions, starts, strict=True)
        earlier = [structs.replace(each, due_at=start, job_id=JobId(0)) for each, start in pairs]
        return structs.replace(self, positions=earlier)

    def columns(self, short: Iterable[str]) -> dict[str, list[Any]]:
        """The parameters of a claim, one list for each column."""
        columns = _columns("lane_", LanePosition, self.positions)
        prefetched = frozenset(short)
        columns["lane_slot_only"] = [kind not in prefetched for kind in columns["lane_kind"]]
        return columns | gaps(self.better) | {"queues": sorted(set(columns["lane_queue"]))}


def gaps(gaps: Sequence[Gap]) -> dict[str, list[Any]]:
    """The parameters of a search in gaps, one list for each column."""
    columns = _columns("gap_", Gap, gaps)
    return columns | {"queues": sorted(set(columns["gap_queue"]))}


def _columns(prefix: str, rows: type[Struct], table: Sequence[Struct]) -> dict[str, list[Any]]:
    """The fields of all rows of a *table*, by name."""
    cells = [list(column) for column in zip(*map(structs.astuple, table), strict=True)]
    names = [prefix + name for name in rows.__struct_fields__]
    return dict(zip(names, cells or [[] for _ in names], strict=True))


class LanePositions:
    """The positions of one worker: behind the last job that it claimed, by priority and lane."""

    def __init__(self) -> None:
        #: The lane that was claimed from longest ago is the first of its priority.
        self._positions: dict[int, dict[Lane, tuple[datetime, JobId]]] = {}
        #: Those at which a job was claimed since the last :meth:`drop_unused`.
        self._used: set[tuple[int, Lane]] = set()
        #: The latest due time of the jobs of the last claim. The clock of the server may step back.
        self.latest: datetime | None = None

    def learn(self, leases: Iterable[Lease]) -> None:
        """Move the positions behind jobs that were claimed, in the order of the claim."""
        last = {(lease.priority, (lease.queue, lease.kind)): (lease.due_at, lease.job_id) for lease in leases}
        for (priority, lane), position in last.items():
            lanes = self._positions.setdefault(priority, {})
            lanes.pop(lane, None)
            lanes[lane] = position
        self._used.update(last)
        self.latest = max((due_at for due_at, _ in last.values()), default=self.latest)

    def begin_at(self, heads: Iterable[LanePosition]) -> None:
        """Begin at the first jobs of all lanes that have any."""
        self._positions.clear()
        for head in sorted(heads, key=lambda each: (each.due_at, each.job_id)):
            before = head.due_at, JobId(head.job_id - 1)
            self._positions.setdefault(head.priority, {})[head.queue, head.kind] = before

    def add_heads(self, heads: Iterable[LanePosition]) -> LaneRoute | None:
        """Begin at the first jobs of new lanes; returns the way to those first jobs that come before a position."""
        early = []
        for head in heads:
            lanes, lane = self._positions.setdefault(head.priority, {}), (head.queue, head.kind)
            before = head.due_at, JobId(head.job_id - 1)
            if before < lanes.setdefault(lane, before):
                early.append(structs.replace(head, job_id=before[1], most=1))
        early.sort(key=lambda each: -each.priority)
        return LaneRoute(early) if early else None

    def drop(self, route: LaneRoute) -> None:
        """Drop the positions of a route: nothing was there."""
        for each in route.positions:
            self._positions[each.priority].pop((each.queue, each.kind), None)

    def drop_unused(self) -> None:
        """Drop positions at which nothing was claimed, if there are many: most probably, nothing is there."""
        if sum(map(len, self._positions.values())) > MAX_POSITIONS:
            for priority, lanes in self._positions.items():
                self._positions[priority] = {lane: lanes[lane] for lane in lanes if (priority, lane) in self._used}
        self._used.clear()

    def route(self, queues: Collection[str], kinds: Collection[str], jobs: int) -> LaneRoute | None:
        """Where to claim *jobs* in the lanes of *queues* and *kinds*; None if no position is known."""
        served_queues, served_kinds = frozenset(queues), frozenset(kinds)
        most = MAX_LANES
        if len(queues) * len(kinds) > MAX_LANES:
            most = min(max(MIN_LANES, jobs // JOBS_OF_LANE), MAX_LANES)
        positions = (
            (priority, lane, position)
            for priority in sorted(self._positions, reverse=True)
            for lane, position in self._positions[priority].items()
            if lane[0] in served_queues and lane[1] in served_kinds
        )
        known = list(islice(positions, most))
        continues = next(positions, None) is not None
        if not known:
            return None
        if continues:  # the next route begins with the others
            for priority, lane, _ in known:
                same_priority = self._positions[priority]
                same_priority[lane] = same_priority.pop(lane)
        lowest = known[-1][0]
        # All jobs of a higher priority come before those of the lowest, of which each lane gives its share.
        last = {lane: position for priority, lane, position in known if priority == lowest}
        share = jobs if len(last) == 1 else 2 + 2 * jobs // len(last)
        others = islice(product(queues, kinds), max(0, most - len(known)))
        lanes = [
            *(
                LanePosition(*lane, priority, *position, jobs)
                for priority, lane, position in known
                if priority > lowest
            ),
            *(LanePosition(*lane, lowest, EARLIEST, JobId(0), share) for lane in others if lane not in last),
            *(LanePosition(*lane, lowest, *position, share) for lane, position in last.items()),
        ]
        return LaneRoute(lanes, continues)


def _gaps(positions: Sequence[LanePosition], lowest: int) -> list[Gap]:
    """The priorities from *lowest* on at which a lane has no position."""
    if positions[0].priority < lowest:  # all of them: each lane has one position
        return [Gap(each.queue, each.kind, lowest, HIGHEST_PRIORITY) for each in positions]
    priorities: dict[Lane, list[int]] = {}
    for each in positions:
        priorities.setdefault((each.queue, each.kind), []).append(each.priority)
    free = []
    for lane, known in priorities.items():
        high = HIGHEST_PRIORITY
        for priority in [*known, lowest - 1]:
            if max(priority + 1, lowest) <= high:
                free.append(Gap(*lane, max(priority + 1, lowest), high))
            high = priority - 1
    return free
