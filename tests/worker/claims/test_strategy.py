"""The choice of the next claim: one row for each rule, without a store and without a clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs

from holdfast.domain.jobs import lane_position
from holdfast.domain.jobs.job import JobId, Lease, Token
from holdfast.domain.jobs.lane_position import STEP_BACK, EarlierJobs, LaneHead, LanePositions
from holdfast.store.engine.changes import JOBS, NO_CHANGES, QUEUES, Change, jobs_at, jobs_in
from holdfast.worker.claims import strategy
from holdfast.worker.claims.request import Answer, Check, ClaimRequest, Few, Full, Limited, Onward, Search
from holdfast.worker.claims.strategy import (
    EARLIER_FACTOR,
    EARLIER_INTERVAL_S,
    FEW_LANES,
    FULL_FACTOR,
    FULL_INTERVAL_S,
    LARGE_CLAIM,
    LEASE_SHARE,
    MANY_LANES,
    MAX_BUSY_PAUSE_S,
    MAX_EARLIER,
    MAX_FULL_INTERVAL_S,
    MAX_PAUSE_S,
    MAX_TURN_WAIT,
    PAUSE_FACTOR,
    QUICK_FEW_S,
    QUICK_READ_S,
    SLOW_READ_S,
    TURN_PAUSE_S,
    Knowledge,
)

START = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def lease(n: int, *, kind: str = "step", priority: int = 0) -> Lease:
    return Lease(JobId(n), Token(1), kind, "default", "{}", 1, False, 0, priority, START + timedelta(seconds=n), None)


def earlier(oldest: int, newest: int, *, kind: str = "step", priority: int = 0) -> EarlierJobs:
    times = START + timedelta(seconds=oldest), START + timedelta(seconds=newest)
    return EarlierJobs("default", kind, priority, *times)


class Lanes:
    """A worker without a store. Each claim gets the next of the answers, and takes as long as the test says."""

    def __init__(self, *, positions: bool = True) -> None:
        self.now = 1000.0
        self.knowledge = Knowledge()
        self.positions = positions
        #: The seconds that a claim takes, by its type.
        self.costs: dict[type, float] = {}
        self.claims: list = []
        self._jobs = 0

    def request(self, free=2, **options) -> ClaimRequest:
        values = {"queues": ["default"], "leases": dict.fromkeys(["step", "other"], MINUTE), "short": ["step"]}
        values |= {"suspects": (1, 1), "limits": False, "autoscaled": (), "unfinished": (), "free": free, "ahead": 0}
        return ClaimRequest(**{**values, "positions": self.positions, **options})

    def claim(self, free=2, *answers, changes=NO_CHANGES, every_queue=False, **options):
        """A round of claims; returns their names. An answer is a number of jobs, or an :class:`Answer`."""
        request, left = self.request(free, **options), list(answers)
        self.knowledge = strategy.begin(self.knowledge, changes, request, every_queue=every_queue)
        self.claims = []
        while (claim := strategy.next_claim(self.knowledge, request, self.now)) is not None:
            self.claims.append(claim)
            answer = left.pop(0) if left else 0
            if not isinstance(answer, Answer):
                more = isinstance(claim, Few) and answer == claim.request.free
                answer = Answer(leases=self._leases(answer), more=more)
            took = self.costs.get(type(claim), 0.0)
            self.now += took
            self.knowledge = strategy.learn(self.knowledge, claim, structs.replace(answer, took=took), self.now)
        return [type(each).__name__ for each in self.claims]

    def _leases(self, count):
        self._jobs += count
        return [lease(n) for n in range(self._jobs - count + 1, self._jobs + 1)]

    @property
    def last(self):
        return self.claims[-1]


@pytest.fixture
def lanes():
    return Lanes()


@pytest.fixture
def busy(lanes):
    """A worker that has found more jobs than it wanted."""
    assert lanes.claim(2, 2, 2, ahead=2) == ["Few", "Full"]
    assert lanes.knowledge.saturated
    return lanes


@pytest.fixture
def idle(lanes):
    """A worker whose last claim has emptied its lanes."""
    assert lanes.claim(2, 1) == ["Few"]
    assert lanes.knowledge.exhausted
    return lanes


@pytest.fixture
def slow(busy):
    """A worker that needs too long to read a lane from its start."""
    busy.costs = dict.fromkeys((Full, Few, Limited, Search), 2 * SLOW_READ_S)
    for _ in range(2):
        busy.now += MAX_BUSY_PAUSE_S
        busy.claim(2, 2, limits=True)
    assert busy.knowledge.is_slow
    return busy


NEW = jobs_in(["default"])


# -- rules -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "knows", "options", "answers", "claims"),
    [
        ("1: a busy worker continues", "busy", {}, [2], ["Onward"]),
        ("2: a worker with too few jobs reads its lanes at once", "busy", {}, [1, 0], ["Onward", "Full"]),
        ("2: an idle worker reads its lanes", "idle", {}, [1], ["Few"]),
        ("3: it expects few; if there may be more, all follow", "idle", {}, [2, 1], ["Few"]),
        ("3: the same for jobs ahead of slots", "idle", {"ahead": 3}, [2, 1], ["Few", "Full"]),
        ("3: nothing is expected ahead of slots alone", "idle", {"free": 0, "ahead": 3}, [0], ["Full"]),
        ("4: limits need their locks", "busy", {"limits": True}, [2], ["Limited"]),
        ("4: the autoscaler leaves commands out", "busy", {"autoscaled": ["default"]}, [2], ["Full"]),
        ("4: a lost run goes on", "busy", {"unfinished": [7]}, [2], ["Full"]),
        ("4: suspects have no room", "busy", {"suspects": (0, 1)}, [2], ["Full"]),
        ("5: new jobs alone are searched from the last claim on", "idle", {"changes": NEW}, [1], ["Onward"]),
        ("5: earlier ones at their places, too", "idle", {"changes": jobs_at([earlier(-9, -9)])}, [1], ["Onward"]),
        ("5: not where any job may be ready", "idle", {"changes": NEW | JOBS}, [1], ["Few"]),
        ("5: nor somewhere earlier", "idle", {"changes": NEW | {Change.EARLIER}}, [1], ["Few"]),
        ("5: nor at a lower priority", "idle", {"changes": jobs_at([earlier(9, 9, priority=-1)])}, [1], ["Few"]),
        ("5: nor without free slots", "idle", {"changes": NEW, "free": 0, "ahead": 2}, [1], ["Full"]),
        ("5: nor of other kinds than before", "idle", {"changes": NEW, "leases": {"step": MINUTE}}, [1], ["Few"]),
        ("5: nor in lanes with a limit", "idle", {"changes": NEW, "limits": True}, [1], ["Limited"]),
        ("5: nor past a suspect without room", "idle", {"changes": NEW, "suspects": (0, 1)}, [1], ["Few"]),
        (
            "6: a notification of any jobs is of a busy worker's next full claim",
            "busy",
            {"changes": JOBS},
            [2],
            ["Onward"],
        ),
        ("7: slow reads are replaced by a search", "slow", {"pause": True}, [Answer()], ["Search", "Onward"]),
        ("7: in the pause a worker continues", "slow", {}, [2], ["Onward"]),
        ("7: and with few jobs looks elsewhere", "slow", {}, [1, Answer(more=False)], ["Onward", "Check"]),
        ("7: and claims there", "slow", {}, [0, Answer(more=True), Answer()], ["Onward", "Check", "Search", "Onward"]),
    ],
)
def test_the_rules(rule, knows, options, answers, claims, request):
    lanes = request.getfixturevalue(knows)
    if options.pop("pause", False):
        lanes.now += MAX_BUSY_PAUSE_S + MAX_FULL_INTERVAL_S
    options = dict(options)
    assert lanes.claim(options.pop("free", 2), *answers, **options) == claims, rule


def test_without_positions_every_claim_is_full():
    """SQLite keeps no entries of jobs that are gone."""
    lanes = Lanes(positions=False)
    assert [lanes.claim(2, 2), lanes.claim(2, 2), lanes.claim(2, 2, limits=True)] == [["Full"], ["Full"], ["Limited"]]


# -- full claims of a busy worker -------------------------------------------------------------


@pytest.mark.parametrize(
    ("cost", "interval"),
    [(0.0, FULL_INTERVAL_S), (0.04, 0.04 * FULL_FACTOR), (9.0, MAX_FULL_INTERVAL_S)],
)
def test_a_busy_worker_spends_little_time_on_full_claims(busy, cost, interval):
    busy.now += FULL_INTERVAL_S
    busy.costs = {Full: cost}
    assert busy.claim(2, 2) == ["Full"]
    busy.now += interval - 0.001
    assert busy.claim(2, 2) == ["Onward"]
    busy.now += 0.002
    assert busy.claim(2, 2) == ["Full"]


@pytest.mark.parametrize("cost", [0.0, 0.03])
@pytest.mark.parametrize("changes", [JOBS, NEW | {Change.EARLIER}, QUEUES])
def test_after_a_notification_without_places_a_busy_worker_soon_makes_a_full_claim(busy, changes, cost):
    """D7: at most ten times a second, and for at most a tenth of its time."""
    busy.now += FULL_INTERVAL_S
    busy.costs = {Full: cost}
    busy.claim(2, 2)
    busy.now += max(EARLIER_INTERVAL_S, EARLIER_FACTOR * cost) - 0.001
    assert busy.claim(2, 2, changes=changes) == ["Onward"]
    busy.now += 0.002
    assert [busy.claim(2, 2), busy.claim(2, 2)] == [["Full"], ["Onward"]], "I17 is broken"


def test_a_notification_of_jobs_elsewhere_changes_nothing(busy):
    busy.now += EARLIER_INTERVAL_S
    assert busy.claim(2, 2, changes=jobs_in(["other"])) == ["Onward"]
    assert not busy.knowledge.notified.anywhere
    claims = busy.claim(2, 2, changes=jobs_in(["other"]), every_queue=True)
    assert claims == ["Full"], "it serves every queue: this one was not read yet"


# -- earlier jobs ----------------------------------------------------------------------------


def test_a_busy_worker_begins_its_next_claim_at_earlier_jobs(busy):
    """D7: its position stays; what is behind it is claimed in the same claim."""
    before = busy.knowledge.positions
    assert busy.claim(2, 2, changes=jobs_at([earlier(1, 2)])) == ["Onward"]
    (span,) = busy.last.route.spans
    assert (span.after[0], span.until[0]) == (START + timedelta(seconds=1), START + timedelta(seconds=2)), (
        "I17 is broken"
    )
    assert [each.job_id for each in busy.last.route.positions if each.kind == "step"] == [
        before.at(0, ("default", "step"))[1]
    ]
    assert busy.claim(2, 2) == ["Onward"]
    assert not busy.last.route.spans, "they were claimed"


def test_earlier_jobs_are_taken_in_at_most_ten_times_a_second(busy):
    """Several notifications become one."""
    busy.claim(2, 2, changes=jobs_at([earlier(1, 1)]))
    busy.claim(2, 2, changes=jobs_at([earlier(2, 2)]))
    assert not busy.last.route.spans
    busy.now += EARLIER_INTERVAL_S
    busy.claim(2, 2, changes=jobs_at([earlier(1, 1), earlier(3, 3)]))
    (span,) = busy.last.route.spans
    assert (span.after[0], span.until[0]) == (START + timedelta(seconds=1), START + timedelta(seconds=3))


def test_earlier_jobs_stay_known_until_a_claim_has_read_past_them(busy):
    """A claim that was filled by some of them goes on behind these."""
    busy.claim(2, 2, changes=NO_CHANGES)
    position = busy.knowledge.positions.at(0, ("default", "step"))
    leases = [lease(2), lease(3)]
    busy.claim(2, Answer(leases=leases), changes=jobs_at([earlier(1, 4)]))
    assert busy.knowledge.positions.at(0, ("default", "step")) == position
    busy.claim(2, Answer(leases=[lease(4), lease(99)]))
    (span,) = busy.last.route.spans
    assert span.after == (leases[-1].due_at, 3)
    busy.claim(2, 2)
    assert not busy.last.route.spans


def test_earlier_jobs_are_not_forgotten_behind_a_claim_of_better_ones(busy):
    better = [lease(n, priority=5) for n in (50, 51)]
    busy.claim(2, Answer(leases=better[:1]), 1)
    busy.now += EARLIER_INTERVAL_S
    busy.claim(2, Answer(leases=better), changes=jobs_at([earlier(1, 2)]))
    busy.claim(2, 2)
    assert len(busy.last.route.spans) == 1


def test_too_many_places_of_earlier_jobs_may_be_anywhere(busy):
    """Each costs a search: one full claim is cheaper."""
    busy.now += EARLIER_INTERVAL_S
    assert busy.claim(2, 2, changes=jobs_at(earlier(1, 1, priority=n) for n in range(MAX_EARLIER))) == ["Onward"]
    busy.now += EARLIER_INTERVAL_S
    assert busy.claim(2, 2, changes=jobs_at(earlier(1, 1, priority=n) for n in range(MAX_EARLIER + 1))) == ["Full"]


def test_an_idle_worker_takes_earlier_jobs_of_a_higher_priority(idle):
    """At their places, before the new jobs of the default priority."""
    idle.claim(2, 1, changes=jobs_at([earlier(1, 1, priority=5), earlier(2000, 2000, kind="other", priority=3)]))
    route = idle.last.route
    assert [(each.priority, each.kind) for each in route.positions[:2]] == [(5, "step"), (3, "other")]
    assert {each.most for each in route.positions} == {2}
    assert [gap.low for gap in route.better if gap.high == 2**31 - 1] == [6, 4]


def test_a_claim_that_fails_keeps_its_notifications(busy):
    """The next one takes them in."""
    request = busy.request()
    busy.knowledge = strategy.begin(busy.knowledge, jobs_at([earlier(1, 1)]), request, every_queue=False)
    claim = strategy.next_claim(busy.knowledge, request, busy.now)
    busy.knowledge = strategy.failed(busy.knowledge, claim, 0.1, busy.now)
    busy.claim(2, 2)
    assert len(busy.last.route.spans) == 1


# -- idle workers ----------------------------------------------------------------------------


def test_an_idle_worker_continues_a_little_before_its_last_job(idle):
    """Some jobs are committed late. What it finds beyond its slots makes it busy."""
    assert idle.claim(2, 2, changes=NEW) == ["Onward"]
    assert {each.due_at for each in idle.last.route.positions} == {START + timedelta(seconds=1) - STEP_BACK}
    assert idle.claim(2, 2, changes=NEW) == ["Onward"]
    assert not idle.last.only_new


def test_a_claim_of_new_jobs_is_followed_by_a_full_one_within_a_second(idle):
    """Only that finds jobs that were committed very late."""
    assert idle.knowledge.next_full_claim_at() is None
    idle.claim(2, 1, changes=NEW)
    assert idle.knowledge.next_full_claim_at() == idle.now + FULL_INTERVAL_S
    idle.now += FULL_INTERVAL_S
    assert idle.claim(2, 1, changes=NEW) == ["Few"]


def test_a_worker_of_many_lanes_does_not_search_for_new_jobs_alone(lanes):
    queues = [f"q{n}" for n in range(FEW_LANES)]
    lanes.claim(2, 1, queues=queues)
    assert lanes.claim(2, 1, queues=queues, changes=jobs_in(["q1"])) == ["Few"]


def test_after_a_slow_claim_an_idle_worker_reads_its_lanes_once(lanes):
    """A claim of few jobs, and then one of many, would read twice what an old transaction keeps in the index."""
    lanes.costs = {Few: 2 * QUICK_FEW_S}
    assert [lanes.claim(2), lanes.claim(2), lanes.claim(2)] == [["Few"], ["Full"], ["Few"]]


# -- pauses ----------------------------------------------------------------------------------


def test_one_slow_read_is_an_accident(idle):
    idle.costs = {Few: 5.0}
    assert idle.claim(2) == ["Few"]
    assert not idle.knowledge.is_paused(idle.now)


@pytest.mark.parametrize(
    ("cost", "pause"), [(QUICK_READ_S, 0.0), (QUICK_READ_S + 0.1, 0.1 * PAUSE_FACTOR), (3.0, MAX_PAUSE_S)]
)
def test_beside_free_slots_a_pause_has_a_limit(idle, cost, pause):
    """D6, I18: whatever became ready before the positions waits no longer beside a free slot."""
    idle.costs = {Full: cost, Few: cost}
    idle.claim(2), idle.claim(2)
    ended = idle.now
    assert not idle.knowledge.is_paused(ended + pause + 0.001), "I18 is broken"
    assert not pause or idle.knowledge.is_paused(ended + pause - 0.001)
    assert not idle.knowledge.saturated


def test_while_slots_are_full_a_pause_is_longer(slow):
    assert slow.knowledge.saturated
    assert slow.knowledge.is_paused(slow.now + MAX_PAUSE_S + 1)
    assert not slow.knowledge.is_paused(slow.now + MAX_BUSY_PAUSE_S)


def test_a_long_way_to_the_server_is_no_slow_read(lanes):
    """D6: claims that continue take as long. The server itself is quick."""
    lanes.costs = dict.fromkeys((Full, Few, Onward), 0.6)
    lanes.claim(2, 2, 2, ahead=2), lanes.claim(2, 1, 0), lanes.claim(2, 1, changes=NEW)
    known = lanes.knowledge
    assert (known.reads.cost, known.is_slow, known.is_paused(lanes.now)) == (0, False, False), "I18 is broken"
    assert lanes.claim(2, 0) == ["Few"]


def test_a_read_that_fails_was_slow(busy):
    busy.costs = {Full: 5.0}
    busy.now += FULL_INTERVAL_S
    busy.claim(2, 2)
    busy.now += MAX_FULL_INTERVAL_S
    claim = strategy.next_claim(
        strategy.begin(busy.knowledge, NO_CHANGES, busy.request(), every_queue=False), busy.request(), busy.now
    )
    busy.knowledge = strategy.failed(busy.knowledge, claim, 5.0, busy.now)
    assert busy.knowledge.is_slow
    assert busy.claim(2, 2) == ["Onward"]


# -- searches --------------------------------------------------------------------------------


def test_a_search_keeps_the_positions_and_finds_what_is_before_them(slow):
    """Behind them is much to read, and before them is more."""
    position = slow.knowledge.positions.at(0, ("default", "step"))
    heads = [
        LaneHead("default", kind, 0, START - timedelta(hours=1), JobId(n)) for n, kind in ((7, "step"), (8, "other"))
    ]
    slow.now += MAX_BUSY_PAUSE_S + MAX_FULL_INTERVAL_S
    early = Lease(JobId(7), Token(1), "step", "default", "{}", 1, False, 0, 0, heads[0].due_at, None)
    assert slow.claim(2, Answer(heads=heads), Answer(leases=[early, lease(99)])) == ["Search", "Onward"]
    (span,) = slow.last.route.spans
    assert (span.after, span.until) == ((heads[0].due_at, 6), (heads[0].due_at, 8))
    assert slow.knowledge.positions.at(0, ("default", "other")) == (heads[1].due_at, 7)
    assert slow.knowledge.positions.at(0, ("default", "step")) != position
    slow.costs = {}
    slow.now += MAX_BUSY_PAUSE_S + MAX_FULL_INTERVAL_S
    assert slow.claim(2, Answer(), 2) == ["Search", "Onward"]
    slow.now += FULL_INTERVAL_S
    assert slow.claim(2, 2) == ["Full"], "the search was quick: full claims are again"


def test_while_reads_are_slow_a_claim_steps_back_once_a_second(slow):
    """Jobs that were committed a little late are not notified of."""
    slow.claim(2, 2)
    slow.claim(2, 2)
    assert not slow.last.route.spans
    slow.now += FULL_INTERVAL_S
    slow.claim(2, 2)
    (span,) = slow.last.route.spans
    assert span.until[0] - span.after[0] == STEP_BACK


def test_a_worker_with_many_lanes_finds_the_ready_ones_first(lanes):
    """Between the claims that read all lanes: those would read thousands of jobs."""
    many = {"queues": [f"q{n}" for n in range(MANY_LANES)], "leases": {"step": MINUTE}}
    assert lanes.claim(4, 3, **many) == ["Full"]
    head = LaneHead("q7", "step", 0, START, JobId(5))
    assert lanes.claim(4, Answer(heads=[head]), 1, **many) == ["Search", "Onward"]
    assert [each.queue for each in lanes.last.route.positions if each.job_id] == ["q7"]
    lanes.now += FULL_INTERVAL_S
    assert lanes.claim(4, 3, **many) == ["Full"]


def test_a_worker_with_many_lanes_goes_on_with_the_next_ones(busy, monkeypatch):
    """While they give a quarter of the jobs, no search follows."""
    for name in ("MAX_LANES", "MIN_LANES"):
        monkeypatch.setattr(lane_position, name, 1)
    lanes = {(queue, kind): (START, JobId(0)) for queue in ("default",) for kind in ("step", "other")}
    busy.knowledge = structs.replace(busy.knowledge, positions=LanePositions({0: lanes}))
    kinds = []
    for _ in range(2):
        assert busy.claim(8, 2) == ["Onward"]
        kinds += [each.kind for each in busy.last.route.positions]
    assert sorted(kinds) == ["other", "step"]
    assert busy.claim(8, 1, 0) == ["Onward", "Full"]


def test_in_a_pause_a_worker_with_many_lanes_passes_over_empty_ones(slow, monkeypatch):
    """No job of another lane waits for the end of the pause."""
    for name in ("MAX_LANES", "MIN_LANES"):
        monkeypatch.setattr(lane_position, name, 1)
    lanes = {("default", kind): (START, JobId(0)) for kind in ("step", "other")}
    slow.knowledge = structs.replace(slow.knowledge, positions=LanePositions({0: lanes}))
    assert slow.claim(1, 0, 1) == ["Onward", "Onward"]


# -- turns -----------------------------------------------------------------------------------


def test_large_claims_wait_for_their_turns(busy):
    """Small ones do not: they find the jobs for free slots, and those of an idle worker."""
    hour, second = timedelta(hours=1), timedelta(seconds=1)
    assert (busy.claim(2, 2), busy.last.turn) == (["Onward"], None)
    large = LARGE_CLAIM + 1
    busy.claim(large, large, leases={"step": hour, "other": hour})
    assert busy.last.turn == MAX_TURN_WAIT
    busy.claim(large, large, leases={"step": hour, "other": second})
    assert busy.last.turn == second * LEASE_SHARE, "a lease counts from before the wait"


def test_without_its_turn_a_worker_makes_small_claims(busy):
    """The process that has the turn may be stopped: the others go on, and try again later."""
    large = LARGE_CLAIM + 9
    assert busy.claim(large, Answer(turn_missed=True), LARGE_CLAIM) == ["Onward", "Onward"]
    assert [(each.request.jobs, each.turn is None) for each in busy.claims] == [(large, False), (LARGE_CLAIM, True)]
    busy.claim(large, LARGE_CLAIM)
    assert (busy.last.request.jobs, busy.last.turn) == (LARGE_CLAIM, None)
    busy.now += TURN_PAUSE_S
    busy.claim(large, large)
    assert busy.last.turn is not None


def test_a_claim_that_fills_the_slots_leaves_more(lanes):
    """What is claimed ahead may end at a job that needs a slot: the next claim comes when a slot is free."""
    lanes.claim(2, 2, 0, ahead=5)
    assert not lanes.knowledge.exhausted
    lanes.claim(2, 1, 0, ahead=5)
    assert lanes.knowledge.exhausted


def test_a_check_that_finds_nothing_leaves_nothing_exhausted(slow):
    """Jobs may wait before the positions."""
    assert slow.claim(2, 0, Answer(more=False)) == ["Onward", "Check"]
    assert isinstance(slow.last, Check)
    assert not slow.knowledge.exhausted
