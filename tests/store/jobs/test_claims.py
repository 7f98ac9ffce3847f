"""Claims from known positions, claims of few jobs, and turns of claims, which only PostgreSQL has."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from itertools import product

import psycopg
import pytest

from holdfast.domain.fleet.stop_switch import StopMode
from holdfast.domain.jobs.job import OnLost, WorkerId
from holdfast.domain.jobs.lane_position import FIRST, EarlierJobs, LanePositions
from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.verdict import Done
from holdfast.errors import JobLocked
from holdfast.store.engine.operation import ById, Query
from holdfast.store.jobs.settlement import Settlement
from tests.support.backends import available, open_database
from tests.support.jobs import WORKER, lapse, put, take
from tests.support.processes import wait_until

MINUTE = timedelta(minutes=1)
KINDS, QUEUES = ("mail", "post"), ("default", "other")


@pytest.fixture(params=[name for name in available() if name != "sqlite"])
def database(request, tmp_path):
    with open_database(request.param, tmp_path) as database:
        yield database


def begin(store, count: int = 1, **options) -> LanePositions:
    """Claim the first jobs from the start of their lanes; returns the positions behind them."""
    return LanePositions().behind(take(store, count, kinds=KINDS, queues=QUEUES, limits=False, **options))


def onward(store, positions: LanePositions, jobs: int = 100, *, ahead=0, short=KINDS, worker=WORKER, spans=()):
    route = positions.route(QUEUES, KINDS, jobs, spans)
    leases = dict.fromkeys(KINDS, MINUTE)
    return store.leases.claim_onward(worker, route, leases=leases, free=jobs - ahead, ahead=ahead, short=short)


def ids(leases) -> list[int]:
    return [lease.job_id for lease in leases]


def test_a_claim_continues_behind_the_last_one(store):
    jobs = [put(store) for _ in range(5)]
    claimed = onward(store, begin(store, 2), 2)
    assert ids(claimed) == jobs[2:4]
    assert {(lease.token, lease.payload, lease.attempt) for lease in claimed} == {(1, "{}", 1)}
    assert [store.views.get(job).worker for job in jobs] == [WORKER] * 4 + [None]


def test_a_job_before_the_position_waits_for_a_full_claim(store):
    first, second, third = put(store), put(store), put(store)
    leases = take(store, 2, limits=False)
    positions = LanePositions().behind(leases)
    store.leases.release(leases[:1])
    assert ids(onward(store, positions)) == [third]
    assert ids(take(store, 9, limits=False)) == [first]
    assert store.views.get(second).token == 1


@pytest.mark.parametrize("options", [{}, {"queue": "other"}, {"kind": "post"}, {"kind": "post", "queue": "other"}])
def test_nothing_is_claimed_past_a_higher_priority(store, options):
    """I17: of the same lane, or of one in which the worker has claimed nothing yet."""
    put(store), put(store)
    positions = begin(store)
    put(store, **{"kind": "mail", **options}, priority=1)
    assert onward(store, positions) == [], "I17 is broken"


@pytest.mark.parametrize("options", [{"queue": "other"}, {"kind": "post"}])
def test_lanes_in_which_nothing_was_claimed_begin_at_their_start(store, options):
    put(store)
    positions = begin(store)
    job = put(store, **{"kind": "mail", **options})
    assert ids(onward(store, positions)) == [job]


@pytest.mark.parametrize("options", [{"priority": 1}, {"priority": -1}, {"kind": "post", "priority": -1}])
def test_jobs_of_other_priorities_are_found(store, options):
    put(store), put(store)
    positions = begin(store)
    assert not store.leases.any_elsewhere(positions.route(QUEUES, KINDS, 9))
    put(store, **{"kind": "mail", **options})
    assert store.leases.any_elsewhere(positions.route(QUEUES, KINDS, 9))


def test_the_first_job_of_each_lane_is_listed(store):
    put(store), put(store, queue="other")
    best, other = put(store, priority=5), put(store, kind="post")
    put(store, kind="unknown"), put(store, delay=MINUTE)
    heads = {(each.queue, each.kind): each for each in store.leases.lane_heads(QUEUES, KINDS)}
    assert {lane: each.priority for lane, each in heads.items()} == {
        ("default", "mail"): 5,
        ("default", "post"): 0,
        ("other", "mail"): 0,
    }
    assert (heads["default", "mail"].job_id, heads["default", "post"].job_id) == (best, other)


def test_known_priorities_come_in_their_order(store):
    low = [put(store) for _ in range(3)]
    high = [put(store, priority=5) for _ in range(3)]
    positions = begin(store, 4)
    more = [put(store, priority=5), put(store, priority=5)]
    assert ids(onward(store, positions, 3)) == [*more, low[1]]
    assert high


def test_queues_with_a_limit_or_a_pause_are_left_out(store):
    put(store), put(store), put(store, queue="other"), put(store, queue="other")
    positions = begin(store, 1)
    positions = positions.behind(take(store, 1, queues=("other",), limits=False))
    store.queues.pause("default")
    store.queues.set_limits("other", limit=1)
    assert onward(store, positions) == [], "I17 is broken"


def test_a_better_job_of_a_paused_queue_holds_up_no_other(store):
    put(store)
    second = put(store)
    positions = begin(store)
    put(store, queue="other", priority=5)
    store.queues.pause("other")
    assert ids(onward(store, positions)) == [second]
    assert not store.leases.any_elsewhere(positions.route(QUEUES, KINDS, 9))


def test_a_stopped_store_starts_nothing(store):
    put(store), put(store)
    positions = begin(store)
    store.stop_switch.set(StopMode.DRAIN, actor="ada")
    assert onward(store, positions) == [], "I17 is broken"


def test_suspects_and_jobs_of_one_build_are_left_for_a_full_claim(store, clock):
    put(store)
    suspect = put(store)
    take(store, 9, limits=False)
    lapse(clock)
    store.leases.take_over(limit=9)
    positions = begin(store, 1)
    assert onward(store, positions) == [], "I17 is broken"
    assert ids(take(store, 9, limits=False)) == [suspect]


def test_ahead_of_slots_the_same_rules_hold(store):
    """Nothing is prefetched past a better job that needs a slot."""
    jobs = [put(store), put(store), put(store, on_lost=OnLost.HOLD), put(store)]
    assert ids(onward(store, begin(store), 3, ahead=3)) == jobs[1:2]


def test_two_workers_never_get_one_job(store, database):
    """A row that another transaction has locked is passed over."""
    jobs = [put(store) for _ in range(4)]
    positions = begin(store)
    with psycopg.connect(database.url) as other:
        other.execute(f"SELECT FROM holdfast.live WHERE id = {jobs[1]} FOR UPDATE".encode())
        assert ids(onward(store, positions, 1, worker=WorkerId("w2"))) == jobs[2:3]
    assert ids(onward(store, positions)) == [jobs[1], jobs[3]]


def test_each_kind_has_its_lease(store):
    put(store), put(store)
    positions = begin(store)
    leases = {"mail": 7 * MINUTE, "post": MINUTE}
    route = positions.route(QUEUES, KINDS, 9)
    (lease,) = store.leases.claim_onward(WORKER, route, leases=leases, free=1, ahead=0, short=())
    job = store.views.get(lease.job_id)
    assert job.lease_expires_at - job.claimed_at == 7 * MINUTE


def test_jobs_that_are_gone_cost_a_claim_nothing(store, database):
    """An old transaction may still see them, so that the index keeps their entries; the scan begins behind them."""
    gone = 3000
    store.jobs.enqueue_many([NewJob(kind="mail")] * (gone + 10))
    with psycopg.connect(database.url) as old:
        old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT FROM holdfast.live LIMIT 1")
        leases = take(store, gone, limits=False)
        store.leases.settle_many([Settlement(lease, Done()) for lease in leases])
        behind_the_first = blocks_of_search(store, database, leases[:1])
        behind_the_last = blocks_of_search(store, database, leases)
    assert behind_the_last < behind_the_first / 2, "the scan reads jobs that are gone"


def blocks_of_search(store, database, claimed) -> int:
    """The blocks that the search for ten jobs reads if the worker has *claimed* these; nothing is kept."""
    columns = LanePositions().behind(claimed).route(QUEUES, KINDS, 10).columns(KINDS, 10)
    values = {"worker": WORKER, "free": 10, "ahead": 0, "lease_duration": MINUTE, **columns}
    query = Query("claim_onward", {**values, "kinds": ById(id=["mail"], lease_duration=[MINUTE])})
    statements = store.backend.statements
    with psycopg.connect(database.url) as connection:
        text = b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + statements.text(query)
        connection.execute("SET enable_seqscan = off")
        (((explained,),),) = connection.execute(text, statements.arguments(query)).fetchall()
        connection.rollback()
    assert explained["Plan"]["Actual Rows"] == 10
    (search,) = [node for node in explained["Plan"]["Plans"] if node.get("Subplan Name") == "CTE locked"]
    return search["Shared Hit Blocks"] + search["Shared Read Blocks"]


# -- few jobs -------------------------------------------------------------------------------


def few(store, free: int, *, worker=WORKER, suspects=(1, 1), **options):
    """The ids of the jobs that were claimed, and whether more may be ready."""
    leases = dict.fromkeys(KINDS, MINUTE)
    claimed, more = store.leases.claim_few(
        worker, queues=QUEUES, leases=leases, free=free, suspects=suspects, **options
    )
    return ids(claimed), more


def test_a_claim_of_few_jobs_takes_the_best_of_all_lanes(store):
    jobs = [put(store), put(store, kind="post", queue="other"), put(store, priority=1), put(store)]
    assert few(store, 2) == ([jobs[2], jobs[0]], True)
    assert few(store, 3) == ([jobs[1], jobs[3]], False)
    assert few(store, 3) == ([], False)
    assert [store.views.get(job).worker for job in jobs] == [WORKER] * 4


def test_what_another_worker_has_locked_may_hide_more(store, database):
    """The claim says so; it takes nothing past the jobs that it found."""
    jobs = [put(store) for _ in range(3)]
    with psycopg.connect(database.url) as other:
        other.execute(f"SELECT FROM holdfast.live WHERE id = {jobs[0]} FOR UPDATE".encode())
        assert few(store, 1, worker=WorkerId("w2")) == ([], True)
        assert few(store, 2, worker=WorkerId("w2")) == ([jobs[1]], True)


def test_a_claim_of_few_jobs_locks_no_others(store, database):
    """It reads the best jobs of each lane, and locks only the best of all."""
    put(store)
    post = put(store, kind="post")
    values = {"worker": WORKER, "queues": [*QUEUES], "few": 1, "alone": 1, "build": "", "lease_duration": MINUTE}
    values |= {"kinds": ById(id=[*KINDS], short=[False, False]), "free": 1, "autoscaled": [], "unfinished": []}
    query, statements = Query("claim_few", values), store.backend.statements
    with psycopg.connect(database.url) as open_claim:
        assert len(open_claim.execute(statements.text(query), statements.arguments(query)).fetchall()) == 1
        assert few(store, 9, worker=WorkerId("w2")) == ([post], True)


@pytest.mark.parametrize("losses", [2, 3])
def test_a_suspect_is_left_to_the_claim_that_counts_their_room(store, database, losses):
    jobs = [put(store), put(store), put(store, priority=-1)]
    database.execute(f"UPDATE holdfast.live SET losses = {losses} WHERE id = {jobs[1]}")
    assert few(store, 1) == ([jobs[0]], True)
    assert few(store, 3) == ([], True)
    assert few(store, 3, suspects=(0, 0)) == ([jobs[2]], False), "a suspect without room holds up no other job"


def test_few_jobs_are_claimed_by_the_same_rules(store):
    """Paused and limited queues, the stop switch, jobs of a lost run and those of one build."""
    job, other, post = put(store), put(store, queue="other"), put(store, kind="post")
    store.queues.set_limits("other", limit=1)
    assert few(store, 9, unfinished=[job]) == ([post], False)
    store.queues.pause("default")
    assert few(store, 9) == ([], False)
    store.queues.resume("default")
    store.stop_switch.set(StopMode.DRAIN, actor="ada")
    assert few(store, 9) == ([], False)
    assert store.views.get(other).worker is None


# -- jobs that became ready before a position -------------------------------------------------


def due(store, job):
    return store.views.get(job).due_at


def at(store, *jobs, priority=0, kind="mail", queue="default") -> EarlierJobs:
    """The notification of jobs that became ready."""
    times = [due(store, job) for job in jobs]
    return EarlierJobs(queue, kind, priority, min(times), max(times))


def test_a_claim_takes_jobs_before_its_position_first(store, clock):
    """They became ready after those behind them were claimed. Each comes once, and the position stays."""
    early = [put(store), put(store)]
    clock.advance(seconds=1)
    leases, later = take(store, 2, limits=False), [put(store) for _ in range(4)]
    positions = LanePositions().behind([*leases, *take(store, 2, limits=False)])
    notified = at(store, *early)
    store.leases.release(leases)
    _, spans = positions.with_earlier([notified])
    assert ids(onward(store, positions, 3, spans=spans)) == [*early, later[2]]
    assert ids(onward(store, positions, 3, spans=spans)) == [later[3]]


def test_jobs_of_one_due_time_before_and_behind_a_position_are_told_apart_by_their_ids(store):
    """A bulk of jobs is due at one time."""
    jobs = [answer.id for answer in store.jobs.enqueue_many([NewJob(kind="mail")] * 6)]
    leases = take(store, 3, limits=False)
    positions = LanePositions().behind(leases)
    store.leases.release(leases[:2])
    _, spans = positions.with_earlier([at(store, jobs[0])])
    assert ids(onward(store, positions, 4, spans=spans)) == jobs[:2] + jobs[3:5]


@pytest.mark.parametrize("priority", [-(2**31), -1, 1, 2**31 - 1])
def test_a_span_respects_higher_priorities_at_both_ends(store, priority, clock):
    """D3, I17: jobs of the highest priority have no priority above them, and those of the lowest none below."""
    early = put(store, priority=priority)
    clock.advance(seconds=1)
    (lease,), behind = take(store, 1, limits=False), [put(store, priority=priority) for _ in range(3)]
    positions = begin(store)
    store.leases.release([lease])
    _, spans = positions.with_earlier([at(store, early, priority=priority)])
    assert ids(onward(store, positions, 2, spans=spans)) == [early, behind[1]]
    if priority < 2**31 - 1:
        put(store, kind="post", priority=2**31 - 1)
        assert onward(store, positions, spans=spans) == [], "I17 is broken"


@pytest.mark.parametrize(("priority", "claimed"), [(1, False), (-1, True)])
def test_a_better_job_is_left_to_a_full_claim_with_all_new_ones(store, priority, claimed):
    """An idle worker continues from a time on, in lanes that it has emptied before."""
    job = put(store)
    put(store, kind="post", priority=priority)
    since = LanePositions({0: dict.fromkeys(product(QUEUES, KINDS), (due(store, job), FIRST))})
    assert ids(onward(store, since, 9)) == ([job] if claimed else []), "I17 is broken"


def test_a_claim_behind_a_position_locks_no_other_jobs(store, database):
    """It reads the first new jobs of each lane, and locks only those that it claims."""
    jobs = [put(store), put(store), put(store, kind="post")]
    positions = begin(store)
    columns = positions.route(QUEUES, KINDS, 1).columns(KINDS, 1)
    values = {"worker": WORKER, "free": 1, "ahead": 0, "lease_duration": MINUTE, "kinds": ById(id=[]), **columns}
    query, statements = Query("claim_onward", values), store.backend.statements
    with psycopg.connect(database.url) as open_claim:
        assert len(open_claim.execute(statements.text(query), statements.arguments(query)).fetchall()) == 1
        assert sorted(ids(onward(store, positions, 9, worker=WorkerId("w2")))) == jobs[1:2] or jobs[2:]


# -- turns ----------------------------------------------------------------------------------


@contextmanager
def a_turn(store, database, *queues):
    """Another claim on these queues has its turn."""
    turn = Query("take_turn", {"queues": sorted(queues), "milliseconds": 50})
    with psycopg.connect(database.url) as other:
        other.execute(store.backend.statements.text(turn), store.backend.statements.arguments(turn))
        yield


def from_start(store, queue="default", **options):
    return store.leases.claim(WORKER, queues=[queue], leases={"mail": MINUTE}, limits=False, **options)


def from_position(store, **options):
    route = begin(store).route(["default"], ["mail"], 9)
    return store.leases.claim_onward(WORKER, route, leases={"mail": MINUTE}, free=1, ahead=0, short=(), **options)


@pytest.mark.parametrize("claim", [from_start, from_position])
def test_a_claim_in_turn_waits_for_the_others(store, database, claim):
    """Those on other queues do not, nor do claims without a turn. One whose turn does not come claims nothing."""
    for _ in range(5):
        put(store)
    elsewhere, soon = put(store, queue="other"), timedelta(milliseconds=20)
    with a_turn(store, database, "default"):
        with pytest.raises(JobLocked):
            claim(store, turn=soon)
        assert ids(from_start(store, "other", turn=soon)) == [elsewhere]
        assert len(claim(store)) == 1
    assert len(claim(store, turn=soon)) == 1


def test_a_claim_in_turn_sees_what_was_committed_before_it(store, database):
    """Without turns, it would lock the jobs that others have claimed, and hold up their settlement."""
    jobs = [put(store) for _ in range(4)]
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory'"
    with ThreadPoolExecutor() as pool:
        with a_turn(store, database, "default"):
            second = pool.submit(from_start, store, free=2, turn=timedelta(seconds=30))
            wait_until(lambda: database.execute(waiting) == [(1,)])
            first = from_start(store, free=2)
        assert [ids(first), ids(second.result())] == [jobs[:2], jobs[2:]]
