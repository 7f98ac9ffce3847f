"""Random histories of a schedule: however it is changed, each plan fires at most once, and none is lost silently."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta

import msgspec
import pytest
from msgspec import Struct

import holdfast
from holdfast import Plan
from holdfast.domain.schedules.definition import Definition
from holdfast.domain.schedules.firing_times import MICROSECOND, between
from holdfast.worker.schedules.planner import ClockCheck, Planner, _Tick
from holdfast.worker.schedules.scopes import ScopeProviders
from holdfast.worker.stats import Stats

NAME, MINUTE = "rollup", timedelta(minutes=1)
STEPS = 60


class Span(Struct):
    """The time in which a schedule had one rule. *decided_until*: the cursor when it was deleted."""

    definition: Definition
    since: object
    until: object = None
    decided_until: object = None

    def times(self, now):
        rule, end = self.definition.rule(), min(self.until or now, now)
        return list(between(rule, self.since, end))


class History:
    """Changes a schedule at random, beside planners that may be late, and knows what must have been decided."""

    def __init__(self, app, clock, seed):
        self.app, self.clock, self.random = app, clock, random.Random(seed)
        self.store = app.store
        self.planners = [Planner(self.store, ScopeProviders({}), counts=Stats()) for _ in range(3)]
        self.late = []
        self.spans = []
        self.seen = set()

    def step(self):
        there = bool(self.spans) and self.spans[-1].decided_until is None
        actions = [self.advance, self.advance, self.tick, self.tick, self.decide, self.apply]
        actions += [self.edit, self.pause, self.resume, self.remove] if there else [self.add, self.add]
        self.random.choice(actions)()

    def advance(self):
        self.clock.advance(self.random.randrange(0, 900) * timedelta(seconds=1))

    def tick(self):
        planner = self.random.choice(self.planners)
        planner._clock_check = ClockCheck()
        planner.tick()

    def decide(self):
        """A planner decides by what it sees, and may write later, or never."""
        due = self.store.schedules.due(limit=9)
        self.late += [self.planners[0]._try(each, _Tick(due.now, {})) for each in due.schedules]

    def apply(self):
        if self.late:
            self.store.plans.advance([self.late.pop(self.random.randrange(len(self.late)))])

    def options(self):
        return {
            "expression": self.random.choice(["*/5 * * * *", "*/10 * * * *", "*/3 * * * *"]),
            "delay": self.random.choice(["0s", "4m", "12m"]),
            "catch_up": self.random.choice(["every", "every", "latest"]),
        }

    def add(self):
        options, start = self.options(), None
        if self.random.random() < 0.5:
            start = self.clock.now() - self.random.randrange(60) * MINUTE
        self.app.schedules.create(NAME, "rollup", options.pop("expression"), start=start, overlap="allow", **options)
        self.spans.append(Span(self.definition, (start or self.clock.now()) - MICROSECOND))

    @property
    def definition(self):
        return self.store.schedules.get(NAME).defined

    def edit(self):
        before, now = self.definition, self.clock.now()
        options = self.options()
        chosen = self.random.sample(sorted(options), self.random.randrange(1, 3))
        self.app.schedules.update(NAME, **{name: options[name] for name in chosen})
        after = self.definition
        if after.cron != before.cron:
            self.spans[-1].until = now
            self.spans.append(Span(after, now))
        else:
            self.spans[-1].definition = after
        for time in self.new_skips("edited", before.rule()):
            lost = time + before.delay > now and after.rule().next_after(time - MICROSECOND) == time
            assert not lost, f"V3 is broken: the edit lost {time}, which waited for its delay"

    def pause(self):
        self.app.schedules.pause(NAME)

    def resume(self):
        now, definition = self.clock.now(), self.definition
        self.app.schedules.resume(NAME)
        for time in self.new_skips("paused", definition.rule()):
            assert time + definition.delay <= now, f"V3 is broken: the pause lost {time}, which waited for its delay"

    def remove(self):
        self.spans[-1].until = self.clock.now()
        cursor = self.store.schedules.get(NAME).cursor
        self.app.schedules.delete(NAME)
        for span in self.spans:
            if span.decided_until is None:
                span.decided_until = cursor

    def new_skips(self, reason, rule):
        """The times of *rule* that have been skipped for this reason since the last call."""
        skips = [each for each in self.store.plans.skips(NAME, limit=10_000) if str(each.reason) == reason]
        new = [each for each in skips if each not in self.seen]
        self.seen.update(new)
        return [time for skip in new for time in between(rule, skip.first - MICROSECOND, skip.last)]

    def come_to_rest(self):
        self.clock.advance(30 * MINUTE)
        for planner in self.planners:
            planner._clock_check = ClockCheck()
            while planner.tick().considered:
                pass
        for each in self.late:
            self.store.plans.advance([each])

    def check(self):
        fired = {each.time for each in self.store.plans.history(NAME, limit=100_000)}
        skips = self.store.plans.skips(NAME, limit=100_000)
        jobs = Counter(
            msgspec.json.decode(job.payload)["plan"]["time"] for job in self.app.views.all(holdfast.Selector())
        )
        assert max(jobs.values(), default=1) == 1, f"I7 is broken: fired more than once: {jobs.most_common(3)}"
        assert len(jobs) == len(fired)
        for span in self.spans:
            for time in span.times(self.clock.now()):
                if time not in fired and not any(skip.first <= time <= skip.last for skip in skips):
                    self.check_undecided(span, time)

    def check_undecided(self, span, time):
        if span.decided_until is not None:
            assert time > span.decided_until, f"I7 is broken: {time} was lost before the deletion"
            return
        schedule = self.store.schedules.get(NAME)
        assert time > schedule.cursor, f"I7 is broken: {time} was neither fired nor skipped"
        waits = time + schedule.defined.delay > self.clock.now()
        assert schedule.paused or waits, f"I7 is broken: {time} is due, and no planner decides it"


@pytest.mark.parametrize("seed", range(12))
def test_each_plan_fires_at_most_once_and_none_is_lost(app, clock, seed):
    """V3, V4: add, edit, pause, resume, rm, add again, clock steps, planners that are late or die."""

    @app.job()
    def rollup(plan: Plan) -> None: ...

    assert app.store
    history = History(app, clock, seed)
    for _ in range(STEPS):
        history.step()
    history.come_to_rest()
    history.check()
