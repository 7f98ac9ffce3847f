"""Claims of a worker: from the start of every lane, or from the positions that the last claims have reached."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from msgspec import structs

from holdfast.domain.jobs.job import Lease
from holdfast.domain.jobs.lane_position import LanePositions, LaneRoute
from holdfast.worker import clock
from holdfast.worker.claim_turns import LARGE_CLAIM, ClaimTurns
from holdfast.worker.claim_window import ClaimAnswer, ClaimRequest, ClaimWindow
from holdfast.worker.full_claims import FullClaims, Lanes
from holdfast.worker.options import WorkerSetup

#: A worker with this many lanes has many.
MANY_LANES = 200
#: Where a worker knows more positions than it names, this share of a claim is enough to go on with the next ones.
ENOUGH_SHARE = 4

#: Begins the runs of leases; the second value is the time from before their claim was sent.
Begin = Callable[[list[Lease], float], None]
#: Makes a claim; the second value is the longest wait for its turn.
Claim = Callable[[ClaimRequest, timedelta | None], list[Lease]]


class LaneClaims:
    """Claims jobs of the lanes that a worker serves.

    A full claim reads every lane from its start. Between two of them, a busy worker on PostgreSQL continues behind the
    jobs that it claimed last, and so does any worker for a while after a full claim that was slow.
    """

    def __init__(self, setup: WorkerSetup) -> None:
        self._store, self._worker, self._served = setup.store.leases, setup.worker, setup.served
        #: SQLite has no index entries of jobs that are gone, and a full claim is as quick.
        self._onward = not setup.store.backend.single_writer
        self._positions = LanePositions()
        self._saturated = False
        #: The last claim left slots free: there is nothing more to claim.
        self.exhausted = False
        self._full = FullClaims()
        self._turns = ClaimTurns()
        #: Whether claims are sent before the answer to the last one: it got all its jobs, and soon.
        self.streams = False
        self._window = ClaimWindow()

    @property
    def in_flight(self) -> int:
        """The number of jobs that may come with answers that were not received yet."""
        return self._window.jobs

    def claim(self, request: ClaimRequest, begin: Begin, *, stream: bool, only_new: bool = False) -> ClaimAnswer | None:
        """Claim jobs and begin their runs; None: the claim is on its way.

        - *stream*: while more jobs are ready for sure, a claim is sent before the answer to the last one is received.
        - *only_new*: all notifications since the last claim were of new jobs with the default priority.
        """
        if only_new and (since := self._since(request)) is not None:
            return self._claim_new(request, begin, since)
        stream &= self.streams and request.jobs > LARGE_CLAIM and not self._turns.paused
        if len(self._window) and not stream:
            return self.receive(begin)
        route = self._route(request)
        if stream and route is not None:
            with self._nothing_in_flight_after_errors(begin):
                sent_at = clock.now()
                receive = self._send_onward(route, request, self._turns.longest(request.leases.values()))
                self._window.add(request, sent_at, partial(self._turns.run, receive), enough=_enough(request, route))
            return self.receive(begin) if len(self._window) > 1 else None
        return self.receive(begin) if len(self._window) else self._claim_now(request, begin, route)

    def receive(self, begin: Begin) -> ClaimAnswer | None:
        """Receive the answer to the oldest claim that was sent ahead, if there is one, and begin its runs."""
        if not len(self._window):
            return None
        with self._nothing_in_flight_after_errors(begin):
            answer = self._window.receive()
            self._positions.learn(answer.leases)
            begin(answer.leases, answer.sent_at)
        self._saturated, self.exhausted = answer.has_enough, False
        self.streams = answer.is_full and answer.is_quick
        return answer

    def finish(self, begin: Begin) -> None:
        """Receive all claims that were sent ahead."""
        while len(self._window):
            self.receive(begin)

    @contextmanager
    def _nothing_in_flight_after_errors(self, begin: Begin) -> Iterator[None]:
        """After a claim whose answer is lost, its leases are searched for. None of another claim may be among them."""
        try:
            yield
        except BaseException:
            try:
                self.finish(begin)
            finally:
                self.streams = False
            raise

    def _claim_now(self, request: ClaimRequest, begin: Begin, route: LaneRoute | None) -> ClaimAnswer:
        self._full.left(None)
        self.exhausted = False
        if self._turns.paused:
            request = request.at_most(LARGE_CLAIM)
        sent_at, claimed = clock.now(), list[Lease]()
        while route is not None:
            claimed = self._claim_onward(route, request, begin)
            if claimed or not route.continues or self._full.backoff.is_over:
                break
            self._positions.drop(route)
            route = self._route(request)
        enough = _enough(request, route)
        full = route is None or (len(claimed) < enough and self._may_claim_fully(route))
        if full:
            claimed += self._claim_from_start(request.without(len(claimed)), begin)
        answer = ClaimAnswer(request, claimed, sent_at, enough)
        self._saturated = answer.has_enough
        self.exhausted = full and request.free > len(claimed)
        if self.exhausted and request.is_simple:
            self._full.left(self._lanes_of(request))
        self.streams = self._onward and request.jobs > LARGE_CLAIM and answer.is_full and answer.is_quick
        return answer

    def _since(self, request: ClaimRequest) -> datetime | None:
        """From when on to search for new jobs; None: read every lane from its start."""
        if not (self._onward and self.exhausted and request.is_simple and request.free):
            return None
        return self._full.new_since(self._lanes_of(request), self._positions.latest)

    @property
    def full_claim_in(self) -> float | None:
        """Seconds until a full claim must follow one of new jobs alone; None: it was another, or slots are full."""
        return self._full.due_in if self.exhausted else None

    def _lanes_of(self, request: ClaimRequest) -> Lanes:
        return self._served.queues, list(request.leases)

    def _claim_new(self, request: ClaimRequest, begin: Begin, since: datetime) -> ClaimAnswer:
        sent_at = clock.now()
        claimed = self._store.claim_new(
            self._worker, queues=self._served.queues, leases=request.leases, free=request.free, since=since
        )
        self._positions.learn(claimed)
        begin(claimed, sent_at)
        answer = ClaimAnswer(request, claimed, sent_at, enough=request.free, complete=False)
        self._saturated, self.exhausted = answer.has_enough, not answer.has_enough
        self._full.only_new = True
        return answer

    def _route(self, request: ClaimRequest) -> LaneRoute | None:
        """Where to continue; None: read every lane from its start."""
        if not self._onward or not request.is_simple:
            return None
        if self._full.backoff.is_over and (self._full.is_due or not self._saturated):
            return None
        route = self._positions.route(self._served.queues, request.leases, request.jobs)
        if route is not None and (step_back := self._full.step_back()):
            route = route.earlier(step_back)
        return route

    def _may_claim_fully(self, route: LaneRoute) -> bool:
        """Whether a full claim may follow a claim that found too few jobs."""
        return self._full.backoff.is_over or self._store.any_elsewhere(route)

    def _claim_onward(
        self,
        route: LaneRoute,
        request: ClaimRequest,
        begin: Begin,
        *,
        learn: bool = True,
    ) -> list[Lease]:
        sent_at = clock.now()
        claimed = self._in_turn(request, lambda each, turn: self._send_onward(route, each, turn)())
        if learn:
            self._positions.learn(claimed)
        begin(claimed, sent_at)
        return claimed

    def _send_onward(
        self, route: LaneRoute, request: ClaimRequest, turn: timedelta | None
    ) -> Callable[[], list[Lease]]:
        """Send a claim. Jobs of claims in flight are behind the positions too: it passes over them."""
        options: dict[str, Any] = {name: getattr(request, name) for name in ("leases", "free", "ahead", "short")}
        return self._store.claim_onward(self._worker, route, turn=turn, **options)

    def _claim_from_start(self, request: ClaimRequest, begin: Begin) -> list[Lease]:
        """Claim from the start of every lane. With many lanes it is quicker to find first where jobs are."""
        queues, kinds = self._served.queues, list(request.leases)
        if not self._onward or not request.is_simple:
            return self._claim_fully(request, begin)
        if self._full.is_slow:
            return self._claim_by_heads(request, begin)
        if self._full.is_due or not self._has_many_lanes(request):
            return self._claim_fully(request, begin)
        with self._full.backoff.measured():
            self._positions.begin_at(self._store.lane_heads(queues, kinds))
        route = self._positions.route(queues, kinds, request.jobs)
        return [] if route is None else self._claim_onward(route, request, begin)

    def _claim_by_heads(self, request: ClaimRequest, begin: Begin) -> list[Lease]:
        """Find the first job of every lane, however long that takes, then claim it, and go on from the positions.

        A slow claim may be aborted. Its leases would also count from before the wait.
        """
        queues, kinds, claimed = self._served.queues, list(request.leases), list[Lease]()
        with self._full.measured():
            early = self._positions.add_heads(self._store.lane_heads(queues, kinds))
        if early is not None:
            claimed = self._claim_onward(early, request.at_most(len(early.positions)), begin, learn=False)
        route = self._positions.route(queues, kinds, request.jobs)
        if route is not None and len(claimed) < request.jobs:
            claimed += self._claim_onward(route, request.without(len(claimed)), begin)
        return claimed

    def _claim_fully(self, request: ClaimRequest, begin: Begin) -> list[Lease]:
        """Claim from the start of every lane. A worker that has found few jobs expects few again."""
        claimed, more = list[Lease](), True
        if self._expects_few(request):
            claimed, more = self._claim_few(request, begin)
        if more and len(claimed) < request.jobs:
            claimed += self._claim_many(request.without(len(claimed)), begin)
        return claimed

    def _expects_few(self, request: ClaimRequest) -> bool:
        if not self._onward or self._saturated or request.limits or self._has_many_lanes(request):
            return False
        return self._full.is_quick and request.free > 0

    def _has_many_lanes(self, request: ClaimRequest) -> bool:
        return len(self._served.queues) * len(request.leases) >= MANY_LANES

    def _claim_few(self, request: ClaimRequest, begin: Begin) -> tuple[list[Lease], bool]:
        """Claim for free slots, and find out whether more jobs may be ready."""
        options = structs.asdict(request)
        few = {name: options[name] for name in ("leases", "free", "suspects", "autoscaled", "unfinished")}
        with self._full.measured() as sent_at:
            answer = self._store.claim_few(self._worker, queues=self._served.queues, build=self._served.build, **few)
        self._positions.learn(answer[0])
        begin(answer[0], sent_at)
        return answer

    def _claim_many(self, request: ClaimRequest, begin: Begin) -> list[Lease]:
        served = self._served

        def claim(request: ClaimRequest, turn: timedelta | None) -> list[Lease]:
            options = structs.asdict(request)
            return self._store.claim(self._worker, queues=served.queues, build=served.build, turn=turn, **options)

        with self._full.measured() as sent_at:
            claimed = self._in_turn(request, claim)
        if self._onward:
            self._positions.drop_unused()
            self._positions.learn(claimed)
        begin(claimed, sent_at)
        return claimed

    def _in_turn(self, request: ClaimRequest, claim: Claim) -> list[Lease]:
        """Make a claim: a large one in its turn, or with fewer jobs if the turn does not come."""
        if request.jobs <= LARGE_CLAIM or not self._onward:
            return claim(request, None)
        turn = self._turns.longest(request.leases.values())
        claimed = self._turns.run(lambda: claim(request, turn))
        return claim(request.at_most(LARGE_CLAIM), None) if self._turns.paused else claimed


def _enough(request: ClaimRequest, route: LaneRoute | None) -> int:
    """With this number of jobs, the next claim can continue: more are ready."""
    return request.least if route is None or not route.continues else max(1, request.least // ENOUGH_SHARE)
