"""Every scenario meets a crash, an error and another actor before every statement; afterwards nothing is lost or doubled."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.domain.batches.unit import UnitOutcome, UnitState
from holdfast.domain.jobs.job import Lease, WorkerId
from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.verdict import Done, Failed, Lost, Released, Stopped
from holdfast.errors import HoldfastError, LeaseLost
from holdfast.store.batches.unit_choice import NextUnits
from holdfast.store.engine.operation import ById, query
from holdfast.store.jobs.enqueue import EnqueueCall
from tests.chaos.batch_scenarios import BATCH_SCENARIOS
from tests.chaos.points import Fault, Points, strike
from tests.chaos.scenarios import HOUR, KEYS, KIND, QUEUE, SCENARIOS, World, keys, opening, recover
from tests.chaos.standing import Broken, audit
from tests.chaos.worlds import Worlds

#: More points than any scenario has: a scenario that never comes to its end is a mistake of its own.
MOST = 400
#: A crash strikes at every odd point, and another actor at every even one. ``HOLDFAST_POINTS=each`` lets both strike at
#: every point. ``all`` also stands before every statement inside a transaction of PostgreSQL.
CHOSEN = os.environ.get("HOLDFAST_POINTS", "half")
FIRST = {Fault.CRASH: 1, Fault.DELAY: 2} if CHOSEN == "half" else {}
COARSE = CHOSEN != "all"


@pytest.fixture
def worlds(backend_name: str, tmp_path: Path):
    with Worlds(backend_name, tmp_path) as found:
        yield found


@pytest.mark.parametrize("name", ALL := {**SCENARIOS, **BATCH_SCENARIOS})
def test_a_fault_at_any_point_breaks_nothing(worlds: Worlds, name: str):
    """Crash, error, lost answer and interference, before one statement after the other until none is left."""
    scenario = ALL[name]
    struck = 0
    for fault in worlds.faults:
        stride = 2 if fault in FIRST else 1
        for at in range(FIRST.get(fault, 1), MOST, stride):
            world = worlds.make()
            scenario.prepare(world)
            points = Points(fault, at, meanwhile=lambda world=world: interfere(worlds, world, scenario), coarse=COARSE)
            try:
                strike(worlds.on_points(points), points, lambda store, world=world: scenario.act(world, store))
                recover(world)
                scenario.after(world)
            except BaseException as error:
                error.add_note(f"{name}: {fault} at point {at}, before {points.before!r}")
                raise
            if not points.fired:
                left = at - points.passed
                assert 0 < left <= stride, "the points of one run are those of the next, or some were passed over"
                break
            struck += 1
        else:
            pytest.fail(f"{name} has no end")
    assert struck >= len(worlds.faults) - len(FIRST) / 2, "a scenario without points proves nothing"


def interfere(worlds: Worlds, world: World, scenario) -> None:
    """Somebody else acts; where a lock stops them, they do not."""
    with suppress(HoldfastError):
        scenario.meanwhile(world, worlds.other)


# -- who is late -----------------------------------------------------------------------------


def _flush_one(store, run):
    store.batches.flush(run, next_units=NextUnits(candidates=keys(KEYS), limit=1))


def renew(store, lease):
    if not store.leases.renew([lease], lease_duration=9 * HOUR, begun=[lease.job_id]):
        raise LeaseLost.of(lease.job_id, lease.token)


def mark(store, lease):
    if not store.leases.record_starts([lease]):
        raise LeaseLost.of(lease.job_id, lease.token)


#: What a holder may write: job, and batch.
WRITES = {
    "settle done": lambda store, lease: store.leases.settle(lease, Done("1")),
    "settle failed": lambda store, lease: store.leases.settle(lease, Failed(error="late")),
    "settle released": lambda store, lease: store.leases.settle(lease, Released()),
    "settle stopped": lambda store, lease: store.leases.settle(lease, Stopped()),
    "settle lost": lambda store, lease: store.leases.settle(lease, Lost(begun=True)),
    "renew": renew,
    "mark": mark,
    "progress": lambda store, lease: store.leases.report(lease, done=9, total=9, message="late"),
    "checkpoint": lambda store, lease: store.leases.report(lease, checkpoint='"late"'),
    "step": lambda store, lease: store.steps.keep(lease, "late", result="1"),
    "child": lambda store, lease: store.jobs.enqueue_child(NewJob(kind=KIND, label="late"), EnqueueCall(lease)),
}
BATCH_WRITES = {
    "flush": _flush_one,
    "unit ends": lambda store, run: store.batches.flush(run, [_end("3", 0)]),
    "plan": lambda store, run: store.batches.plan(run, keys([7])),
    "end": lambda store, run: store.batches.end(run, None, 0, complete=True),
    "leave": lambda store, run: store.batches.leave(run, None),
}


def _end(key, place):
    return UnitOutcome(key=key, position=place, state=UnitState.DONE)


@pytest.mark.parametrize("name", [*WRITES, *BATCH_WRITES])
def test_who_is_late_takes_nothing_from_the_new_holder(worlds: Worlds, name: str):
    """Taken over at any point of a holder's write: that is refused, and the new holder's run is untouched."""
    taken, at = 0, 0
    while True:
        at += 1
        world = worlds.make()
        late = Late(worlds, world, batch=name in BATCH_WRITES)
        points = Points(Fault.DELAY, at, meanwhile=late.take_over)
        store = worlds.on_points(points)
        try:
            (BATCH_WRITES if late.batch else WRITES)[name](store, late.held)
            accepted = True
        except LeaseLost:
            accepted = False
        finally:
            store.backend.vanish()
        taken += late.taken
        if late.taken and (accepted or late.tables() != late.seen):
            raise Broken("I4", f"{name}: taken over at point {at}, before {points.before!r}, and it still wrote")
        if not late.taken and not accepted:
            raise Broken("I4", f"{name}: the holder was refused, and nobody had taken over ({points.before!r})")
        audit(world.database.execute)
        if not points.fired:
            break
    assert taken, "nobody was ever taken over: this proves nothing"


class Late:
    """A holder, and another who takes its job over and begins it anew."""

    def __init__(self, worlds: Worlds, world: World, *, batch: bool) -> None:
        self.batch = batch
        self.taken = False
        self.seen: object = None
        self._other = worlds.other
        self._world = world
        if batch:
            self.held = world.store.batches.open(opening(), worker=WorkerId("first"))
        else:
            world.enqueue(world.store, "a")
            (self.held,) = world.claim(world.store)

    def take_over(self) -> None:
        """Time passes, the lease lapses, and somebody else runs the job: unless a lock of the holder is in the way."""
        clock = self._world.database.clock
        clock.advance(2 * HOUR)
        with suppress(HoldfastError):
            self.taken = bool(self._other.leases.take_over())
            self._begin_anew()
        self.seen = self.tables()

    def _begin_anew(self) -> None:
        if self.batch:
            run = self._other.batches.open(opening(), worker=WorkerId("second"))
            _flush_one(self._other, run)
            return
        for lease in self._world.claim(self._other, "second", started=True):
            self._other.leases.report(lease, done=1, checkpoint="1")

    def tables(self) -> object:
        """All that a holder may write."""
        names = (
            "live",
            "finished",
            "progress",
            "attempt",
            "step",
            "job",
            "event",
            "batch",
            "unit",
            "in_flight",
            "unit_count",
        )
        return {
            name: sorted(self._world.database.execute(f"SELECT * FROM holdfast.{name}"), key=repr) for name in names
        }


# -- two at once -----------------------------------------------------------------------------


def test_a_limit_is_exact_whoever_comes_between(worlds: Worlds):
    """Another claims at every point of a claim: never do more run than may."""
    at, fired = 0, True
    while fired:
        at += 1
        world = worlds.make()
        world.enqueue(world.store, "a", "b", "c")
        world.store.queues.set_limits(QUEUE, limit=1)
        points = Points(Fault.DELAY, at, meanwhile=lambda world=world: _claim_beside(worlds, world))
        store = worlds.on_points(points)
        world.claim(store, limit=3)
        store.backend.vanish()
        ((running,),) = world.database.execute("SELECT count(*) FROM holdfast.live WHERE state = 'running'")
        if running > 1:
            raise Broken("I8", f"{running} jobs run, 1 may: another claimed before {points.before!r}")
        fired = points.fired
    assert at > 1


def _claim_beside(worlds: Worlds, world: World) -> None:
    with suppress(HoldfastError):
        world.claim(worlds.other, "second", limit=3)


def test_a_job_is_handed_to_one_of_two_who_claim_at_once(worlds: Worlds):
    """The first has claimed and not committed yet: the second finds nothing, now or when it has waited."""
    world = worlds.make()
    world.enqueue(world.store, "a")
    kinds = ById(id=[KIND], lease_duration=[HOUR], short=[False])
    asked = {"queues": [QUEUE], "kinds": kinds, "free": 1, "ahead": 0, "few": 1, "alone": 1}
    asked |= {"autoscaled": [], "unfinished": [], "build": "", "lease_duration": None}
    found: list[Lease] = []
    second = threading.Thread(target=lambda: found.extend(world.claim(world.store, "second")))
    with world.store.backend.transaction() as connection:
        (first,) = world.store.backend.run_on(connection, _single(query("claim", Lease, worker="first", **asked)))
        second.start()
        second.join(0.5)  # without a lock it would wait for the row, and then take it again
    second.join(60)
    if found:
        raise Broken("I3", f"job {first.job_id} was handed to two, under tokens {first.token} and {found[0].token}")


def _single(step):
    return (yield step)
