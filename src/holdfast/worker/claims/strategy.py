"""Which claim a worker makes next. Pure: time and answers come in as arguments.

A full claim reads every lane from its start. PostgreSQL keeps the index entries of jobs that are gone while an old
transaction is open, so a busy worker continues behind its last claim instead. docs/adr/0022 has the rules.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import assert_never

from msgspec import Struct, structs

from holdfast.domain.jobs.job import Lease
from holdfast.domain.jobs.lane_position import (
    EARLIEST,
    FIRST,
    STEP_BACK,
    EarlierJobs,
    LanePositions,
    Place,
    Span,
    merged,
)
from holdfast.store.engine.changes import Change, Changes, earlier_jobs, queues_of
from holdfast.worker.claims.request import Answer, Check, Claim, ClaimRequest, Few, Full, Limited, Onward, Search

#: A busy worker reads its lanes from their start this often: jobs may have come before its positions. Its interval is
#: at least this many times as long as the claim (3 % of its time), up to a limit.
FULL_INTERVAL_S, FULL_FACTOR, MAX_FULL_INTERVAL_S = 1.0, 30, 10.0
#: After a notification of earlier jobs without their places, it does so at most ten times a second, and for at most a
#: tenth of its time. Routes take in earlier jobs with known places as often.
EARLIER_INTERVAL_S, EARLIER_FACTOR = 0.1, 10
#: With more places of earlier jobs than this, they may be anywhere: each costs a search in the next claim.
MAX_EARLIER = 100
#: A read of lanes from their start that takes longer than this may read entries of jobs that are gone. Two in a row are
#: followed by a pause of PAUSE_FACTOR times the excess. Ready jobs wait at most for the first limit beside free slots,
#: and for the second while slots are full.
QUICK_READ_S, PAUSE_FACTOR, MAX_PAUSE_S, MAX_BUSY_PAUSE_S = 0.05, 40, 10.0, 60.0
#: After two reads in a row that took longer than this, a search replaces full claims: they may be aborted.
SLOW_READ_S = 0.5
#: After a slower read, a claim of few jobs and a full one would read the same entries twice.
QUICK_FEW_S = 0.01
#: The time of a round trip is the least of the last ROUND_TRIPS claims that continue.
ROUND_TRIPS = 8
#: From this many lanes on, find the ready lanes first: one claim over all of them is slow (82 ms for 4,000 lanes).
MANY_LANES = 200
#: A claim of new jobs alone names each lane: only a worker with at most this many lanes makes one.
FEW_LANES = 20
#: Where a worker knows more positions than it names, this share of a claim is enough to go on with the next ones.
ENOUGH_SHARE = 4
#: A claim of more jobs than this is large: it waits for its turn, so that 50 workers reach 0.8 of the rate of one.
LARGE_CLAIM = 32
#: The longest wait for a turn. A lease counts from before the wait, which may take this share of it. After a wait in
#: vain the worker makes no large claim for a while: the process that has the turn may be stopped.
MAX_TURN_WAIT, LEASE_SHARE, TURN_PAUSE_S = timedelta(seconds=3), 0.25, 30.0

NEVER = float("-inf")
EARLIEST_PLACE = (EARLIEST, FIRST)


class Reads(Struct, frozen=True):
    """Reads of lanes from their start: full claims and searches."""

    #: When the last one ended, and when the last one that read every lane.
    read_at: float = NEVER
    full_at: float = NEVER
    #: The seconds that the last one took, and the one before it.
    took: float = 0.0
    before: float = 0.0
    #: The seconds of the last claims that continued: they read few entries, so the least is a round trip.
    onward: tuple[float, ...] = ()

    @property
    def cost(self) -> float:
        """The seconds of the last one on the server."""
        return max(0.0, self.took - self.round_trip)

    @property
    def usual(self) -> float:
        """The cost of the quicker one of the last two: one slow read is an accident."""
        return max(0.0, min(self.took, self.before) - self.round_trip)

    @property
    def round_trip(self) -> float:
        return min(self.onward, default=0.0)

    def after(self, took: float, now: float, *, full: bool) -> Reads:
        return structs.replace(self, read_at=now, full_at=now if full else self.full_at, took=took, before=self.took)


class Notified(Struct, frozen=True):
    """Notifications since the last claim that took them in."""

    #: New jobs with the default priority that are due just now.
    new: bool = False
    #: Any jobs may be ready, at unknown places.
    anywhere: bool = False
    earlier: tuple[EarlierJobs, ...] = ()


class Round(Struct, frozen=True):
    """The claims that were made for one request."""

    last: Claim | None = None
    #: The jobs of all claims, and of the last one.
    claimed: int = 0
    got: int = 0
    #: The fewest jobs of the round while more are ready; and with this number of them, more are.
    least: int = 0
    enough: int = 0
    #: The answer of a check, or of a claim of few jobs.
    more: bool = False


class Knowledge(Struct, frozen=True):
    """What a worker knows of its lanes."""

    positions: LanePositions = LanePositions()
    #: Where jobs became ready before a position.
    spans: tuple[Span, ...] = ()
    reads: Reads = Reads()
    notified: Notified = Notified()
    round: Round = Round()
    #: The last claims got enough jobs: more are ready.
    saturated: bool = False
    #: The last claims left slots free: nothing more could be claimed.
    exhausted: bool = False
    #: The last claim was of new jobs alone: others may wait.
    only_new: bool = False
    #: The lanes of which a full claim took all jobs, and when.
    emptied: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    emptied_at: float = NEVER
    #: When a route took in earlier jobs last, and when it stepped back.
    earlier_at: float = NEVER
    stepped_back_at: float = NEVER
    turns_missed_at: float = NEVER

    @property
    def is_slow(self) -> bool:
        """Whether to read a lane from its start takes very long."""
        return self.reads.usual > SLOW_READ_S

    def is_paused(self, now: float) -> bool:
        """Whether no lane is read from its start: the last two reads were slow."""
        longest = MAX_BUSY_PAUSE_S if self.saturated else MAX_PAUSE_S
        pause = min(PAUSE_FACTOR * max(0.0, self.reads.usual - QUICK_READ_S), longest)
        return now < self.reads.read_at + pause

    def is_full_claim_due(self, now: float) -> bool:
        """Whether a busy worker should read its lanes from their start."""
        interval = min(max(FULL_INTERVAL_S, FULL_FACTOR * self.reads.cost), MAX_FULL_INTERVAL_S)
        if self.notified.anywhere:
            interval = min(interval, max(EARLIER_INTERVAL_S, EARLIER_FACTOR * self.reads.cost))
        return now >= self.reads.full_at + interval

    def next_full_claim_at(self) -> float | None:
        """When a full claim must follow one of new jobs alone; None: it was another, or slots are full."""
        return self.emptied_at + FULL_INTERVAL_S if self.only_new and self.exhausted else None


def begin(knowledge: Knowledge, changes: Changes, request: ClaimRequest, *, every_queue: bool) -> Knowledge:
    """Begin a round of claims, after notifications. *every_queue*: other queues may be served, too."""
    notified = knowledge.notified
    if changes:
        queues = queues_of(changes)
        unknown = every_queue and not queues <= set(request.queues)
        earlier = [
            jobs for jobs in earlier_jobs(changes) if jobs.queue in request.queues and jobs.kind in request.leases
        ]
        earlier = merged([*notified.earlier, *earlier]) if earlier else [*notified.earlier]
        too_many = len(earlier) > MAX_EARLIER
        notified = Notified(
            new=notified.new or not queues.isdisjoint(request.queues),
            anywhere=notified.anywhere
            or unknown
            or too_many
            or bool(changes & {Change.JOBS, Change.EARLIER, Change.QUEUES}),
            earlier=() if too_many else tuple(earlier),
        )
    return structs.replace(knowledge, notified=notified, round=Round())


def next_claim(knowledge: Knowledge, request: ClaimRequest, now: float) -> Claim | None:
    """The next claim for a request; None: the round is over."""
    done = knowledge.round
    if not request.positions:
        return None if done.last else _from_start(knowledge, request, now)
    if _turns_are_paused(knowledge, now):
        request = request.at_most(LARGE_CLAIM)
    left = request.without(done.claimed)
    if not left.jobs:
        return None
    match done.last:
        case None:
            return _first(knowledge, left, now)
        case Onward():
            return _after_onward(knowledge, done.last, left, now)
        case Search():
            return _onward(knowledge, left, now, final=True)
        case Check():
            return _from_start(knowledge, left, now) if done.more else None
        case Few():
            return Full(left, _turn(knowledge, left, now)) if done.more else None
        case Full() | Limited():
            return None
        case _:
            assert_never(done.last)


def _first(knowledge: Knowledge, request: ClaimRequest, now: float) -> Claim:
    """The first claim of a round."""
    if not request.is_simple:
        return _from_start(knowledge, request, now)
    if (since := _since(knowledge, request, now)) is not None:
        return _only_new(knowledge, request, since)
    if knowledge.is_paused(now) or (knowledge.saturated and not knowledge.is_full_claim_due(now)):
        return _onward(knowledge, request, now) or _from_start(knowledge, request, now)
    return _from_start(knowledge, request, now)


def _from_start(knowledge: Knowledge, request: ClaimRequest, now: float) -> Claim:
    """A claim that reads every lane from its start, or a search that comes before it."""
    lanes = len(request.queues) * len(request.leases)
    many = lanes >= MANY_LANES
    if request.limits:
        return Limited(request, _turn(knowledge, request, now))
    if request.positions and request.is_simple:
        if knowledge.is_slow:
            return Search(request, keeps=True)
        if many and not knowledge.is_full_claim_due(now):
            return Search(request)
    expects_few = request.positions and request.free > 0 and not (many or knowledge.saturated or knowledge.round.last)
    if expects_few and knowledge.reads.cost <= QUICK_FEW_S:
        return Few(request)
    return Full(request, _turn(knowledge, request, now))


def _onward(knowledge: Knowledge, request: ClaimRequest, now: float, *, final: bool = False) -> Onward | None:
    """Continue behind the positions; None if none is known."""
    earlier = knowledge.notified.earlier
    if knowledge.saturated and now < knowledge.earlier_at + EARLIER_INTERVAL_S:
        earlier = ()
    steps_back = not final and knowledge.is_slow and now >= knowledge.stepped_back_at + FULL_INTERVAL_S
    positions, spans = knowledge.positions.with_earlier(earlier)
    if steps_back:
        spans += positions.just_before()
    route = positions.route(*request.lanes, request.jobs, (*knowledge.spans, *spans))
    if route is None:
        return None
    turn = _turn(knowledge, request, now)
    return Onward(request, route, turn, earlier, final=final, steps_back=steps_back)


def _after_onward(knowledge: Knowledge, last: Onward, left: ClaimRequest, now: float) -> Claim | None:
    """What follows a claim behind the positions that may have found too few jobs."""
    if last.final or last.only_new or knowledge.saturated:
        return None
    if not knowledge.is_paused(now):
        return _from_start(knowledge, left, now)
    if not knowledge.round.got and last.route.continues:  # its positions are dropped
        return _onward(knowledge, left, now) or _from_start(knowledge, left, now)
    return Check(left, last.route)


def _since(knowledge: Knowledge, request: ClaimRequest, now: float) -> datetime | None:
    """From when on jobs are new in lanes that the last full claim has emptied; None: others may wait there, too."""
    notified, latest = knowledge.notified, knowledge.positions.latest
    if not knowledge.exhausted or not request.free or latest is None or knowledge.emptied != request.lanes:
        return None
    if (
        notified.anywhere
        or not (notified.new or notified.earlier)
        or any(jobs.priority < 0 for jobs in notified.earlier)
    ):
        return None
    if len(request.queues) * len(request.leases) > FEW_LANES or now >= knowledge.emptied_at + FULL_INTERVAL_S:
        return None
    return latest - STEP_BACK


def _only_new(knowledge: Knowledge, request: ClaimRequest, since: datetime) -> Onward:
    """Claim what became ready since then, and the earlier jobs of notifications."""
    lanes = {(queue, kind): (since, FIRST) for queue in request.queues for kind in request.leases}
    priorities = {0: lanes}
    for jobs in knowledge.notified.earlier:
        priorities[jobs.priority] = {**priorities.get(jobs.priority, {}), jobs.lane: (since, FIRST)}
    positions, spans = LanePositions(priorities).with_earlier(
        jobs for jobs in knowledge.notified.earlier if jobs.oldest
    )
    slots = structs.replace(request, ahead=0)
    route = positions.route(*request.lanes, slots.jobs, spans)
    assert route is not None
    entries = [structs.replace(each, most=slots.jobs) for each in route.positions]
    route = structs.replace(route, positions=entries)
    return Onward(slots, route, earlier=knowledge.notified.earlier, only_new=True)


def _turn(knowledge: Knowledge, request: ClaimRequest, now: float) -> timedelta | None:
    """The longest wait for the turn of a claim; None: it needs none."""
    if not request.positions or request.jobs <= LARGE_CLAIM or _turns_are_paused(knowledge, now):
        return None
    return min(MAX_TURN_WAIT, min(request.leases.values()) * LEASE_SHARE)


def _turns_are_paused(knowledge: Knowledge, now: float) -> bool:
    return now < knowledge.turns_missed_at + TURN_PAUSE_S


def learn(knowledge: Knowledge, claim: Claim, answer: Answer, now: float) -> Knowledge:
    """What the worker knows after an answer."""
    if answer.turn_missed:
        return structs.replace(knowledge, turns_missed_at=now)
    learned = _timed(knowledge, claim, answer.took, now)
    match claim:
        case Onward():
            learned = _learn_onward(learned, claim, answer.leases, now)
        case Search(keeps=True):
            positions, spans = learned.positions.with_heads(answer.heads)
            learned = structs.replace(learned, positions=positions, spans=(*learned.spans, *spans))
        case Search():
            learned = structs.replace(learned, positions=learned.positions.begin_at(answer.heads))
        case Check():
            pass
        case Few():
            learned = structs.replace(learned, positions=learned.positions.behind(answer.leases))
        case Full() | Limited():
            learned = structs.replace(learned, positions=learned.positions.without_unused().behind(answer.leases))
        case _:
            assert_never(claim)
    return _finish(learned, claim, answer, now)


def failed(knowledge: Knowledge, claim: Claim, took: float, now: float) -> Knowledge:
    """What the worker knows after an error: a slow claim may have been aborted."""
    return _timed(knowledge, claim, took, now)


def _timed(knowledge: Knowledge, claim: Claim, took: float, now: float) -> Knowledge:
    reads = knowledge.reads
    match claim:
        case Onward():
            reads = structs.replace(reads, onward=(*reads.onward, took)[-ROUND_TRIPS:])
        case Full() | Limited() | Few() | Search():
            reads = reads.after(took, now, full=not isinstance(claim, Search) or claim.keeps)
        case Check():
            pass
        case _:
            assert_never(claim)
    return structs.replace(knowledge, reads=reads)


def _learn_onward(knowledge: Knowledge, claim: Onward, leases: Collection[Lease], now: float) -> Knowledge:
    """Positions, spans and notifications after a claim behind the positions."""
    if claim.only_new:
        positions, known = knowledge.positions, knowledge.spans
    else:
        positions, spans = knowledge.positions.with_earlier(claim.earlier)
        known = (*knowledge.spans, *spans)
    positions = positions.behind(leases, claim.route)
    if not leases and claim.route.continues and knowledge.is_paused(now):
        positions = positions.without(claim.route)
    notified = structs.replace(knowledge.notified, earlier=() if claim.earlier else knowledge.notified.earlier)
    return structs.replace(
        knowledge,
        positions=positions,
        spans=_spans_left(claim, known, leases),
        notified=notified,
        earlier_at=now if claim.earlier else knowledge.earlier_at,
        stepped_back_at=now if claim.steps_back else knowledge.stepped_back_at,
    )


def _spans_left(claim: Onward, known: Collection[Span], leases: Collection[Lease]) -> tuple[Span, ...]:
    """The spans that may still hold jobs: those behind the last job of a claim that got all it wanted."""
    if not known and not claim.route.spans:
        return ()
    read = claim.route.spans
    others = [span for span in known if not any((span.lane, span.priority) == (r.lane, r.priority) for r in read)]
    if claim.request.free and len(leases) < claim.request.free:
        return tuple(others)
    return (*others, *_unread(read, leases))


def _unread(spans: Collection[Span], leases: Collection[Lease]) -> list[Span]:
    """What is left of *spans* after a claim of *leases*, which were taken in the order of the route."""
    numbers = {(span.priority, span.lane): (number, span) for number, span in enumerate(spans)}
    furthest, last = (NEVER, NEVER), dict[int, Place]()
    for lease in leases:
        number, span = numbers.get((lease.priority, (lease.queue, lease.kind)), (0, None))
        inside = span is not None and span.contains(lease)
        furthest = max(furthest, (-lease.priority, number if inside else len(spans)))
        if inside:
            last[number] = max(last.get(number, EARLIEST_PLACE), (lease.due_at, lease.job_id))
    return [
        structs.replace(span, after=last.get(number, span.after))
        for number, span in enumerate(spans)
        if (-span.priority, number) >= furthest
    ]


def _finish(knowledge: Knowledge, claim: Claim, answer: Answer, now: float) -> Knowledge:
    """Record a claim in its round, and decide what the round has shown so far."""
    before, got = knowledge.round, len(answer.leases)
    least = before.least if before.last else claim.request.least
    enough = before.enough if before.last else least
    if isinstance(claim, Onward):
        enough = max(1, least // ENOUGH_SHARE) if claim.route.continues else least
    made = Round(claim, before.claimed + got, got, least, enough, answer.more)
    left_free = claim.request.free > got
    reads_all = isinstance(claim, Full | Limited | Few)
    complete = reads_all and left_free and not answer.more
    spans, notified = knowledge.spans, knowledge.notified
    if reads_all:
        notified = Notified(earlier=() if complete else notified.earlier)
        spans = () if complete else spans
    elif isinstance(claim, Onward):
        notified = structs.replace(notified, new=False)
    only_new = isinstance(claim, Onward) and claim.only_new
    learned = structs.replace(
        knowledge,
        round=made,
        spans=spans,
        notified=notified,
        saturated=made.claimed >= enough > 0,
        exhausted=left_free and (reads_all or (isinstance(claim, Onward) and (claim.final or claim.only_new))),
        only_new=only_new,
    )
    if complete and claim.request.is_simple:
        return structs.replace(learned, emptied=claim.request.lanes, emptied_at=now)
    return learned if only_new else structs.replace(learned, emptied=((), ()))
