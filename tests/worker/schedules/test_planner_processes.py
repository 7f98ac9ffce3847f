"""Planners as processes, killed and stopped at random: each plan is fired exactly once."""

from __future__ import annotations

import random
import threading
from collections import Counter
from datetime import timedelta

import msgspec
import pytest

from holdfast.domain.schedules.definition import CatchUp, Definition
from holdfast.domain.schedules.firing_times import between
from holdfast.domain.schedules.plan import Overlap
from holdfast.worker.schedules.planner import Planner
from holdfast.worker.schedules.scopes import ScopeProviders
from holdfast.worker.stats import Stats
from tests.support.fleet import make_app
from tests.support.processes import Child, open_store, wait_until

PLANNERS = 8
#: The plans of each schedule; a tick decides a hundred of them.
TIMES = 500
#: The schedules become due in so many rounds.
ROUNDS = 5
SECOND = timedelta(seconds=1)
KINDS = {
    "alone": Definition(kind="quick", every=SECOND, catch_up=CatchUp.EVERY, overlap=Overlap.ALLOW),
    "in a line": Definition(kind="quick", every=SECOND, catch_up=CatchUp.EVERY),
}


def keep_planning(pipe, url):
    """The main function of a planner process."""
    planner = Planner(open_store(url), ScopeProviders({"pair": lambda: ["a", "b"]}), counts=Stats())
    pipe.send("up")
    while True:
        planner.wake.wait(min(planner.tick().next_in, 0.02))


class Planners:
    """Planner processes; one is always stopped, and one is killed at random."""

    def __init__(self, url, *, seed):
        self.random = random.Random(seed)
        self.kills = 0
        self._url = url
        self._all = [Child(keep_planning, url) for _ in range(PLANNERS)]
        for child in self._all:
            child.hear()

    def disturb(self):
        paused = self.random.choice(self._all)
        paused.pause()
        index = self.random.randrange(PLANNERS)
        self._all[index].kill()
        self._all[index].end()
        self.kills += 1
        self._all[index] = Child(keep_planning, self._url)
        if self._all.count(paused):
            paused.resume()

    def close(self):
        for child in self._all:
            child.kill()
            child.end()


@pytest.fixture
def schedules(real_database):
    """Schedules without a due plan, the time from which ten thousand are to be due, and these."""
    store = real_database.open()
    make_app(real_database.url).store.close()
    count = 10
    now = store.schedules.now().replace(microsecond=0)
    made = {}
    for kind, base in KINDS.items():
        for n in range(count // 2 if kind == "in a line" else count):
            name = f"{kind} {n}"
            provider = "pair" if kind == "in a line" else None
            definition = msgspec.structs.replace(base, end=now, payload={"n": n}, provider=provider)
            store.schedules.create(name, definition, actor="ada")
            made[name] = ("a", "b") if provider else ("global",)
    begun = now - TIMES * SECOND
    times = list(between(KINDS["alone"].rule(), begun, now))
    expected = {(name, time, scope): 1 for name, scopes in made.items() for scope in scopes for time in times}
    return store, begun, expected


def make_due(database, names, begun):
    """Let the plans of some schedules since *begun* be due."""
    mark = "?" if database.name == "sqlite" else "%s"
    value = int(begun.timestamp() * 1_000_000) if database.name == "sqlite" else begun
    change = f"UPDATE holdfast.schedule SET cursor = {mark}, next_at = {mark}, check_at = {mark} WHERE name = {mark}"
    for name in names:
        database.execute(change, (value, value, value, name))


def is_due(database):
    """Whether plans are undecided, those of a schedule that has to wait after a failure too."""
    return database.execute("SELECT count(*) FROM holdfast.schedule WHERE next_at IS NOT NULL")[0][0] > 0


def test_each_plan_is_fired_exactly_once(real_database, schedules):
    """Eight planners, stopped and killed -9 at random: no plan is lost, none has two jobs.

    In each round there is work when the disturbance begins, however fast the planners are.
    """
    store, begun, expected = schedules
    names = sorted({key[0] for key in expected})
    assert not is_due(real_database)
    planners = Planners(real_database.url, seed=7)
    pause = threading.Event()
    try:
        for each in range(ROUNDS):
            make_due(real_database, names[each::ROUNDS], begun)
            planners.disturb()
            while is_due(real_database):
                planners.disturb()
                pause.wait(planners.random.uniform(0.0, 0.05))
    finally:
        planners.close()
    assert planners.kills >= ROUNDS
    history = [plan for name in names for plan in store.plans.history(name, limit=100_000)]
    assert Counter((plan.schedule, plan.time, plan.scope) for plan in history) == expected
    (jobs,) = real_database.execute("SELECT count(*) FROM holdfast.job")[0]
    assert jobs == len(expected)
    assert len({plan.job_id for plan in history}) == len(history)


def test_a_stopped_planner_that_wakes_up_writes_nothing(real_database):
    """It stops between its decision and its write; another planner decides the same, and the first write is refused."""
    store = real_database.open()
    make_app(real_database.url).store.close()
    past = store.schedules.now() - timedelta(days=2)
    definition = Definition(kind="quick", every=timedelta(days=1), payload={"n": 1}, start=past)
    store.schedules.create("daily", definition, actor="ada")
    child = Child(decide_and_wait, real_database.url)
    assert child.hear() == "decided"
    child.pause()
    other = Planner(store, ScopeProviders({}), counts=Stats())
    wait_until(lambda: other.tick().processed == 1)
    child.resume()
    child.tell("go on")
    assert child.hear() == ([], 0)
    child.end()
    assert len(store.plans.history("daily")) == 1


def decide_and_wait(pipe, url):
    store = open_store(url)
    advance = store.plans.advance

    def slowly(advances):
        pipe.send("decided")
        pipe.recv()
        decided = advance(advances)
        pipe.send((decided.moved, decided.fired))
        return decided

    store.plans.advance = slowly
    Planner(store, ScopeProviders({}), counts=Stats()).tick()
