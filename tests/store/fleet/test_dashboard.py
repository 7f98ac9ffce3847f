"""The board: one test per promise of store/fleet/dashboard.py, and of the facts that are made of it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.admin.views.overview import counts_of, error_clusters, overview
from holdfast.domain.access.audit import Via
from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.job import JobId, State, WorkerId
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.verdict import Done, Failed
from holdfast.errors import NoSuchJob
from holdfast.store.access.audit import AuditedAction
from holdfast.store.jobs.queries import LEFT_OUT
from tests.support.jobs import lapse, put, take, take_one

DEAD = Failed(error="ValueError: row 7 is bad", permanent=True)


def test_lanes_say_how_many_and_how_old(store, clock):
    """By queue and kind, over all priorities."""
    put(store, "mail", priority=-3)
    clock.advance(seconds=60)
    put(store, "mail", priority=5)
    put(store, "post", queue="slow")
    put(store, "post", queue="slow", hold=True)
    lanes = {(lane.queue, lane.kind): lane for lane in store.dashboard.lanes()}
    assert lanes.keys() == {("default", "mail"), ("slow", "post")}
    assert (lanes["default", "mail"].ready, lanes["default", "mail"].waited) == (2, timedelta(seconds=60))


def test_counts_stop_at_the_cap(store):
    for _ in range(4):
        put(store)
    assert store.dashboard.lanes(cap=2)[0].ready == 3
    counts = counts_of(store.dashboard.tallies(cap=2), cap=2)
    assert (counts[State.READY].count, counts[State.READY].capped) == (2, True)
    assert (counts[State.DEAD].count, counts[State.DEAD].capped) == (0, False)


def test_every_state_is_counted(store, clock):
    put(store, hold=True)
    put(store, delay=timedelta(hours=1))
    first = put(store)
    put(store, after=After(ids=(first,)))
    put(store, "post")
    store.leases.settle(take_one(store), DEAD)
    take(store, 1, kinds=("post",))
    counts = {state: found.count for state, found in counts_of(store.dashboard.tallies()).items()}
    assert counts == {**dict.fromkeys(State, 0), "held": 1, "scheduled": 1, "cancelled": 1, "dead": 1, "running": 1}


def test_what_ended_lately_is_told_by_queue_and_slot(store, clock):
    for wait in (600, 0, 0):
        put(store, queue="q")
        store.leases.settle(take_one(store, queues=("q",)), Done())
        clock.advance(seconds=wait)
    found = {
        (tally.state, tally.queue, tally.slot): tally.count for tally in store.dashboard.tallies() if tally.slot >= 0
    }
    assert found == {(State.DONE, "q", 0): 2, (State.DONE, "q", 10): 1}
    clock.advance(hours=2)
    assert all(tally.slot < 0 for tally in store.dashboard.tallies())


def test_trouble_is_found(store, clock):
    """Lapsed leases, dead jobs, paused queues, kinds without a worker, each in words."""
    put(store)
    store.leases.settle(take_one(store), DEAD)
    put(store)
    take_one(store)
    lapse(clock)
    store.queues.pause("q", note="the moon")
    put(store, "post")
    facts = overview(store)
    told = {each.category: each.text for each in facts.attention}
    assert told["expired"] == "job 2 (mail) has lost its worker"
    assert told["dead"] == "1 job is dead; the newest is job 1 (mail, handler_error)"
    assert told["paused_queue"] == "queue q is paused: the moon"
    assert told["no_worker"] == "no worker runs post in queue default; 1 job waits"


def test_an_overview_has_one_count_of_dead_jobs(store):
    """Among the states and among the problems, also above a cap and above the number of problems that are listed."""
    for _ in range(25):
        put(store)
        store.leases.settle(take_one(store), DEAD)
    for cap, count, text in ((100, 25, "25 jobs are dead"), (10, 10, "10+ jobs are dead")):
        view = overview(store, cap=cap)
        (problem,) = [each for each in view.attention if each.category == "dead"]
        assert (view.counts[State.DEAD].count, problem.count) == (count, count)
        assert problem.text == f"{text}; the newest is job 25 (mail, handler_error)"


def test_a_full_queue_and_one_that_waits_long_want_a_look(store, clock):
    store.queues.set_limits("narrow", limit=1)
    put(store, queue="narrow")
    put(store, queue="narrow")
    take_one(store, queues=("narrow",))
    put(store)
    clock.advance(minutes=20)
    told = {each.category for each in overview(store).attention}
    assert {"full_queue", "slow_queue"} <= told


def test_the_board_of_a_queue(store, clock):
    store.queues.set_limits("q", limit=3)
    put(store, queue="q")
    put(store, queue="q")
    store.leases.settle(take_one(store, queues=("q",)), Done())
    (queue,) = [each for each in overview(store).queues if each.name == "q"]
    assert (queue.ready, queue.running, queue.limit, queue.kinds) == (1, 0, 3, ["mail"])
    assert queue.done[-1] == 1
    assert queue.done_per_minute == pytest.approx(1 / 60)
    assert [each.name for each in overview(store).queues] == ["default", "q"]


def test_errors_are_clustered_over_kinds(store):
    for n in range(3):
        put(store)
        store.leases.settle(take_one(store), Failed(error=f"row {n} is bad", permanent=True))
    put(store, "post")
    store.leases.settle(take_one(store, kinds=("post",)), Failed(error="token=abc", permanent=True))
    rows, other = error_clusters(store, limit=10).clusters
    assert (rows.kind, rows.count, rows.pattern, rows.newest) == ("mail", 3, "row <n> is bad", 3)
    assert other.sample == "token=***"
    assert rows.command == "holdfast retry --state dead --kind mail --error 'is bad'"
    assert other.command == "holdfast retry --state dead --kind post --error token="


def test_errors_of_retrying_jobs_are_in_the_clusters_of_dead_ones(store, clock):
    """Until the next attempt begins. The next step for jobs that are retried anyway is to see one of them."""
    for permanent in (True, False, False):
        put(store)
        store.leases.settle(take_one(store), Failed(error="row 1 is bad", permanent=permanent))
        clock.advance(seconds=1)
    (rows,) = error_clusters(store).clusters
    assert (rows.count, rows.retrying, rows.newest, rows.last - rows.first) == (3, 2, 3, timedelta(seconds=2))
    assert rows.command.startswith("holdfast retry")
    store.control.delete(Selector(ids=(JobId(1),)))
    (rows,) = error_clusters(store).clusters
    assert (rows.count, rows.retrying, rows.command) == (2, 2, "holdfast show 3")
    clock.advance(hours=1)
    store.leases.promote()
    running = take_one(store).job_id
    (rows,) = error_clusters(store).clusters
    assert (rows.count, {rows.newest, running}) == (1, {2, 3})


def test_edges_go_both_ways(store):
    """Step by step, each with the job at its far end; a diamond is walked once per step."""
    a = put(store, label="start")
    b, c = put(store, after=After(ids=(a,))), put(store, after=After(ids=(a,)))
    d = put(store, after=After(ids=(b, c)))
    found = {(edge.way, edge.job_id, edge.dependency_id, edge.depth) for edge in store.dashboard.edges(b)}
    assert found == {("dependencies", b, a, 1), ("dependents", d, b, 1)}
    (need,) = [edge for edge in store.dashboard.edges(b) if edge.way == "dependencies"]
    assert (need.far, need.kind, need.label, need.state) == (a, "mail", "start", State.READY)
    assert {edge.dependency_id for edge in store.dashboard.edges(d) if edge.way == "dependencies"} == {a, b, c}
    assert len(store.dashboard.edges(a, limit=1)) == 1


def test_what_runs_is_told_with_its_worker(store):
    put(store)
    lease = take_one(store, worker=WorkerId("w"))
    store.leases.report(lease, done=3, total=9)
    (running,) = store.dashboard.running()
    assert (running.id, running.worker, running.progress_done, running.progress_total) == (lease.job_id, "w", 3, 9)


def test_a_story_is_what_the_views_tell(store, clock):
    """Attempts, events and reasons are the same, in four statements."""
    first = put(store)
    second = put(store, after=After(ids=(first,)))
    store.leases.settle(take_one(store), Failed(error="boom"))
    for job_id in (first, second):
        story, views = store.dashboard.job_record(job_id), store.views
        assert story.job == views.get(job_id)
        assert story.attempts == views.attempts(job_id)
        assert story.events == views.events(job_id)
        assert story.why == views.why(job_id)
        assert story.now == clock.now()
    with pytest.raises(NoSuchJob):
        store.dashboard.job_record(99)


def test_the_pulse_changes_with_every_change(store, clock):
    """Each part by itself; with no change it stays."""
    before = store.dashboard.change_counters()
    assert store.dashboard.change_counters() == before

    def changed(part):
        nonlocal before
        now = store.dashboard.change_counters()
        assert getattr(now, part) != getattr(before, part), part
        before = now

    put(store)
    changed("jobs")
    lease = take_one(store)
    changed("jobs")
    store.leases.report(lease, done=1)
    changed("jobs")
    clock.advance(seconds=1)
    store.leases.settle(lease, Done())
    changed("jobs")
    store.queues.pause("q")
    changed("queues")
    store.workers.announce(WorkerId("w"), host="h", pid=1, queues=[], kinds=[])
    changed("workers")
    store.audit_log.write(AuditedAction(actor="ada", via=Via.CLI, action="cancel", target="id=1"))
    changed("audit")


def test_a_brief_page_leaves_out_what_is_large(store):
    from holdfast.domain.jobs.selector import Selector

    small, large = '{"a": 1}', '{"a": "' + "x" * 20_000 + '"}'
    for payload in (small, large):
        put(store, payload=payload)
        store.leases.settle(take_one(store), Failed(error="x" * 1000, permanent=True))
    put(store, payload=small)
    ready, after_large, after_small = store.views.page(Selector(), brief=True).jobs
    assert (ready.payload, after_small.payload, len(after_small.error)) == (small, small, 300)
    assert (after_large.payload, len(after_large.error), after_large.reason) == (LEFT_OUT, 300, "handler_error")
