"""The planner: each plan fires once, on any replica; a faulty schedule delays no other."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from prometheus_client import CollectorRegistry, generate_latest

import holdfast
from holdfast import Plan, State
from holdfast.domain.schedules.definition import Condition
from holdfast.domain.schedules.firing_times import between
from holdfast.errors import StoreBusy, StoreUnavailable, UnknownKind
from holdfast.store import Store
from holdfast.store.schedules.fired_plans import AdvanceResult
from holdfast.store.sqlite.backend import SqliteBackend
from holdfast.testing import drain, plan
from holdfast.worker.metrics import WorkerCollector
from holdfast.worker.schedules import planner as planner_module
from holdfast.worker.schedules import scopes as scopes_module
from holdfast.worker.schedules.planner import ClockCheck, Planner
from holdfast.worker.schedules.scopes import ScopeProviders
from holdfast.worker.stats import Stats
from tests.support.backends import START
from tests.support.jobs import claim_jobs
from tests.support.processes import PATIENCE, wait_until
from tests.support.schedules import declare

MINUTE = timedelta(minutes=1)


def planner(app, *, provider_wait=10.0, **options):
    """A separate planner, as another process has."""
    app.declare_schedules()
    return Planner(app.store, ScopeProviders(app.providers, **options), counts=Stats(), provider_wait=provider_wait)


def minutes(app, name="rollup"):
    """The fired plans, as minutes since the start."""
    return sorted((each.time - START) // MINUTE for each in app.store.plans.history(name, limit=1000))


# -- fired plans -------------------------------------------------------------------------------


def test_the_handler_receives_its_plan(app, clock):
    """The plan has the time of the rule, even if it runs later; its key is the same at every attempt."""
    seen = declare(app, delay="30s")
    assert plan(app) == 0
    clock.advance(seconds=30)
    assert (plan(app), drain(app)) == (1, 1)
    (received,) = seen
    assert (received.time, received.scope, received.schedule) == (START, "global", "rollup")
    assert received.key == Plan("rollup", START).key


def test_a_handler_need_not_know_of_its_plan(app):
    @app.schedule("*/5 * * * *", payload={"to": 7})
    @app.job()
    def send(to: int) -> int:
        return to

    plan(app)
    assert drain(app) == 1


def test_the_newest_is_fired_and_the_rest_is_written_down(app, clock):
    declare(app, overlap="allow")
    plan(app)
    clock.advance(minutes=32)
    assert plan(app) == 1
    assert minutes(app) == [0, 30]
    (skip,) = app.store.plans.skips("rollup")
    assert (skip.count, str(skip.reason)) == (5, "catch_up")


def test_every_one_is_fired_the_oldest_first(app, clock):
    """They run one after the other: a later plan waits for the earlier."""
    seen = declare(app, catch_up="every")
    plan(app)
    clock.advance(minutes=32)
    assert plan(app) == 6
    drain(app)
    assert [(each.time - START) // MINUTE for each in seen] == [0, 5, 10, 15, 20, 25, 30]


def test_plans_beyond_the_cap_wait_for_the_next_tick(app, clock):
    declare(app, "every 10s", catch_up="every", overlap="allow")
    plan(app)
    clock.advance(seconds=45_000)
    assert [planner(app).tick().processed for _ in range(4)] == [2000, 2000, 500, 0]


def test_batches_of_a_tick_fire_each_plan_once(app, monkeypatch):
    """Two of them are written side by side where the store has several writers."""
    monkeypatch.setattr(planner_module, "BATCH_SIZE", 10)
    app.job()(rollup)
    names = [f"number {n:02}" for n in range(25)]
    for name in names:
        app.schedules.create(name, "rollup", "*/5 * * * *")
    one = planner(app)
    tick_often(one)
    assert [minutes(app, name) for name in names] == [[0]] * 25
    assert one._counts.plans["fired"] == 25


def test_jitter_puts_jobs_off_and_not_plans(app):
    declare(app, jitter="1h")
    plan(app)
    (job,) = app.views.page(holdfast.Selector()).jobs
    assert (job.state, job.due_at > START) == (State.SCHEDULED, True)
    assert minutes(app) == [0]


def test_after_its_runs_it_is_over(app, clock):
    declare(app, runs=2, catch_up="every", overlap="allow")
    for _ in range(4):
        plan(app)
        clock.advance(minutes=5)
    assert (minutes(app), app.schedules.get("rollup").condition) == ([0, 5], Condition.OVER)


def test_nothing_is_planned_before_it_starts(app, clock):
    declare(app, start=START + timedelta(minutes=12), end=START + timedelta(minutes=21))
    for _ in range(10):
        plan(app)
        clock.advance(minutes=5)
        drain(app)
    assert minutes(app) == [15, 20]


# -- scopes ------------------------------------------------------------------------------------


def test_each_scope_has_its_plan(app, clock):
    """An invalid scope delays no other; a new one joins with the next plan."""
    scopes = ["a", "b", "a", "\0", 5]
    seen = declare(app, scopes=lambda: scopes)
    plan(app)
    scopes.append("c")
    clock.advance(minutes=5)
    plan(app)
    drain(app)
    assert Counter(each.scope for each in seen) == {"c": 1, "a": 1, "b": 1}
    reasons = Counter(str(skip.reason) for skip in app.store.plans.skips("rollup"))
    assert reasons == {"scope": 4, "overlap": 2}


def test_fixed_scopes_need_no_application(app):
    declare(app, scopes=["a", "b"])
    app.declare_schedules()
    alone = holdfast.Holdfast()
    alone.use(None, app.store)
    assert plan(alone) == 2


def test_a_coroutine_may_know_the_scopes(app):
    @app.scopes()
    async def tenants():
        return ["a", "b"]

    declare(app, scopes="tenants")
    assert plan(app) == 2


@pytest.mark.parametrize("catch_up", ["latest", "every"])
def test_a_provider_with_a_parameter_gets_the_time_of_the_plan(app, clock, catch_up):
    """OPS 4.12: one call for each time, also where a tick decides on many; the tenants of then, not of now."""
    asked = []

    def tenants(time):
        asked.append(time.minute)
        return ["a", "b"] if time.minute == 5 else ["a"]

    declare(app, scopes=tenants, catch_up=catch_up, overlap="allow")
    plan(app)
    clock.advance(minutes=15)
    plan(app)
    every = catch_up == "every"
    assert asked == ([0, 5, 10, 15] if every else [0, 15])
    fired = sorted((each.time.minute, each.scope) for each in app.store.plans.history("rollup"))
    assert fired == ([(0, "a"), (5, "a"), (5, "b"), (10, "a"), (15, "a")] if every else [(0, "a"), (15, "a")])


def test_a_slow_provider_answers_for_the_time_it_was_asked_for(app, clock):
    """Slower than the schedule, it would otherwise be asked for the next time for ever."""
    answer = threading.Event()

    def tenants(time):
        answer.wait(60)
        return [f"at {time.minute}"]

    declare(app, scopes=tenants, overlap="allow")
    one = planner(app, provider_wait=0.01)
    one.tick()
    clock.advance(minutes=5)
    one.wake.clear()
    answer.set()
    assert one.wake.wait(60)
    while one.tick().considered:
        one.wake.wait(0.05)
    assert [each.scope for each in app.store.plans.history("rollup")] == ["at 5", "at 0"]


def test_a_slow_provider_holds_up_its_own_schedule_alone(app):
    """The planner uses the answer when it arrives."""
    answer = threading.Event()

    def tenants():
        answer.wait(60)
        return ["a"]

    declare(app, scopes=tenants)
    app.schedules.create("other", "rollup", "*/5 * * * *")
    one = planner(app, provider_wait=0.01)
    assert one.tick().processed == 1
    while one.tick().considered:
        pass
    assert (one.tick().next_in, minutes(app), minutes(app, "other")) == (30.0, [], [0])
    one.wake.clear()
    answer.set()
    assert one.wake.wait(60)  # the answer wakes the planner
    assert one.tick().processed == 1
    assert minutes(app) == [0]


def test_an_answer_that_came_too_late_decides_no_other_plan(app, clock):
    """Another replica was faster, and meanwhile a tenant was added."""
    tenants, slow = ["a"], threading.Event()

    def answer():
        scopes = [*tenants]
        slow.wait(60)
        return scopes

    declare(app, scopes=answer, overlap="allow")
    late = planner(app, provider_wait=0.01)
    late.tick()
    slow.set()
    assert plan(app) == 1
    tenants.append("b")
    clock.advance(minutes=5)
    late._clock_check = ClockCheck()
    wait_until(lambda: late.tick().processed)
    fired = [(each.scope, (each.time - START) // MINUTE) for each in app.store.plans.history("rollup")]
    assert sorted(fired) == [("a", 0), ("a", 5), ("b", 5)]


def test_many_slow_providers_cost_a_tick_no_more_than_one(app):
    """They are called concurrently, and a tick waits for all of them together."""
    never = threading.Event()
    calls = []

    def tenants():
        calls.append(1)
        never.wait(60)
        return []

    app.scopes("tenants")(tenants)
    declare(app, overlap="allow")
    for n in range(5):
        app.schedules.create(f"slow {n}", "rollup", "*/5 * * * *", scopes="tenants")
    one = planner(app, provider_wait=0.01)
    assert one.tick().processed == 1
    wait_until(lambda: len(calls) == 5)
    never.set()


def test_a_provider_that_hangs_sets_its_schedule_back(app, clock):
    """V1: it has one thread, not one more at each try; the schedule tells why it is not planned."""
    never, calls = threading.Event(), []

    def tenants():
        calls.append(1)
        return [str(never.wait(60))]

    declare(app, scopes=tenants)
    one = planner(app, provider_wait=0.0, timeout=-1.0)
    for _ in range(4):
        one.tick()
        clock.advance(minutes=1)
    failing = app.schedules.get("rollup")
    assert (failing.condition, failing.failures, len(calls)) == (Condition.FAILING, 1, 1)
    assert "'rollup' has not answered" in failing.error
    assert "has not answered" in app.schedules.why("rollup", START, scope="x")
    assert one._counts.scope_calls == {"waiting": 0, "abandoned": 1}
    one.wake.clear()
    never.set()
    assert one.wake.wait(60)
    one.tick()
    assert one._counts.scope_calls == {"waiting": 0, "abandoned": 0}


def test_a_schedule_that_gets_another_provider_does_not_wait_for_the_first(app, clock):
    """A scope function hangs, and the schedule is changed to another one: the same planner fires it."""
    never = threading.Event()
    app.scopes("quick")(lambda: ["a"])
    declare(app, scopes=lambda: [str(never.wait(60))])
    one = planner(app, provider_wait=0.0)
    clock.advance(minutes=1)
    one.tick()
    app.schedules.update("rollup", scopes="quick")
    clock.advance(minutes=1)
    one.wake.clear()
    one.tick()
    assert one.wake.wait(60)
    one.tick()
    assert {each.scope for each in app.store.plans.history("rollup")} == {"a"}, "V1 is broken"
    never.set()


@pytest.fixture
def hung(app, monkeypatch):
    """Forty schedules whose provider hangs, one whose provider answers, and one without a provider."""
    never = threading.Event()
    monkeypatch.setattr(scopes_module, "NEW_CALL_S", 0.0)
    monkeypatch.setattr(planner_module, "BATCH_SIZE", 10)
    app.scopes("hanging")(lambda: [str(never.wait(60))])
    app.scopes("quick")(lambda: ["a"])
    app.job()(rollup)
    for n in range(40):
        app.schedules.create(f"a hung {n:02}", "rollup", "*/5 * * * *", scopes="hanging")
    app.schedules.create("quick", "rollup", "*/5 * * * *", scopes="quick")
    app.schedules.create("plain", "rollup", "*/5 * * * *")
    yield never
    never.set()


def rollup(plan: Plan) -> None: ...


def tick_often(planner):
    """Tick until nothing is left to do, or for long enough."""
    for _ in range(20):
        if not planner.tick().considered:
            return


def test_forty_hung_calls_hold_up_no_other_schedule(app, clock, hung):
    """V1, V2: neither those with another provider, nor those without: however long they hang."""
    one = planner(app, provider_wait=0.01)
    tick_often(one)
    assert minutes(app, "plain") == [0], "V2 is broken: schedules that wait for their provider hide plain ones"
    assert minutes(app, "quick") == [0], "V1 is broken: hung calls hold up another provider"
    assert one._counts.scope_calls == {"waiting": 40, "abandoned": 0}
    clock.advance(minutes=5)
    drain(app)
    one._clock_check = ClockCheck()
    begun = time.monotonic()
    while minutes(app, "quick") != [0, 5]:
        assert time.monotonic() - begun < PATIENCE, "V1 is broken: hung calls hold up another provider"
        one.tick()
    assert minutes(app, "plain") == [0, 5]


def test_another_schedule_of_the_same_provider_is_not_held_up(app, hung):
    """V1: a call counts against its own schedule only."""
    one = planner(app, provider_wait=0.01)
    tick_often(one)
    one._providers._functions["hanging"] = lambda: ["a"]
    app.schedules.create("well", "rollup", "*/5 * * * *", scopes="hanging")
    wait_until(lambda: one.tick() and minutes(app, "well") == [0])


def test_threads_of_hung_calls_are_bounded(app, hung, monkeypatch, caplog):
    """V1: at most so many of a provider, and so many of the process; the log tells once."""
    monkeypatch.setattr(scopes_module, "MAX_CALLS_OF_PROVIDER", 3)
    one = planner(app, provider_wait=0.01)
    tick_often(one)
    assert (len(one._providers._calls), minutes(app, "quick")) == (3, [0])
    monkeypatch.setattr(scopes_module, "MAX_CALLS", 3)
    with caplog.at_level(logging.ERROR, logger="holdfast"):
        for _ in range(3):
            one.tick()
    assert ["3 calls of scope functions have not returned" in each.message for each in caplog.records] == [True]


def test_a_hung_provider_does_not_keep_a_process_from_exiting(tmp_path):
    """V1: its thread ends with the process."""
    program = """
import holdfast, sys, threading
from holdfast import Plan
app = holdfast.Holdfast(sys.argv[1])
@app.schedule("every 1s", scopes=lambda: [str(threading.Event().wait())])
@app.job()
def rollup(plan: Plan): ...
with app.worker(poll=0.05) as worker:
    while not worker.counts.scope_calls.get("waiting"):
        threading.Event().wait(0.01)
"""
    ended = subprocess.run([sys.executable, "-c", program, f"sqlite:///{tmp_path}/jobs.db"], timeout=60, check=False)
    assert ended.returncode == 0


@pytest.mark.parametrize("answer", ["abc", None, 5])
def test_a_provider_that_returns_no_list_fails_its_schedule(app, answer):
    declare(app, scopes=lambda: answer)
    assert plan(app) == 0
    assert "a list of texts" in app.schedules.get("rollup").error


def test_a_plan_without_any_scope_is_in_the_ledger(app):
    declare(app, scopes=list)
    assert plan(app) == 0
    assert [str(skip.reason) for skip in app.store.plans.skips("rollup")] == ["scope"]
    assert app.schedules.get("rollup").fired == 0


def test_many_scopes_take_fewer_times_at_once(app, clock):
    declare(app, "* * * * *", catch_up="every", overlap="allow", scopes=[f"s{n}" for n in range(2000)])
    assert plan(app) == 2000
    clock.advance(minutes=5)
    assert [planner(app).tick().processed for _ in range(3)] == [4000, 4000, 2000]


def test_a_time_in_many_scopes_is_fired_in_parts(app, monkeypatch):
    """S5: in one transaction, 100,000 scopes took longer than a call may. A planner that dies in between loses none."""
    monkeypatch.setattr(planner_module, "MAX_PLANS", 10)
    declare(app, scopes=[f"s{n:02}" for n in range(25)], runs=2)
    advance, sizes = app.store.plans.advance, []

    def die_at_the_second(advances):
        sizes.append(sum(len(each.fire) for each in advances))
        if len(sizes) == 2:
            raise KeyboardInterrupt
        return advance(advances)

    monkeypatch.setattr(app.store.plans, "advance", die_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        planner(app).tick()
    assert planner(app).tick().processed == 15, "S5 is broken: plans of many scopes are lost"
    known = app.schedules.get("rollup")
    assert (sizes, known.fired, known.cursor) == ([10, 10, 10, 10, 5], 1, START)
    assert len(app.store.plans.history("rollup", limit=100)) == 25


def test_a_time_in_many_scopes_is_one_run_wherever_it_fired(app, clock, monkeypatch):
    """S4: the scopes of the last part are still busy; the plan fired in the others, and counts."""
    monkeypatch.setattr(planner_module, "MAX_PLANS", 10)
    declare(app, scopes=[f"s{n:02}" for n in range(25)], runs=1)
    app.schedules.trigger("rollup", scopes=[f"s{n:02}" for n in range(20, 25)])
    assert planner(app).tick().processed == 20
    known = app.schedules.get("rollup")
    assert (known.fired, known.condition) == (1, Condition.OVER), "S4 is broken: it fires once more"


def test_many_invalid_scopes_take_fewer_times_at_once(app, clock):
    """Each costs a row in the ledger for each time: a hundred times would be millions of rows."""
    declare(app, "* * * * *", catch_up="every", scopes=lambda: range(2000))
    planner(app).tick()
    clock.advance(minutes=5)
    planner(app).tick()
    assert len(app.store.plans.skips("rollup", limit=20_000)) == 2000 + 4000


def test_a_provider_without_an_end_fails_its_schedule(app, monkeypatch):
    monkeypatch.setattr(scopes_module, "MAX_SCOPES", 10)
    declare(app, scopes=lambda: map(str, count()))
    planner(app).tick()
    assert app.schedules.get("rollup").error == "a function for scopes answers at most 10 texts"


# -- faulty schedules --------------------------------------------------------------------------


def test_one_broken_schedule_never_stops_the_tick(app, clock):
    """SPEC 8.15: it alone is delayed, longer each time, and continues by itself when it is repaired."""
    broken = [ValueError("the tenants are gone")]

    def tenants():
        if broken:
            raise broken[0]
        return ["a"]

    declare(app, scopes=tenants)
    app.schedules.create("good", "rollup", "*/5 * * * *", overlap="allow")
    app.store.backend.run(_garbage_schedule(app))
    for _ in range(3):
        plan(app)
        clock.advance(minutes=5)
    assert minutes(app, "good") == [0, 5, 10]
    failing = app.schedules.get("rollup")
    assert (failing.condition, failing.failures) == (Condition.FAILING, 3)
    assert failing.error == "ValueError: the tenants are gone"
    broken.clear()
    assert plan(app) == 2
    assert (minutes(app), app.schedules.get("rollup").condition) == ([15], Condition.ACTIVE)


class Mute(Exception):
    """An error whose text cannot be read."""

    def __str__(self):
        raise AttributeError("detail")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (StoreUnavailable("the tenants' own store is down"), "the tenants' own store is down"),
        (StoreBusy("the tenants' own store is busy"), "the tenants' own store is busy"),
        (Mute(), "<exception str() failed>"),
    ],
)
def test_whatever_a_provider_raises_delays_its_own_schedule_alone(app, error, text):
    """S5: an error that looks like an outage of our store, or that has no text, stops no tick."""

    def tenants():
        raise error

    declare(app, scopes=tenants)
    app.scopes("fine")(lambda: ["a"])
    app.schedules.create("good", "rollup", "*/5 * * * *", scopes="fine", overlap="allow")
    one = planner(app)
    one.tick()
    assert minutes(app, "good") == [0], "S5 is broken: the provider of one schedule holds up another"
    failing = app.schedules.get("rollup")
    assert (failing.failures, failing.error.endswith(text)) == (1, True)


def _garbage_schedule(app):
    """A schedule whose definition cannot be decoded."""
    from holdfast.store.engine.operation import query

    values = {"declared": None, "application": None, "version": 0, "provider": None, "actor": "ada", "token": 0}
    values |= dict.fromkeys(("at", "cursor", "next_at"), START)
    return query("create_schedule", name="garbage", definition='{"kind": 1}', **values)


def test_a_step_that_cannot_be_taken_is_taken_alone(app, clock):
    """The unique key of one kind cannot be formed; the other plans of the transaction are not lost."""
    declare(app, overlap="allow")

    @app.job(unique=["to"])
    def send(to: int = 1) -> None: ...

    app.schedules.create("bad", "send", "*/5 * * * *", payload={"to": 1})
    app.store.schedules.update("bad", lambda known: structs.replace(known, payload={}), actor="ada")
    assert plan(app) == 1
    assert "unique key" in app.schedules.get("bad").error


def test_an_unknown_kind_fails_its_schedule(app):
    declare(app)
    with pytest.raises(UnknownKind):
        app.schedules.create("lost", "rolup", "@daily")


# -- replicas and clocks -----------------------------------------------------------------------


@given(st.data())
def test_every_plan_is_decided_once_however_planners_share_the_work(tmp_path_factory, data):
    """Replicas tick at random times and some die before they write: no plan is lost or fired twice."""
    now = [START]
    path = tmp_path_factory.mktemp("planners") / "jobs.db"
    store = Store(SqliteBackend(path, durability="fast", clock=lambda: now[0]))
    app = holdfast.Holdfast()
    app.use(None, store)
    with app:  # hypothesis may end an example at any draw
        declare(app, "*/5 * * * *", catch_up=data.draw(st.sampled_from(["every", "latest", "none"])), overlap="allow")
        replicas = [planner(app) for _ in range(3)]
        for wait, index, dies in data.draw(
            st.lists(st.tuples(st.integers(0, 600), st.integers(0, 2), st.booleans()), min_size=1, max_size=12)
        ):
            now[0] += timedelta(minutes=wait)
            replica = replicas[index]
            replica._clock_check = ClockCheck()
            if dies:
                tick_and_die(replica)
            else:
                replica.tick()
        schedule = app.schedules.get("rollup")
        fired = [each.time for each in store.plans.history("rollup", limit=10_000)]
        skipped = [
            time
            for skip in store.plans.skips("rollup", limit=10_000)
            for time in between(schedule.defined.rule(), skip.first - MINUTE, skip.last)
        ]
    assert sorted([*fired, *skipped]) == list(between(schedule.defined.rule(), START - MINUTE, schedule.cursor))


def tick_and_die(replica):
    """A tick whose process dies before it writes."""

    def die(steps):
        raise SystemExit

    taken, replica._store.plans.advance = replica._store.plans.advance, die
    with suppress(SystemExit):
        replica.tick()
    replica._store.plans.advance = taken


@pytest.mark.parametrize("catch_up", ["every", "latest", "none"])
def test_a_clock_that_goes_back_and_forth_replays_nothing(app, clock, catch_up):
    """Each plan has one job, and none fires before the clock first reaches its time."""
    declare(app, catch_up=catch_up, overlap="allow")
    for step in (0, 5, 5, -60, 5, 5, 55, 5, -1440, 1440, 5):
        clock.advance(minutes=step)
        plan(app)
    assert minutes(app) == [0, 5, 10, 15, 20, 25]
    jobs = app.views.page(holdfast.Selector(), limit=100).jobs
    assert len(jobs) == 6
    assert len({job.payload for job in jobs}) == 6


def test_a_schedule_locked_by_another_planner_is_left_to_it(app, monkeypatch):
    """A planner that could not move any schedule does not spin."""
    declare(app)
    one = planner(app)
    monkeypatch.setattr(app.store.plans, "advance", lambda advances: AdvanceResult([], 0, {}))
    assert one.tick().next_in == 0.2


def test_the_planner_waits_until_the_clock_is_trusted(app, clock):
    declare(app)
    one = planner(app)
    one.tick()
    clock.advance(days=30)
    assert (one.tick().processed, minutes(app)) == (0, [0])


def test_a_planner_rests_until_the_next_plan_or_half_a_minute(app, clock):
    declare(app)
    one = planner(app)
    while one.tick().considered:
        pass
    assert one.tick().next_in == 30.0
    clock.advance(minutes=4, seconds=50)
    assert one.tick().next_in == 10.0


# -- with real workers -------------------------------------------------------------------------


def test_a_long_handler_delays_no_other_schedule(real_app):
    """SPEC 8.10: one plan runs throughout the test; the others fire and run on time."""
    go = threading.Event()
    beats = []

    @real_app.schedule("every 1s", overlap="skip")
    @real_app.job(lease="2s")
    def long(plan: Plan, me: holdfast.Context) -> None:
        go.wait(60)

    @real_app.schedule("every 1s", overlap="allow", catch_up="every")
    @real_app.job()
    def beat(plan: Plan) -> None:
        beats.append(plan.time)

    with real_app.worker(poll=0.05, heartbeat=0.5, slots=4):
        wait_until(lambda: len(beats) >= 4)
        jobs = real_app.views.page(holdfast.Selector(kinds=("long",))).jobs
        assert [job.state for job in jobs] == [State.RUNNING]
        assert all(job.lease_expires_at > datetime.now(UTC) for job in jobs)
        go.set()
    assert all(later - first == timedelta(seconds=1) for first, later in pairwise(sorted(beats)))
    assert {str(skip.reason) for skip in real_app.store.plans.skips("long")} <= {"overlap", "catch_up"}


def test_an_older_failed_plan_is_retried_though_newer_ones_succeeded(app, clock):
    """SPEC 8.9: each plan is a job of its own."""
    fails = [True]
    done = []

    @app.schedule("*/5 * * * *")
    @app.job(retry=["10m"])
    def report(plan: Plan) -> None:
        if fails:
            fails.clear()
            raise ValueError("not yet")
        done.append((plan.time - START) // MINUTE)

    for _ in range(4):
        plan(app)
        drain(app)
        clock.advance(minutes=5)
    drain(app)
    assert sorted(done) == [0, 5, 10, 15]
    assert done.index(0) > done.index(5)


def test_a_plan_that_must_not_run_twice_is_held_for_a_person(app, clock):
    """SPEC 8.8: its worker was lost; nothing runs it again by itself, and newer plans continue."""

    @app.schedule("*/5 * * * *")
    @app.job(on_lost="hold")
    def charge(plan: Plan) -> None: ...

    plan(app)
    (lease,) = claim_jobs(app.store, "w1", queues=["default"], kinds=["charge"], started=True)
    clock.advance(minutes=5)
    app.store.leases.take_over()
    plan(app)
    drain(app)
    states = {(each.time - START) // MINUTE: str(each.state) for each in app.store.plans.history("charge")}
    assert states == {0: "held", 5: "done"}
    assert app.views.get(lease.job_id).attempts == 1


def test_a_schedule_that_is_made_while_a_worker_runs_is_planned_soon(real_app):
    @real_app.job()
    def rollup(plan: Plan) -> None: ...

    with real_app.worker(poll=0.05):
        past = datetime.now(UTC) - timedelta(hours=1)
        real_app.schedules.create("soon", "rollup", "* * * * *", start=past)
        assert wait_until(lambda: [each.state for each in real_app.store.plans.history("soon")] == [State.DONE])


def test_a_worker_may_leave_planning_to_others(real_app):
    declare(real_app, "every 1s")
    with real_app.worker(poll=0.05, plans=False) as worker:
        wait_until(lambda: worker.counts.ticks["maintenance", "processed"])
        assert not any(part == "planner" for part, _ in worker.counts.ticks)
    assert minutes(real_app) == []


def test_a_scheduler_plans_and_runs_nothing(real_app):
    seen = declare(real_app, "every 1s")
    with real_app.scheduler() as scheduler:
        wait_until(lambda: real_app.store.plans.history("rollup"))
        assert scheduler.kinds == []
    assert seen == []


@pytest.mark.usefixtures("patient_scrapes")
def test_lag_plans_and_missed_ones_are_metrics(app, clock):
    declare(app, overlap="allow")
    plan(app)
    clock.advance(minutes=32)
    worker = app.worker()
    worker.tick()
    clock.advance(minutes=20)
    registry = CollectorRegistry()
    registry.register(WorkerCollector(worker, app.store))
    text = generate_latest(registry).decode()
    assert 'holdfast_plans_total{decision="fired"} 1.0' in text
    assert 'holdfast_plans_missed_total{reason="catch_up"} 5.0' in text
    assert "holdfast_schedule_lag_seconds 1020.0" in text
    assert "holdfast_planner_seconds_count" in text


# -- the clock ---------------------------------------------------------------------------------


def test_a_clock_that_jumps_ahead_briefly_fires_nothing(caplog):
    """The clock is trusted after it has kept its new time for a minute."""
    check, later = ClockCheck(), START + timedelta(days=400)
    assert check.trusts(START, 0.0)
    with caplog.at_level(logging.WARNING, logger="holdfast"):
        assert not check.trusts(later, 10.0)
        assert not check.trusts(later + timedelta(seconds=30), 40.0)
    assert len(caplog.records) == 1
    assert check.trusts(START + timedelta(seconds=50), 50.0)
    assert not check.trusts(later, 60.0)
    assert check.trusts(later + timedelta(seconds=61), 121.0)
    assert check.trusts(START, 122.0)


def test_a_clock_that_jumps_twice_is_trusted_a_minute_after_the_second_jump():
    """A first jump does not vouch for the second one."""
    check, second = ClockCheck(), START + timedelta(days=400)
    assert check.trusts(START, 0.0)
    assert not check.trusts(START + timedelta(hours=1), 1.0)
    assert not check.trusts(second, 61.0), "a clock is trusted that has not kept its time"
    assert not check.trusts(second + timedelta(seconds=59), 120.0)
    assert check.trusts(second + timedelta(seconds=61), 122.0)
