"""The planner: each plan once, whoever looks and whenever; what is broken stays alone."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from prometheus_client import CollectorRegistry, generate_latest

import holdfast
from holdfast import Plan, State
from holdfast.domain.schedules.definition import Condition
from holdfast.domain.schedules.rule import between
from holdfast.errors import InvalidInput, InvalidKind, InvalidPayload, UnknownKind
from holdfast.store import Store
from holdfast.store.schedules.firing import Decided
from holdfast.store.sqlite.backend import SqliteBackend
from holdfast.testing import drain, plan
from holdfast.worker.metrics import WorkerCollector
from holdfast.worker.schedules.clock_check import ClockCheck
from holdfast.worker.schedules.planner import Planner
from holdfast.worker.schedules.scopes import ScopeProviders
from holdfast.worker.stats import Stats
from tests.support.backends import START
from tests.support.processes import wait_until

MINUTE = timedelta(minutes=1)


@pytest.fixture
def app(database):
    with holdfast.Holdfast(database.url) as app:
        app.use(database.url, database.open())
        yield app


@pytest.fixture
def real_app(real_database):
    with holdfast.Holdfast(real_database.url) as app:
        yield app


def planner(app, *, patience=10.0, **options):
    """A planner of its own, as another process would have."""
    app.declare_schedules()
    return Planner(app.store, ScopeProviders(app.providers, **options), counts=Stats(), patience=patience)


def minutes(app, name="rollup"):
    """The plans that were fired, as minutes since the start."""
    return sorted((each.time - START) // MINUTE for each in app.store.plans.history(name, limit=1000))


def declare(app, expression="*/5 * * * *", **options):
    seen = []

    @app.schedule(expression, **options)
    @app.job()
    def rollup(plan: Plan) -> None:
        seen.append(plan)

    return seen


# -- what is fired -----------------------------------------------------------------------------


def test_the_handler_is_told_its_plan(app):
    """The time is that of the rule, whenever it runs; the key is the same at every attempt."""
    seen = declare(app, delay="30s")
    assert (plan(app), drain(app)) == (1, 1)
    (told,) = seen
    assert (told.time, told.scope, told.schedule) == (START - 5 * MINUTE, "global", "rollup")
    assert told.key == Plan("rollup", START - 5 * MINUTE).key


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
    """And one after the other: a later one waits for the earlier."""
    seen = declare(app, catch_up="every")
    plan(app)
    clock.advance(minutes=32)
    assert plan(app) == 6
    drain(app)
    assert [(each.time - START) // MINUTE for each in seen] == [0, 5, 10, 15, 20, 25, 30]


def test_what_the_cap_leaves_waits_for_the_next_tick(app, clock):
    declare(app, "* * * * *", catch_up="every", overlap="allow")
    plan(app)
    clock.advance(minutes=250)
    assert [planner(app).tick().processed for _ in range(4)] == [100, 100, 50, 0]


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
    """One scope that cannot be a name holds up no other; a new one is there with the next plan."""
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


def test_a_slow_provider_holds_up_its_own_schedule_alone(app):
    """Its answer is used when it comes."""
    answer = threading.Event()

    def tenants():
        answer.wait(60)
        return ["a"]

    declare(app, scopes=tenants)
    app.schedules.create("other", "rollup", "*/5 * * * *")
    one = planner(app, patience=0.01)
    assert one.tick().processed == 1
    assert (one.tick().next_in, minutes(app), minutes(app, "other")) == (0.2, [], [0])
    answer.set()
    wait_until(lambda: one.tick().processed)
    assert minutes(app) == [0]


def test_an_answer_that_came_too_late_decides_no_other_plan(app, clock):
    """Another replica was faster; meanwhile there is a new tenant."""
    tenants, slow = ["a"], threading.Event()

    def answer():
        found = [*tenants]
        slow.wait(60)
        return found

    declare(app, scopes=answer, overlap="allow")
    late = planner(app, patience=0.01)
    late.tick()
    slow.set()
    assert plan(app) == 1
    tenants.append("b")
    clock.advance(minutes=5)
    late._timekeeper = ClockCheck()
    wait_until(lambda: late.tick().processed)
    fired = [(each.scope, (each.time - START) // MINUTE) for each in app.store.plans.history("rollup")]
    assert sorted(fired) == [("a", 0), ("a", 5), ("b", 5)]


def test_many_slow_providers_cost_a_tick_no_more_than_one(app):
    """They are asked side by side, and a tick waits for all of them together."""
    never = threading.Event()
    asked = []

    def tenants():
        asked.append(1)
        never.wait(60)
        return []

    app.scopes("tenants")(tenants)
    declare(app, overlap="allow")
    for n in range(5):
        app.schedules.create(f"slow {n}", "rollup", "*/5 * * * *", scopes="tenants")
    one = planner(app, patience=0.01)
    assert one.tick().processed == 1
    wait_until(lambda: len(asked) == 5)
    never.set()


def test_a_provider_that_hangs_sets_its_schedule_back(app):
    never = threading.Event()
    declare(app, scopes=lambda: [str(never.wait(60))])
    planner(app, patience=0.0, hangs=-1.0).tick()
    assert "has not answered" in app.schedules.get("rollup").error
    never.set()


@pytest.mark.parametrize("answer", ["abc", None, 5])
def test_what_is_no_list_of_scopes_is_told(app, answer):
    declare(app, scopes=lambda: answer)
    assert plan(app) == 0
    assert "a list of texts" in app.schedules.get("rollup").error


def test_a_plan_without_any_scope_is_in_the_ledger(app):
    declare(app, scopes=list)
    assert plan(app) == 0
    assert [str(skip.reason) for skip in app.store.plans.skips("rollup")] == ["scope"]
    assert app.schedules.get("rollup").fired == 0


def test_many_scopes_take_fewer_moments_at_once(app, clock):
    declare(app, "* * * * *", catch_up="every", overlap="allow", scopes=[f"s{n}" for n in range(2000)])
    assert plan(app) == 2000
    clock.advance(minutes=5)
    assert [planner(app).tick().processed for _ in range(3)] == [4000, 4000, 2000]


# -- what is broken ----------------------------------------------------------------------------


def test_one_broken_schedule_never_stops_the_tick(app, clock):
    """SPEC 8.15: it is set back alone, longer each time, and goes on by itself when it is mended."""
    broken = [ValueError("the tenants are gone")]

    def tenants():
        if broken:
            raise broken[0]
        return ["a"]

    declare(app, scopes=tenants)
    app.schedules.create("good", "rollup", "*/5 * * * *", overlap="allow")
    app.store.backend.run(_ask_garbage(app))
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


def _ask_garbage(app):
    """A schedule whose definition nobody can read, as if another program had written it."""
    from holdfast.store.engine.operation import query

    values = {"declared": None, "version": 0, "provider": None, "actor": "ada"}
    return query("create_schedule", name="garbage", definition='{"kind": 1}', **values)


def test_a_step_that_cannot_be_taken_is_taken_alone(app, clock):
    """A kind whose unique key cannot be formed: the others of the same transaction are not lost."""
    declare(app, overlap="allow")

    @app.job(unique=["to"])
    def send(to: int = 1) -> None: ...

    app.schedules.create("bad", "send", "*/5 * * * *", payload={"to": 1})
    app.store.schedules.update("bad", lambda known: structs.replace(known, payload={}), actor="ada")
    assert plan(app) == 1
    assert "unique key" in app.schedules.get("bad").error


def test_a_kind_that_nobody_has_is_told(app):
    declare(app)
    with pytest.raises(UnknownKind):
        app.schedules.create("lost", "rolup", "@daily")


# -- replicas and clocks -----------------------------------------------------------------------


@given(st.data())
def test_every_plan_is_decided_once_however_planners_share_the_work(tmp_path_factory, data):
    """Ticks at any time, by any replica, some of which die between deciding and writing: no plan lost or doubled."""
    now = [START]
    path = tmp_path_factory.mktemp("planners") / "jobs.db"
    store = Store(SqliteBackend(path, durability="fast", clock=lambda: now[0]))
    app = holdfast.Holdfast()
    app.use(None, store)
    declare(app, "*/5 * * * *", catch_up=data.draw(st.sampled_from(["every", "latest", "none"])), overlap="allow")
    replicas = [planner(app) for _ in range(3)]
    for wait, place, dies in data.draw(
        st.lists(st.tuples(st.integers(0, 600), st.integers(0, 2), st.booleans()), min_size=1, max_size=12)
    ):
        now[0] += timedelta(minutes=wait)
        replica = replicas[place]
        replica._timekeeper = ClockCheck()
        if dies:
            tick_and_die(replica)
        else:
            replica.tick()
    schedule = app.schedules.get("rollup")
    fired = [each.time for each in store.plans.history("rollup", limit=10_000)]
    skipped = [
        time
        for skip in store.plans.skips("rollup", limit=10_000)
        for time in between(schedule.defined.when.rule(), skip.first - MINUTE, skip.last)
    ]
    app.close()
    if schedule.cursor is not None:
        decided = list(between(schedule.defined.when.rule(), min([*fired, *skipped]) - MINUTE, schedule.cursor))
        assert sorted([*fired, *skipped]) == decided


def tick_and_die(replica):
    """A tick whose process is gone before anything is written."""

    def die(steps):
        raise SystemExit

    taken, replica._store.plans.advance = replica._store.plans.advance, die
    with suppress(SystemExit):
        replica.tick()
    replica._store.plans.advance = taken


@pytest.mark.parametrize("catch_up", ["every", "latest", "none"])
def test_a_clock_that_goes_back_and_forth_replays_nothing(app, clock, catch_up):
    """Each plan has one job, and none comes before its time was reached for the first time."""
    declare(app, catch_up=catch_up, overlap="allow")
    for step in (0, 5, 5, -60, 5, 5, 55, 5, -1440, 1440, 5):
        clock.advance(minutes=step)
        plan(app)
    assert minutes(app) == [0, 5, 10, 15, 20, 25]
    jobs = app.views.page(holdfast.Selector(), limit=100).jobs
    assert len(jobs) == 6
    assert len({job.payload for job in jobs}) == 6


def test_what_another_planner_holds_is_left_to_it(app, monkeypatch):
    """A planner that could move nothing does not spin."""
    declare(app)
    one = planner(app)
    monkeypatch.setattr(app.store.plans, "advance", lambda advances: Decided([], 0, {}))
    assert one.tick().next_in == 0.2


def test_a_clock_that_leaps_ahead_for_a_moment_fires_nothing(caplog):
    """It is believed when it has kept its new time for a minute."""
    keeper, later = ClockCheck(), START + timedelta(days=400)
    assert keeper.believes(START, 0.0)
    with caplog.at_level(logging.WARNING, logger="holdfast"):
        assert not keeper.believes(later, 10.0)
        assert not keeper.believes(later + timedelta(seconds=30), 40.0)
    assert len(caplog.records) == 1
    assert keeper.believes(START + timedelta(seconds=50), 50.0)
    assert not keeper.believes(later, 60.0)
    assert keeper.believes(later + timedelta(seconds=61), 121.0)
    assert keeper.believes(START, 122.0)


def test_the_planner_waits_until_a_clock_is_believed(app, clock):
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


# -- what code may declare ---------------------------------------------------------------------


def test_a_schedule_is_declared_above_a_job(app):
    with pytest.raises(InvalidKind, match="fires a job"):
        app.schedule("@daily")(lambda: None)
    declare(app)
    with pytest.raises(InvalidKind, match="declared already"):
        app.schedule("@daily", name="rollup")(app.job(name="other")(lambda: None))


def test_what_the_handler_does_not_take_is_refused_at_once(app):
    with pytest.raises(InvalidPayload):
        app.schedule("@daily", payload={"to": "x"})(app.job(name="one")(_takes_int))
    with pytest.raises(InvalidInput, match="overlap"):
        app.schedule("@daily", overlap="never")(app.job(name="two")(_takes_int))
    for wrong in ({"scopes": 5}, {"scopes": []}, {"tz": None}, {"runs": 2**40}, {"name": ""}, {"catch_up": None}):
        with pytest.raises(InvalidInput):
            app.schedule("@daily", payload={"to": 1}, **wrong)(app.job(name=f"four {wrong}")(_takes_int))
    with pytest.raises(InvalidInput, match="catch_up"):
        app.schedule("@daily", cach_up="every", payload={"to": 1})(app.job(name="three")(_takes_int))


def _takes_int(to: int) -> None: ...


def test_a_plan_without_its_type_is_told(app):
    with pytest.raises(InvalidPayload) as raised:
        app.schedule("@daily")(app.job(name="one")(lambda plan: None))
    assert "holdfast.Plan" in raised.value.hint


def test_what_a_person_has_made_is_left_alone_and_told(app, caplog):
    @app.job()
    def rollup(plan: Plan) -> None: ...

    app.schedules.create("rollup", "rollup", "@yearly")
    app.schedule("@daily")(rollup)
    with caplog.at_level(logging.WARNING, logger="holdfast"):
        app.declare_schedules()
    assert "made by a person" in caplog.text
    assert app.schedules.get("rollup").defined.when.expression == "@yearly"


# -- with real workers -------------------------------------------------------------------------


def test_a_long_handler_delays_no_other_schedule(real_app):
    """SPEC 8.10: one plan runs for as long as the test; the others fire and run in their time."""
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
    """SPEC 8.8: its worker was lost in the middle; nothing runs it again by itself, and newer plans go on."""

    @app.schedule("*/5 * * * *")
    @app.job(on_lost="hold")
    def charge(plan: Plan) -> None: ...

    plan(app)
    (lease,) = app.store.leases.claim("w1", queues=["default"], kinds=["charge"], mark=True)
    clock.advance(minutes=5)
    app.store.leases.take_over()
    plan(app)
    drain(app)
    found = {(each.time - START) // MINUTE: str(each.state) for each in app.store.plans.history("charge")}
    assert found == {0: "held", 5: "done"}
    assert app.views.get(lease.job_id).attempts == 1


def test_a_schedule_that_is_made_while_a_worker_runs_is_planned_soon(real_app):
    @real_app.job()
    def rollup(plan: Plan) -> None: ...

    with real_app.worker(poll=0.05):
        real_app.schedules.create("soon", "rollup", "@yearly")
        assert wait_until(lambda: [each.state for each in real_app.store.plans.history("soon")] == [State.DONE])


def test_a_worker_may_leave_planning_to_others(real_app):
    declare(real_app)
    with real_app.worker(poll=0.05, plans=False) as worker:
        wait_until(lambda: worker.counts.ticks["maintenance", "processed"])
        assert not any(part == "planner" for part, _ in worker.counts.ticks)
    assert minutes(real_app) == []


def test_a_scheduler_plans_and_runs_nothing(real_app):
    seen = declare(real_app)
    with real_app.scheduler() as scheduler:
        wait_until(lambda: real_app.store.plans.history("rollup"))
        assert scheduler.kinds == []
    assert seen == []


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


# -- pings -------------------------------------------------------------------------------------


@pytest.fixture
def web():
    """A server that notes the paths it is asked for."""
    paths = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(302 if "away" in self.path else 200)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    server.paths = paths
    yield server
    server.shutdown()
    server.server_close()


def ping_state(app):
    return [str(job.state) for job in app.views.page(holdfast.Selector(kinds=("holdfast.ping",))).jobs]


def test_a_success_is_pinged(real_app, web, monkeypatch):
    monkeypatch.setenv("HOLDFAST_PING_HOSTS", "127.0.0.1")
    declare(real_app, "@yearly", ping=f"http://127.0.0.1:{web.server_port}/rollup?a=1")
    with real_app.worker(poll=0.05):
        wait_until(lambda: web.paths)
        wait_until(lambda: ping_state(real_app) == ["done"])
    assert web.paths == ["/rollup?a=1"]


def test_a_failure_is_not_pinged(real_app, web, monkeypatch):
    monkeypatch.setenv("HOLDFAST_PING_HOSTS", "127.0.0.1")

    @real_app.schedule("@yearly", ping=f"http://127.0.0.1:{web.server_port}/rollup")
    @real_app.job(max_attempts=1)
    def rollup(plan: Plan) -> None:
        raise ValueError("no")

    with real_app.worker(poll=0.05):
        wait_until(lambda: ping_state(real_app) == ["cancelled"])
    assert web.paths == []


@pytest.mark.parametrize(
    ("hosts", "host"), [("", "127.0.0.1"), ("example.com", "127.0.0.1"), ("127.0.0.1", "localhost")]
)
def test_only_hosts_that_are_allowed_are_called(real_app, web, monkeypatch, hosts, host):
    """Off by default: a schedule must not reach into the network."""
    monkeypatch.setenv("HOLDFAST_PING_HOSTS", hosts)
    declare(real_app, "@yearly", ping=f"http://{host}:{web.server_port}/rollup")
    with real_app.worker(poll=0.05):
        wait_until(lambda: ping_state(real_app) == ["dead"])
    (job,) = real_app.views.page(holdfast.Selector(kinds=("holdfast.ping",))).jobs
    assert "ping_hosts" in job.error
    assert web.paths == []


def test_a_ping_follows_nobody(web):
    from holdfast.worker.schedules.ping import call

    with pytest.raises(holdfast.Retry, match="302"):
        call(f"http://127.0.0.1:{web.server_port}/away")
    assert web.paths == ["/away"]


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://x", "http://", "https://user:word@x.example", "x", "http://x:y"]
)
def test_what_is_no_url_of_the_web_is_refused(app, url):
    declare(app)
    with pytest.raises(InvalidInput, match="ping"):
        app.schedules.create("other", "rollup", "@daily", ping=url)
