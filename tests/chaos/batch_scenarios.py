"""Batches that meet a fault at every point: epochs side by side, verified units, deadlines and conflicts."""

from __future__ import annotations

import json

from holdfast.client.batches.keys import epochs
from holdfast.domain.batches.batch import AbortedBy, Sharding
from holdfast.domain.batches.unit import UnitOutcome, UnitState
from holdfast.domain.jobs.job import WorkerId
from holdfast.domain.jobs.verdict import Done
from holdfast.errors import BatchHeld, LeaseLost
from holdfast.store import Store
from holdfast.store.batches.state import MAX_CRASHES
from holdfast.store.batches.unit_choice import NextUnits
from tests.chaos.scenarios import (
    HOUR,
    KEYS,
    MINUTE,
    QUEUE,
    SHARD,
    Scenario,
    World,
    after_launch,
    begin,
    keys,
    make_effect,
    opening,
    run_units,
    steer,
    work_off,
)
from tests.chaos.standing import Broken

#: The range that is cut into epochs.
LOW, HIGH = 1, 6


def _next(world: World, limit: int) -> NextUnits:
    return NextUnits(candidates=keys(world.keys), limit=limit)


# -- epochs ----------------------------------------------------------------------------------


def _cut(world: World) -> None:
    world.keys = epochs(LOW, HIGH, 2)


def _epochs(world: World, store: Store) -> None:
    """Two runs of one batch, each with an epoch in hand; the second leaves before the first."""
    first = begin(world, store)
    second = store.batches.open(opening(join=True), worker=WorkerId("second"))
    hands = [(run, store.batches.flush(run, next_units=_next(world, 1)).taken) for run in (first, second)]
    for run, taken in reversed(hands):
        store.batches.flush(run, [make_effect(world, run, unit) for unit in taken])
    run_units(world, store, first)
    store.batches.end(second, None, len(world.keys), complete=False)
    store.batches.end(first, None, len(world.keys), complete=True)


def _after_epochs(world: World) -> None:
    """Every key of the range is in one epoch."""
    batch = world.store.batches.latest("rows")
    assert batch is not None
    spans = [json.loads(unit.key) for unit in world.store.batches.units(batch.id)]
    if sorted(key for low, high in spans for key in range(low, high + 1)) != [*range(LOW, HIGH + 1)]:
        raise Broken("B16", f"the epochs of the ledger are {spans}")


# -- verify ----------------------------------------------------------------------------------


def _verifier(world: World) -> None:
    world.bag["verifier"] = True


def _killer(world: World) -> None:
    """A unit has had its effect and has killed its process each time, and a person retries it."""
    _verifier(world)
    world.keys = KEYS[:1]
    for loss in range(MAX_CRASHES + 1):
        run = begin(world, world.store)
        (unit,) = world.store.batches.flush(run, next_units=_next(world, 1)).taken
        if not loss:
            make_effect(world, run, unit)
        world.database.clock.advance(HOUR)
        world.store.leases.take_over()
    world.store.ledger.retry(run.batch.id, [unit.key])


def _verify(world: World, store: Store) -> None:
    run = begin(world, store)
    run_units(world, store, run, limit=2)
    run_units(world, store, run)


def _after_verify(world: World) -> None:
    """The process may die between an effect and its end: the verifier is called before the unit runs again."""
    wrong = {unit: made for unit, made in world.effects.items() if made != 1}
    if wrong:
        raise Broken("B14", f"the effects of units with a verifier, by number: {wrong}")


# -- deadlines -------------------------------------------------------------------------------


def _deadline(world: World, store: Store) -> None:
    """A run stops at its deadline, with a unit that has begun and not finished."""
    run = begin(world, store)
    done, late = store.batches.flush(run, next_units=_next(world, 2)).taken
    end = make_effect(world, run, done)
    store.batches.flush(run, [end], interrupted=[(late.key, late.position)])
    store.batches.end(run, AbortedBy.DEADLINE, len(world.keys), complete=False)
    store.leases.settle(run.lease, Done())


def _deadline_on_workers(world: World, store: Store) -> None:
    """The deadline passes before a shard begins; then a person resumes the batch."""
    run = store.batches.open(opening("shards"), worker=WorkerId("first"))
    store.batches.plan(run, keys(world.keys))
    until = world.database.clock.now() + MINUTE
    store.batches.launch(run, Sharding(kind=SHARD, shards=2, queue=QUEUE, until=until))
    world.bag["launched"] = run.batch.id
    store.leases.settle(run.lease, Done())
    world.database.clock.advance(2 * MINUTE)
    for lease in world.claim(store):
        world.run(store, lease)
    store.batches.resume(run.batch.id)


def _after_deadline_on_workers(world: World) -> None:
    """Stopped at its deadline or resumed already: once a person resumes it, workers run every unit."""
    batch = world.store.batches.latest("shards")
    if batch is not None and "launched" in world.bag:
        world.store.batches.resume(batch.id)
        work_off(world, world.store, "resumed")
    after_launch(world)


# -- conflicts -------------------------------------------------------------------------------


def rival(world: World, store: Store) -> None:
    """Another process starts the same command: it is refused while a holder is alive."""
    batch = store.batches.latest("rows")
    alive = [] if batch is None else store.batches.holders(batch.id)
    try:
        store.batches.open(opening(), worker=WorkerId("rival"))
    except BatchHeld:
        if not alive:
            raise Broken("R18", "a run was refused, and no other run holds its batch") from None
    else:
        if alive:
            raise Broken("R18", f"a run began beside {alive}")


def _conflict(world: World, store: Store) -> None:
    """A rival is refused; one that knows that the holder is dead replaces it, and the holder writes nothing more."""
    first = begin(world, store)
    taken = store.batches.flush(first, next_units=_next(world, 2)).taken
    rival(world, store)
    second = store.batches.open(opening(dead=(first.lease.job_id,)), worker=WorkerId("second"))
    ends = [UnitOutcome(key=unit.key, position=unit.position, state=UnitState.DONE) for unit in taken]
    try:
        store.batches.flush(first, ends)
    except LeaseLost:
        pass
    else:
        raise Broken("I4", f"a run that was replaced has written {[unit.key for unit in taken]}")
    run_units(world, store, second, limit=1)


BATCH_SCENARIOS = {
    "epochs side by side": Scenario(_epochs, prepare=_cut, meanwhile=steer, after=_after_epochs),
    "verified units": Scenario(_verify, prepare=_verifier, meanwhile=steer, after=_after_verify),
    "verified unit that a person retries": Scenario(_verify, prepare=_killer, meanwhile=steer, after=_after_verify),
    "deadline": Scenario(_deadline, meanwhile=steer),
    "deadline on workers": Scenario(_deadline_on_workers, after=_after_deadline_on_workers),
    "conflict": Scenario(_conflict, meanwhile=rival),
}
