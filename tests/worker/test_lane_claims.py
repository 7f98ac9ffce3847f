"""Claims of a worker: when it reads its lanes from their start, and when it continues behind the last claim."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta

import pytest

import holdfast
from holdfast.domain.jobs import lane_position
from holdfast.errors import StatementTimeout, StoreUnavailable
from holdfast.store.engine.changes import jobs_in
from holdfast.store.engine.operation import Query
from holdfast.worker import claim_turns, clock, full_claims, lane_claims
from holdfast.worker.backoff import QUICK_S
from holdfast.worker.claim_turns import LEASE_SHARE, MAX_WAIT, PAUSE_S
from holdfast.worker.claim_window import QUICK_ANSWER_S, ClaimRequest
from holdfast.worker.full_claims import (
    FEW_LANES,
    FULL_FACTOR,
    FULL_INTERVAL_S,
    MAX_FULL_INTERVAL_S,
    PAUSE_FACTOR,
    SLOW_READ_S,
    STEP_BACK,
)
from tests.support.backends import available, open_database
from tests.support.processes import wait_until

#: The session that waits for its turn, and its end.
WAITING = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'"
END = "SELECT pg_terminate_backend(%s)"
POSTGRES = next(name for name in available() if name != "sqlite")


class Lanes:
    """Claims on a store, with a clock that the test moves."""

    def __init__(self, app, monkeypatch):
        self.now = 1000.0
        #: Seconds that a full claim takes.
        self.cost = 0.0
        #: And the answer to a claim that continues.
        self.answer_cost = 0.0
        monkeypatch.setattr(clock, "now", lambda: self.now)
        self.store = app.store
        self.claims = app.worker().services.claimer.service._lanes
        self.begun = []
        self.calls = []
        #: The longest wait for a turn of each claim, except for those of few jobs.
        self.turns = []
        #: How often the first jobs of lanes were searched.
        self.searches = 0
        heads = self.store.leases.lane_heads
        claim, few, onward = (getattr(self.store.leases, name) for name in ("claim", "claim_few", "claim_onward"))

        def full(*args, **options):
            self.calls.append("full")
            self.turns.append(options.get("turn"))
            self.now += self.cost
            return claim(*args, **options)

        def for_free_slots(*args, **options):
            self.calls.append("few")
            self.now += self.cost
            return few(*args, **options)

        def searched(*args):
            self.searches += 1
            self.now += self.cost
            return heads(*args)

        monkeypatch.setattr(self.store.leases, "lane_heads", searched)

        def continued(*args, **options):
            self.calls.append("onward")
            self.turns.append(options.get("turn"))
            receive = onward(*args, **options)

            def leases():
                self.calls.append("answer")
                self.now += self.answer_cost
                return receive()

            return leases

        new = self.store.leases.claim_new

        def new_jobs(*args, **options):
            self.calls.append("new")
            return new(*args, **options)

        monkeypatch.setattr(self.store.leases, "claim_new", new_jobs)
        monkeypatch.setattr(self.store.leases, "claim", full)
        monkeypatch.setattr(self.store.leases, "claim_few", for_free_slots)
        monkeypatch.setattr(self.store.leases, "claim_onward", continued)

    def claim(self, jobs=2, **options):
        """Claim and return how; the runs are recorded in ``begun``."""
        self.stream(jobs, stream=False, **options)
        return [each for each in self.calls if each != "answer"]

    def stream(self, jobs=2, *, stream=True, only_new=False, **options):
        """Claim, perhaps before the last answer is there; return what was sent and received."""
        self.calls.clear()
        values = {"leases": dict.fromkeys(["step", "other"], timedelta(minutes=1)), "short": ["step"]}
        values |= {"suspects": (1, 1), "limits": False, "autoscaled": (), "unfinished": (), "free": jobs, "ahead": 0}
        request = ClaimRequest(**{**values, **options})
        answer = self.claims.claim(request, self.begin, stream=stream, only_new=only_new)
        claimed = [] if answer is None else answer.leases
        assert claimed == self.begun[len(self.begun) - len(claimed) :]
        return [*self.calls]

    def begin(self, leases, sent_at):
        self.begun.extend(leases)


@pytest.fixture(params=[POSTGRES])
def database(request, tmp_path):
    with open_database(request.param, tmp_path, real_time=True) as database:
        yield database


@pytest.fixture
def app(database):
    with holdfast.Holdfast(database.url) as app:

        @app.job()
        def step(n: int) -> None: ...

        @app.job()
        def other() -> None: ...

        yield app


@contextmanager
def taken_turn(app):
    """Another connection has the turn."""
    with app.store.backend.transaction() as other:
        turn = Query("take_turn", {"queues": ["default"], "milliseconds": 50})
        statements = app.store.backend.statements
        other.execute(statements.text(turn), statements.arguments(turn))
        yield other


@pytest.fixture
def lanes(app, monkeypatch):
    lanes = Lanes(app, monkeypatch)
    yield lanes
    lanes.claims.finish(lanes.begin)


def put(app, count):
    return [each.id for each in app.store.jobs.enqueue_many([app.request("step", {"n": n}, {}) for n in range(count)])]


def test_a_busy_worker_continues_until_a_full_claim_is_due(app, lanes):
    jobs = put(app, 10)
    assert [lanes.claim(), lanes.claim()] == [["few"], ["onward"]]
    lanes.now += FULL_INTERVAL_S
    assert [lanes.claim(), lanes.claim()] == [["full"], ["onward"]]
    assert [lease.job_id for lease in lanes.begun] == jobs[:8]


@pytest.mark.parametrize(("cost", "interval"), [(0.04, 0.04 * FULL_FACTOR), (9.0, MAX_FULL_INTERVAL_S)])
def test_a_busy_worker_spends_little_time_on_full_claims(app, lanes, cost, interval):
    """It continues for many times as long, but not for more than ten seconds: jobs may wait before its positions."""
    put(app, 10)
    lanes.cost = cost
    lanes.claim()
    lanes.now += interval - 0.01
    assert lanes.claim() == ["onward"]
    lanes.now += 0.02
    assert lanes.claim() == ["full"]


def test_a_worker_with_too_few_jobs_reads_its_lanes_from_their_start(app, lanes):
    """At once, for the jobs that are missing, and in its next claims."""
    jobs = put(app, 3)
    lanes.claim()
    (early,) = put(app, 1)
    with app.store.backend.transaction() as connection:
        connection.execute(f"UPDATE holdfast.live SET due_at = due_at - interval '1 hour' WHERE id = {early}".encode())
    assert lanes.claim() == ["onward", "full"]
    assert [lease.job_id for lease in lanes.begun] == [*jobs, early]
    assert [lanes.claim(), lanes.claim()] == [["onward", "full"], ["few"]]


def test_after_a_slow_full_claim_a_worker_continues_for_some_time(app, lanes):
    """Also when it finds too few jobs: the next full claim would read the same entries again."""
    put(app, 9)
    lanes.cost = QUICK_S + 0.1
    for _ in range(2):
        assert lanes.claim(4, limits=True) == ["full"]
    lanes.now += 0.1 * PAUSE_FACTOR - 0.01
    assert lanes.claim() == ["onward"]
    lanes.now += 0.02
    assert lanes.claim() == ["full"]


def test_an_idle_worker_claims_for_free_slots_first(app, lanes):
    """What it finds begins; if more may be ready, a claim for all slots and ahead of them follows at once."""
    jobs = put(app, 1)
    assert lanes.claim(2, ahead=3) == ["few"]
    assert lanes.claims.exhausted
    jobs += put(app, 6)
    assert lanes.claim(2, ahead=3) == ["few", "full"]
    assert [lease.job_id for lease in lanes.begun] == jobs[:6]
    assert not lanes.claims.exhausted


def test_an_idle_worker_searches_for_new_jobs_alone(app, lanes):
    """It has claimed the earlier ones before. Jobs may wait there all the same: once a second it reads its lanes."""
    jobs = put(app, 1)
    assert lanes.claim(only_new=True) == ["few"]
    jobs += put(app, 1)
    assert lanes.claim(only_new=True) == ["new"]
    (early,) = put(app, 1)
    move(app, early, seconds=3600)
    assert lanes.claim(only_new=True) == ["new"]
    assert [lease.job_id for lease in lanes.begun] == jobs
    lanes.now += FULL_INTERVAL_S
    assert lanes.claim(only_new=True) == ["few"]
    assert lanes.begun[-1].job_id == early


def test_after_new_jobs_alone_an_idle_worker_soon_reads_its_lanes_from_their_start(app):
    """However long it waits else: only that claim finds jobs that were committed very late."""
    worker = app.worker(slots=8, poll=3600)
    claimer = worker.services.claimer.service
    for only_new in (False, True):
        put(app, 1)
        claimer.on_notify(jobs_in(["default"]))
        assert claimer.tick().processed == 1
        assert (claimer._lanes.full_claim_in is not None) == only_new
    claimer._interval = 3600
    assert claimer._next_in(0) <= FULL_INTERVAL_S
    while worker.tick().processed:
        pass


def test_new_jobs_may_be_committed_late(app, lanes):
    put(app, 1)
    lanes.claim()
    (late,) = put(app, 1)
    move(app, late, seconds=STEP_BACK.total_seconds() / 2)
    assert lanes.claim(only_new=True) == ["new"]
    assert lanes.begun[-1].job_id == late


def test_more_new_jobs_than_free_slots_make_a_worker_busy(app, lanes):
    jobs = put(app, 1)
    lanes.claim()
    jobs += put(app, 5)
    assert lanes.claim(2, only_new=True) == ["new"]
    assert not lanes.claims.exhausted
    assert lanes.claim(2, only_new=True) == ["onward"]
    assert [lease.job_id for lease in lanes.begun] == jobs[:5]


@pytest.mark.parametrize("options", [{"limits": True}, {"suspects": (0, 1)}, {"unfinished": [7]}, {"free": 0}])
def test_with_limits_suspects_or_full_slots_new_jobs_are_not_searched_for_alone(app, lanes, options):
    put(app, 1)
    lanes.claim()
    options = {"free": 2, "ahead": 2, **options}
    assert "new" not in lanes.claim(options.pop("free"), **options, only_new=True)


@pytest.mark.parametrize(
    "options", [{"suspects": (0, 1)}, {"unfinished": [7]}, {"leases": {"step": timedelta(minutes=1)}}]
)
def test_after_a_claim_that_left_jobs_out_a_worker_reads_its_lanes_from_their_start(app, lanes, options):
    """Of other kinds, suspects without room, and jobs whose lost run goes on: they may wait there."""
    put(app, 1)
    lanes.claim(**options)
    assert lanes.claim(only_new=True) == ["few"]
    assert lanes.claim(only_new=True) == ["new"]


def test_a_worker_of_many_lanes_does_not_search_for_new_jobs_alone(app, lanes):
    put(app, 1)
    lanes.claim()
    lanes.claims._served.queues = [f"q{n}" for n in range(FEW_LANES)]
    assert lanes.claim(only_new=True) == ["few"]


def test_after_a_slow_claim_an_idle_worker_reads_its_lanes_once(app, lanes):
    """A claim of few jobs, and then one of many, would read twice what an old transaction keeps in the index."""
    lanes.cost = full_claims.QUICK_CLAIM_S * 2
    assert lanes.claim() == ["few"]
    lanes.cost = 0.0
    assert [lanes.claim(), lanes.claim()] == [["full"], ["few"]]


def test_an_idle_worker_does_not_miss_a_suspect(app, lanes):
    (job,) = put(app, 1)
    with app.store.backend.transaction() as connection:
        connection.execute(f"UPDATE holdfast.live SET losses = 2 WHERE id = {job}".encode())
    assert lanes.claim(2) == ["few", "full"]
    assert [lease.job_id for lease in lanes.begun] == [job]


def test_one_slow_claim_is_an_accident(app, lanes):
    put(app, 1)
    lanes.cost = 5.0
    assert [lanes.claim(2), lanes.claim(2)] == [["few"], ["full"]]


@pytest.mark.parametrize("priority", [-5, 5])
def test_a_job_of_another_priority_is_claimed_although_a_full_claim_is_slow(app, lanes, priority):
    put(app, 3)
    lanes.cost = 5.0
    for _ in range(2):
        lanes.claim(1, limits=True)
    app.store.jobs.enqueue(app.request("other", {}, {"priority": priority}))
    assert lanes.claim() == ["onward", "onward"]
    assert {lease.kind for lease in lanes.begun} == {"step", "other"}


def move(app, job, *, seconds):
    with app.store.backend.transaction() as connection:
        text = f"UPDATE holdfast.live SET due_at = due_at - interval '{seconds} s' WHERE id = {job}"
        connection.execute(text.encode())


@pytest.fixture
def slow(app, lanes):
    """A worker that needs too long to read a lane from its start, behind two jobs of twenty."""
    jobs = put(app, 20)
    lanes.cost = SLOW_READ_S * 2
    for _ in range(2):
        lanes.claim(1, limits=True)
    lanes.cost = 0.0
    return jobs


def test_where_lanes_take_long_to_read_a_search_comes_before_the_claim(app, lanes, slow):
    """A claim that takes as long may be aborted. The positions stay where they are: behind them is much to read."""
    (early,) = put(app, 1)
    move(app, early, seconds=3600)
    assert lanes.claim(2) == ["onward"], "during the pause"
    lanes.now += MAX_FULL_INTERVAL_S + SLOW_READ_S * 2 * PAUSE_FACTOR
    lanes.cost = SLOW_READ_S * 2
    assert lanes.claim(3) == ["onward", "onward"]
    assert lanes.searches == 1
    assert [lease.job_id for lease in lanes.begun[2:]] == [*slow[2:4], early, *slow[4:6]]
    lanes.cost = 0.0
    lanes.now += MAX_FULL_INTERVAL_S + SLOW_READ_S * 2 * PAUSE_FACTOR
    assert lanes.claim(1) == ["onward"]
    assert lanes.searches == 2
    lanes.now += FULL_INTERVAL_S
    assert lanes.claim(1) == ["full"], "the search was quick: full claims are again"


def test_where_lanes_take_long_to_read_a_worker_looks_back_a_little(app, lanes, slow):
    """For jobs that were committed or released late."""
    lanes.claim(2)
    (late,) = put(app, 1)
    with app.store.backend.transaction() as connection:
        text = f"UPDATE holdfast.live SET due_at = (SELECT due_at FROM holdfast.live WHERE id = {slow[0]}) WHERE id = {late}"
        connection.execute(text.encode())
    move(app, late, seconds=STEP_BACK.total_seconds() / 2)
    assert lanes.claim(1) == ["onward"]
    assert lanes.begun[-1].job_id == slow[4], "not at every claim"
    lanes.now += FULL_INTERVAL_S
    assert lanes.claim(1) == ["onward"]
    assert lanes.begun[-1].job_id == late
    assert lanes.claim(2) == ["onward"]
    assert [lease.job_id for lease in lanes.begun[-2:]] == slow[5:7]
    assert not lanes.searches


def test_a_full_claim_that_fails_was_slow(app, lanes, monkeypatch):
    put(app, 9)
    lanes.cost = 5.0
    lanes.claim()

    def fail(*args, **options):
        lanes.now += 5.0
        raise StatementTimeout("it took too long")

    monkeypatch.setattr(app.store.leases, "claim", fail)
    lanes.now += MAX_FULL_INTERVAL_S
    with pytest.raises(StatementTimeout):
        lanes.claim()
    lanes.now += MAX_FULL_INTERVAL_S
    assert lanes.claim() == ["onward"]


@pytest.mark.parametrize(
    "options", [{"limits": True}, {"autoscaled": ("default",)}, {"unfinished": (77,)}, {"suspects": (0, 1)}]
)
def test_what_forbids_single_jobs_needs_a_full_claim(app, lanes, options):
    put(app, 9)
    lanes.claim()
    assert lanes.claim(**options) == ["full"]


def test_a_worker_with_many_lanes_looks_for_their_first_jobs(app, lanes, monkeypatch):
    """Between the claims that read all lanes: those would read thousands of jobs."""
    monkeypatch.setattr(lane_claims, "MANY_LANES", 2)
    jobs = put(app, 3)
    assert lanes.claim(4) == ["full"]
    app.store.jobs.enqueue(app.request("other", {}, {}))
    jobs += put(app, 2)
    assert lanes.claim(4) == ["onward"]
    assert [lease.kind for lease in lanes.begun] == ["step"] * 3 + ["other", "step", "step"]
    assert {lease.job_id for lease in lanes.begun} > set(jobs)
    assert lanes.claim(4) == []
    lanes.now += FULL_INTERVAL_S
    assert lanes.claim(4) == ["full"]


def test_a_worker_with_many_lanes_goes_on_with_the_next_ones(app, lanes, monkeypatch):
    """Lanes that have fewer jobs than expected cost no search: others are known."""
    for name in ("MAX_LANES", "MIN_LANES"):
        monkeypatch.setattr(lane_position, name, 1)
    monkeypatch.setattr(lane_claims, "MANY_LANES", 2)
    put(app, 8)
    app.store.jobs.enqueue_many([app.request("other", {}, {})] * 8)
    assert lanes.claim(8, short=["step", "other"]) == ["full"]
    assert lanes.claim(8, short=["step", "other"]) == ["onward", "onward"]
    assert lanes.searches == 1, "the lane of the last claim has no more jobs, and no other is known"
    put(app, 6)
    app.store.jobs.enqueue_many([app.request("other", {}, {})] * 6)
    lanes.claims._saturated = True
    lanes.claims._positions.begin_at(app.store.leases.lane_heads(["default"], ["step", "other"]))
    assert [lanes.claim(12) for _ in range(2)] == [["onward"]] * 2
    assert [lease.kind for lease in lanes.begun[-12:]] == ["step"] * 6 + ["other"] * 6
    assert lanes.searches == 2, "the test itself searched"


def test_while_full_claims_pause_a_worker_with_many_lanes_passes_over_empty_ones(app, lanes, monkeypatch):
    """No job of another lane waits for the end of the pause."""
    for name in ("MAX_LANES", "MIN_LANES"):
        monkeypatch.setattr(lane_position, name, 1)
    monkeypatch.setattr(lane_claims, "MANY_LANES", 2)
    put(app, 1)
    app.store.jobs.enqueue(app.request("other", {}, {}))
    lanes.claim(2, short=["step", "other"])
    for _ in range(2):
        with lanes.claims._full.backoff.measured():
            lanes.now += SLOW_READ_S
    last = app.store.jobs.enqueue(app.request("other", {}, {})).id
    assert lanes.claim(1, short=["step", "other"]) == ["onward", "onward"]
    assert lanes.begun[-1].job_id == last


def test_a_claim_that_fills_the_slots_leaves_more(app, lanes):
    """What is claimed ahead may end at a job that needs a slot: the next claim comes when a slot is free."""
    put(app, 3)
    lanes.claim(2, ahead=5, short=[])
    assert not lanes.claims.exhausted
    lanes.claim(2, ahead=5, short=[])
    assert lanes.claims.exhausted


def test_large_claims_take_turns(app, lanes, monkeypatch):
    """Small ones do not: they find the jobs for free slots, and those of an idle worker."""
    monkeypatch.setattr(lane_claims, "LARGE_CLAIM", 2)
    put(app, 12)
    assert [lanes.claim(3), lanes.claim(3), lanes.claim(2)] == [["few"], ["onward"], ["onward"]]
    assert lanes.turns == [MAX_WAIT, None]
    hour, second = timedelta(hours=1), timedelta(seconds=1)
    lanes.claim(3, leases={"step": hour, "other": second})
    assert lanes.turns[-1] == second * LEASE_SHARE, "a lease counts from before the wait"


def test_without_its_turn_a_worker_makes_small_claims(app, lanes, monkeypatch):
    """The process that has the turn may be stopped: the others go on, and try again later."""
    monkeypatch.setattr(lane_claims, "LARGE_CLAIM", 2)
    put(app, 20)
    lanes.claim(3)
    lanes.turns.clear()
    with taken_turn(app):
        monkeypatch.setattr(claim_turns, "MAX_WAIT", timedelta(milliseconds=10))
        begun = len(lanes.begun)
        lanes.claim(1, ahead=4)
        assert len(lanes.begun) == begun + 2
        lanes.claim(1, ahead=4)
        assert len(lanes.begun) == begun + 4
    assert lanes.turns == [timedelta(milliseconds=10), None, None]
    lanes.now += PAUSE_S
    lanes.claim(1, ahead=4)
    assert lanes.turns[-1] == timedelta(milliseconds=10)
    assert len(lanes.begun) == begun + 9


@pytest.fixture
def busy(app, lanes, monkeypatch):
    """A worker that has claimed three of thirty jobs, and found more."""
    monkeypatch.setattr(lane_claims, "LARGE_CLAIM", 2)
    jobs = put(app, 30)
    lanes.stream(3)
    assert lanes.stream(3) == ["onward"], "its answer is not awaited"
    assert [lease.job_id for lease in lanes.begun] == jobs[:3]
    return jobs


def test_a_busy_worker_sends_a_claim_before_the_last_answer(busy, lanes):
    """No job comes twice. One claim may overtake the other on the server."""
    assert [lanes.stream(3) for _ in range(3)] == [["onward", "answer"]] * 3
    assert (len(lanes.begun), lanes.claims.in_flight) == (12, 3)
    lanes.claims.finish(lanes.begin)
    assert sorted(lease.job_id for lease in lanes.begun) == busy[:15]
    assert lanes.claims.in_flight == 0


def test_a_claim_is_sent_ahead_only_while_that_is_wanted(busy, lanes):
    assert lanes.stream(3, stream=False) == ["answer"]
    assert lanes.stream(3, stream=False) == ["onward", "answer"]
    assert [lease.job_id for lease in lanes.begun] == busy[:9]


def test_small_claims_are_not_sent_ahead(busy, lanes):
    assert [lanes.stream(2), lanes.stream(2)] == [["answer"], ["onward", "answer"]]


def test_after_a_slow_answer_no_claim_is_sent_ahead(busy, lanes):
    """Other workers wait for their turns."""
    lanes.answer_cost = 2 * QUICK_ANSWER_S
    assert lanes.stream(3) == ["onward", "answer"]
    lanes.answer_cost = 0.0
    assert [lanes.stream(3), lanes.stream(3)] == [["answer"], ["onward", "answer"]]


def test_a_full_claim_that_is_due_comes_after_the_last_answer(busy, lanes):
    lanes.now += FULL_INTERVAL_S
    lanes.stream(3)
    assert [lanes.stream(3), lanes.stream(3)] == [["full"], ["onward"]]
    assert [lease.job_id for lease in lanes.begun] == busy[:9]


def test_after_a_claim_that_found_few_jobs_none_is_sent_ahead(busy, lanes):
    """Other jobs may be ready before the positions."""
    while len(lanes.begun) < len(busy):
        lanes.stream(9)
    lanes.claims.finish(lanes.begin)
    assert sorted(lease.job_id for lease in lanes.begun) == busy
    assert not lanes.claims.exhausted
    assert lanes.stream(9)[0] == "few"
    assert lanes.claims.exhausted


def test_after_a_claim_that_cannot_be_sent_none_is_in_flight(busy, lanes, monkeypatch):
    """The leases of a lost claim are searched for: those of another one must be known by then."""

    def fail(*args, **options):
        raise StoreUnavailable("no connection")

    monkeypatch.setattr(lanes.store.leases, "claim_onward", fail)
    with pytest.raises(StoreUnavailable):
        lanes.stream(3)
    assert [lease.job_id for lease in lanes.begun] == busy[:6], "S16 is broken"
    assert (lanes.claims.in_flight, lanes.claims.streams) == (0, False), "S16 is broken"


def test_after_a_lost_answer_no_claim_is_in_flight(busy, app, lanes):
    with taken_turn(app) as other:
        lanes.stream(3)
        wait_until(lambda: (pid := other.execute(WAITING).fetchone()) and other.execute(END, pid))
    with pytest.raises(StoreUnavailable):
        lanes.stream(3)
    assert [lease.job_id for lease in lanes.begun] == busy[:9]
    assert (lanes.claims.in_flight, lanes.claims.streams) == (0, False)


def test_a_claim_in_flight_waits_for_its_turn(busy, app, lanes, monkeypatch):
    """Without it, it finds nothing, and small claims follow."""
    monkeypatch.setattr(claim_turns, "MAX_WAIT", timedelta(milliseconds=10))
    with taken_turn(app):
        assert [lanes.stream(3) for _ in range(3)] == [["onward", "answer"], ["onward", "answer"], ["answer"]]
        assert [lease.job_id for lease in lanes.begun] == busy[:6]
        assert lanes.stream(3) == ["few"]
    assert [lease.job_id for lease in lanes.begun] == busy[:8]


def test_no_claim_is_sent_ahead_while_many_outcomes_wait(app, monkeypatch):
    """Otherwise the settler falls behind: a drain of 150,000 jobs ended with 11,000 unwritten outcomes."""
    monkeypatch.setattr(lane_claims, "LARGE_CLAIM", 2)
    monkeypatch.setattr("holdfast.worker.claimer.MAX_UNSETTLED", 20)
    put(app, 200)
    worker = app.worker(slots=4)
    claimer, settler = (worker.services.claimer.service, worker.services.settler.service)
    claimer._run_times.learn("step", 0.02)
    seen = []
    while len(settler) < 60:
        unsettled = len(settler)
        claimer.tick()
        seen.append((unsettled > 20, claimer._lanes.in_flight > 0))
        assert worker._pool.wait_idle(float("inf"))
    assert seen.count((False, True)) > 0, "none was sent ahead at all"
    assert seen.count((True, True)) == 0
    while worker.tick().processed:
        pass


def test_on_sqlite_every_claim_is_full(tmp_path, monkeypatch):
    """Its indexes keep no entries of jobs that are gone."""
    with holdfast.Holdfast(f"sqlite:///{tmp_path}/jobs.db") as app:

        @app.job()
        def step(n: int) -> None: ...

        lanes = Lanes(app, monkeypatch)
        put(app, 9)
        assert [lanes.claim(), lanes.claim()] == [["full"], ["full"]]
