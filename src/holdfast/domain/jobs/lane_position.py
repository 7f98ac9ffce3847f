"""Positions in lanes: where a worker continues to claim, and which jobs may come before them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice, product
from typing import Any

from msgspec import Struct, structs

from holdfast.domain.jobs.job import HIGHEST_PRIORITY, LOWEST_PRIORITY, JobId, Lease

#: A queue and a kind.
Lane = tuple[str, str]
#: The place of a job among the jobs of its lane that have the same priority.
Place = tuple[datetime, JobId]
#: The start of a lane, and its end: no job is due before or after.
EARLIEST, LATEST = datetime(1900, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)
FIRST, LAST = JobId(0), JobId(2**63 - 1)
#: Jobs that became ready just now are searched for this far before a position: some are committed late.
STEP_BACK = timedelta(seconds=2)
#: The most positions of a route, and the most lanes that it covers.
MAX_POSITIONS = MAX_LANES = 500
#: A worker with more lanes names fewer in a claim: each costs a search for jobs of a higher priority. It names one for
#: this many jobs, and claims up to twice as many of each. So half of the lanes may be empty.
JOBS_OF_LANE, MIN_LANES = 8, 100


class LaneHead(Struct, frozen=True):
    """The first ready job of a lane."""

    queue: str
    kind: str
    priority: int
    due_at: datetime
    job_id: JobId


class EarlierJobs(Struct, frozen=True):
    """Jobs of one lane and priority that became ready, due from *oldest* to *newest*; without times, just now.

    Workers may have claimed jobs that come after them.
    """

    queue: str
    kind: str
    priority: int
    oldest: datetime | None = None
    newest: datetime | None = None

    @property
    def lane(self) -> Lane:
        return self.queue, self.kind


class Span(Struct, frozen=True):
    """Places of a lane from *after* to *until*, both left out. Jobs there became ready behind a position."""

    lane: Lane
    priority: int
    after: Place
    until: Place

    def contains(self, lease: Lease) -> bool:
        """Whether a claimed job lies in it."""
        if (lease.queue, lease.kind) != self.lane or lease.priority != self.priority:
            return False
        return self.after < (lease.due_at, lease.job_id) < self.until


class LanePosition(Struct, frozen=True):
    """Where a claim continues in a lane, among the jobs of one priority: after a place, and before *until*.

    *most*: how many jobs to claim there.
    """

    queue: str
    kind: str
    priority: int
    due_at: datetime
    job_id: JobId
    most: int = 1
    until: datetime = LATEST
    until_id: JobId = FIRST


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
    #: Spans come before the positions of their priority.
    spans: Sequence[Span] = ()

    @property
    def better(self) -> list[Gap]:
        """The priorities without a position at which a job would come before the last of these."""
        return _gaps(self.positions, self.positions[-1].priority + 1)

    @property
    def elsewhere(self) -> list[Gap]:
        """All priorities without a position."""
        return _gaps(self.positions, LOWEST_PRIORITY)

    def columns(self, short: Iterable[str], jobs: int) -> dict[str, list[Any]]:
        """The parameters of a claim of *jobs*, one list for each column."""
        spans = [LanePosition(*span.lane, span.priority, *span.after, jobs, *span.until) for span in self.spans]
        entries = sorted([*spans, *self.positions], key=lambda each: -each.priority)  # keeps the order of equal ones
        columns = _columns("lane_", LanePosition, entries)
        prefetched = frozenset(short)
        columns["lane_slot_only"] = [kind not in prefetched for kind in columns["lane_kind"]]
        return columns | gaps(self.better) | {"queues": sorted(set(columns["lane_queue"]))}


def merged(earlier: Iterable[EarlierJobs]) -> list[EarlierJobs]:
    """At most two for each lane and priority: one with times, from the oldest to the newest, and one without."""
    known: dict[tuple[str, str, int, bool], EarlierJobs] = {}
    for jobs in earlier:
        key = (jobs.queue, jobs.kind, jobs.priority, jobs.oldest is None)
        other = known.get(key, jobs)
        if jobs.oldest and jobs.newest and other.oldest and other.newest:
            oldest, newest = min(jobs.oldest, other.oldest), max(jobs.newest, other.newest)
            other = structs.replace(jobs, oldest=oldest, newest=newest)
        known[key] = other
    return list(known.values())


def gaps(gaps: Sequence[Gap]) -> dict[str, list[Any]]:
    """The parameters of a search in gaps, one list for each column."""
    columns = _columns("gap_", Gap, gaps)
    return columns | {"queues": sorted(set(columns["gap_queue"]))}


def _columns(prefix: str, rows: type[Struct], table: Sequence[Struct]) -> dict[str, list[Any]]:
    """The fields of all rows of a *table*, by name."""
    cells = [list(column) for column in zip(*map(structs.astuple, table), strict=True)]
    names = [prefix + name for name in rows.__struct_fields__]
    return dict(zip(names, cells or [[] for _ in names], strict=True))


class LanePositions(Struct, frozen=True):
    """The positions of one worker: behind the last job that it claimed, by priority and lane.

    The lane that was claimed from longest ago is the first of its priority.
    """

    priorities: Mapping[int, Mapping[Lane, Place]] = {}
    #: Those at which a job was claimed since the last :meth:`without_unused`.
    used: frozenset[tuple[int, Lane]] = frozenset()
    #: The latest due time of the jobs of the last claim. The clock of the server may step back.
    latest: datetime | None = None

    def at(self, priority: int, lane: Lane) -> Place | None:
        """The position in a lane; None if it is not known."""
        return self.priorities.get(priority, {}).get(lane)

    def behind(self, leases: Iterable[Lease], route: LaneRoute | None = None) -> LanePositions:
        """The positions behind claimed jobs, in the order of the claim.

        Jobs in a span of *route* move no position. Where other lanes wait, those of the route come after them.
        """
        spans = {} if route is None else {(span.priority, span.lane): span for span in route.spans}
        last: dict[tuple[int, Lane], Place] = {}
        for lease in leases:
            key = lease.priority, (lease.queue, lease.kind)
            if not (spans and key in spans and spans[key].contains(lease)):
                last[key] = (lease.due_at, lease.job_id)
        rotated = route.positions if route is not None and route.continues else ()
        touched = {priority for priority, _ in last} | {each.priority for each in rotated}
        changed = {priority: dict(self.priorities.get(priority, {})) for priority in touched}
        for each in rotated:
            lanes = changed[each.priority]
            if (place := lanes.pop((each.queue, each.kind), None)) is not None:
                lanes[each.queue, each.kind] = place
        for (priority, lane), place in last.items():
            changed[priority].pop(lane, None)
            changed[priority][lane] = place
        latest = max((due_at for due_at, _ in last.values()), default=self.latest)
        return LanePositions({**self.priorities, **changed}, self.used.union(last), latest)

    def begin_at(self, heads: Iterable[LaneHead]) -> LanePositions:
        """Begin at the first jobs of all lanes that have any; nothing else stays known."""
        priorities: dict[int, dict[Lane, Place]] = {}
        for head in sorted(heads, key=lambda each: (each.due_at, each.job_id)):
            priorities.setdefault(head.priority, {})[head.queue, head.kind] = _before(head)
        return structs.replace(self, priorities=priorities)

    def with_heads(self, heads: Iterable[LaneHead]) -> tuple[LanePositions, list[Span]]:
        """Begin at the first jobs of new lanes; the spans are of first jobs that come before a position."""
        priorities = {priority: dict(lanes) for priority, lanes in self.priorities.items()}
        spans = []
        for head in heads:
            lane, before = (head.queue, head.kind), _before(head)
            position = priorities.setdefault(head.priority, {}).setdefault(lane, before)
            if before < position:
                until = min((head.due_at, JobId(head.job_id + 1)), position)
                spans.append(Span(lane, head.priority, before, until))
        return structs.replace(self, priorities=priorities), spans

    def with_earlier(self, earlier: Iterable[EarlierJobs]) -> tuple[LanePositions, list[Span]]:
        """Learn where jobs became ready; the spans are of those that come before a position.

        At a higher priority than the lowest known one, a lane without a position was empty: it begins at these jobs.
        """
        lowest = min((priority for priority, lanes in self.priorities.items() if lanes), default=HIGHEST_PRIORITY)
        positions, spans = self, []
        for jobs in earlier:
            position = positions.at(jobs.priority, jobs.lane)
            if position is not None:
                span = _span_before(position, jobs)
                spans += [] if span is None else [span]
            elif jobs.oldest is not None and jobs.priority > lowest:
                lanes = {**positions.priorities.get(jobs.priority, {}), jobs.lane: (jobs.oldest, FIRST)}
                positions = structs.replace(positions, priorities={**positions.priorities, jobs.priority: lanes})
        return positions, spans

    def just_before(self) -> list[Span]:
        """Spans of jobs that were committed a little late, before every position."""
        return [
            span
            for priority, lanes in self.priorities.items()
            for lane, place in lanes.items()
            if (span := _span_before(place, EarlierJobs(*lane, priority))) is not None
        ]

    def without(self, route: LaneRoute) -> LanePositions:
        """Drop the positions of a route: nothing was there."""
        gone = {(each.priority, (each.queue, each.kind)) for each in route.positions}
        return self._only(lambda priority, lane: (priority, lane) not in gone)

    def without_unused(self) -> LanePositions:
        """Drop positions at which nothing was claimed, if there are many: most probably, nothing is there."""
        if sum(map(len, self.priorities.values())) <= MAX_POSITIONS:
            return structs.replace(self, used=frozenset())
        return structs.replace(self._only(lambda priority, lane: (priority, lane) in self.used), used=frozenset())

    def _only(self, keeps: Any) -> LanePositions:
        priorities = {
            priority: {lane: place for lane, place in lanes.items() if keeps(priority, lane)}
            for priority, lanes in self.priorities.items()
        }
        return structs.replace(self, priorities=priorities)

    def route(
        self, queues: Collection[str], kinds: Collection[str], jobs: int, spans: Sequence[Span] = ()
    ) -> LaneRoute | None:
        """Where to claim *jobs* in the lanes of *queues* and *kinds*; None if no position is known."""
        served_queues, served_kinds = frozenset(queues), frozenset(kinds)
        most = MAX_LANES
        if len(queues) * len(kinds) > MAX_LANES:
            most = min(max(MIN_LANES, jobs // JOBS_OF_LANE), MAX_LANES)
        positions = (
            (priority, lane, place)
            for priority in sorted(self.priorities, reverse=True)
            for lane, place in self.priorities[priority].items()
            if lane[0] in served_queues and lane[1] in served_kinds
        )
        known = list(islice(positions, most))
        continues = next(positions, None) is not None
        if not known:
            return None
        lowest = known[-1][0]
        # All jobs of a higher priority come before those of the lowest, of which each lane gives its share.
        last = {lane: place for priority, lane, place in known if priority == lowest}
        share = jobs if len(last) == 1 else 2 + 2 * jobs // len(last)
        others = islice(product(queues, kinds), max(0, most - len(known)))
        entries = [
            *(LanePosition(*lane, priority, *place, jobs) for priority, lane, place in known if priority > lowest),
            *(LanePosition(*lane, lowest, EARLIEST, FIRST, share) for lane in others if lane not in last),
            *(LanePosition(*lane, lowest, *place, share) for lane, place in last.items()),
        ]
        named = {(priority, lane): place for priority, lane, place in known}
        return LaneRoute(entries, continues, _joined(spans, named))


def _before(head: LaneHead) -> Place:
    """The place just before a job."""
    return head.due_at, JobId(head.job_id - 1)


def _span_before(position: Place, jobs: EarlierJobs) -> Span | None:
    """The places of *jobs* that come before a position, if there are any."""
    if jobs.oldest is None or jobs.newest is None:
        start = position[0] - STEP_BACK if position[0] > EARLIEST + STEP_BACK else EARLIEST
        return Span(jobs.lane, jobs.priority, (start, FIRST), position)
    after, until = (jobs.oldest, FIRST), min((jobs.newest, LAST), position)
    return Span(jobs.lane, jobs.priority, after, until) if after < until else None


def _joined(spans: Iterable[Span], positions: Mapping[tuple[int, Lane], Place]) -> list[Span]:
    """One span for each of the *positions* that has any, up to it; the highest priority first."""
    joined: dict[tuple[int, Lane], Span] = {}
    for span in spans:
        key = span.priority, span.lane
        if key not in positions:
            continue
        other = joined.get(key, span)
        until = min(max(span.until, other.until), positions[key])
        joined[key] = structs.replace(span, after=min(span.after, other.after), until=until)
    return sorted((span for span in joined.values() if span.after < span.until), key=lambda span: -span.priority)


def _gaps(positions: Sequence[LanePosition], lowest: int) -> list[Gap]:
    """The priorities from *lowest* on at which a lane has no position."""
    if lowest > HIGHEST_PRIORITY:  # the column of priorities has no higher number
        return []
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
