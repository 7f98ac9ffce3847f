"""What is run into a fault at every point: each scenario once through the store, as a process would, and what must be true after."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import psycopg

from holdfast.domain.batches.batch import AbortedBy, Sharding, is_shard, shard_kind, sharding_of
from holdfast.domain.batches.unit import HandedResult, UnitOutcome, UnitRow, UnitState, unit_key
from holdfast.domain.jobs.context import AlreadyFinished
from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.job import JobId, Lease, WorkerId
from holdfast.domain.jobs.new_job import NewJob, Unique
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.verdict import Done, Failed, Released
from holdfast.domain.retention import Retention
from holdfast.domain.schedules.definition import Definition
from holdfast.domain.schedules.plan import Overlap, Plan
from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.store import Store
from holdfast.store.batches.runs import RunRequest
from holdfast.store.batches.state import BatchRun
from holdfast.store.batches.unit_choice import NextUnits
from holdfast.store.jobs.enqueue import EnqueueCall
from holdfast.store.schedules.fired_plans import Advance, PlanToFire
from tests.chaos.standing import Broken, audit
from tests.support.backends import START, Database
from tests.support.jobs import claim_jobs

KIND, SHARD, QUEUE, BOX = "mail", shard_kind("resync"), "default", "articles"
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
KEYS = (3, 1, 2)
#: Generations of recovery after which nothing may be left to do.
ROUNDS = 12


@dataclass
class World:
    """One database, and what those who used it know: what was asked, what was answered, what was done."""

    database: Database
    #: A store without faults, for what comes before and after.
    store: Store
    asked: Counter[str] = field(default_factory=Counter)
    known: dict[str, JobId] = field(default_factory=dict)
    removable: bool = False
    effects: Counter[str] = field(default_factory=Counter)
    batches: list[RunRequest] = field(default_factory=list)
    #: The keys of the units of every batch.
    keys: Sequence[Any] = KEYS
    bag: dict[str, object] = field(default_factory=dict)

    def enqueue(self, store: Store, *labels: str, **options: object) -> list[JobId]:
        """Ask for jobs, each with a label of its own; what is answered is known."""
        self.asked.update(labels)
        requests = [NewJob(kind=KIND, label=label, **options) for label in labels]
        answers = [store.jobs.enqueue(requests[0])] if len(labels) == 1 else store.jobs.enqueue_many(requests)
        for label, answer in zip(labels, answers, strict=True):
            if answer.created:
                self.known[label] = answer.id
        return [answer.id for answer in answers]

    def claim(self, store: Store, worker: str = "first", limit: int = 1, **options: object) -> list[Lease]:
        return claim_jobs(store, WorkerId(worker), queues=[QUEUE], kinds=[KIND, SHARD], limit=limit, **options)

    def run(self, store: Store, lease: Lease) -> None:
        """A run with its effect, which comes before its end."""
        if is_shard(lease.kind):
            run_shard(self, store, lease)
        self.effects[str(lease.job_id)] += 1
        store.leases.settle(lease, Done(), ran=MINUTE)


@dataclass(frozen=True)
class Scenario:
    """*act* meets the fault, in the middle of which others may do *meanwhile*; *after* looks at what is left."""

    act: Callable[[World, Store], None]
    prepare: Callable[[World], None] = lambda world: None
    meanwhile: Callable[[World, Store], None] = lambda world, store: work_off(world, store, "meanwhile")
    after: Callable[[World], None] = lambda world: None


# -- recovery --------------------------------------------------------------------------------


def sweep(store: Store) -> None:
    """What every worker does beside its jobs."""
    store.leases.take_over()
    store.leases.promote()
    store.leases.complete_effects()
    store.batches.revive()
    store.inbox.expire()
    store.plans.release()
    store.plans.unqueue()


def work_off(world: World, store: Store, worker: str) -> None:
    """Another worker does all that is ready."""
    sweep(store)
    while leases := world.claim(store, worker, limit=10, started=True):
        for lease in leases:
            world.run(store, lease)


def recover(world: World) -> None:
    """The processes are gone: time passes, and others go on until nothing is left."""
    audit(world.database.execute)
    world.store.queues.resume(QUEUE)
    for _ in range(ROUNDS):
        world.database.clock.advance(HOUR)
        work_off(world, world.store, "recovery")
        if not world.database.execute("SELECT 1 FROM holdfast.live WHERE state <> 'held' LIMIT 1"):
            break
    for asked in world.batches:
        finish(world, asked)
    audit(world.database.execute)
    judge(world)


def judge(world: World) -> None:
    """What those who asked may rely on."""
    jobs = {job.label: job for job in world.store.views.all(Selector()) if job.kind == KIND}
    for label, job_id in world.known.items():
        found = jobs.get(label)
        if not world.removable and (found is None or found.id != job_id):
            raise Broken("I1", f"job {job_id} ({label}) was answered for, and is lost")
    for label, job in jobs.items():
        if label not in world.asked and job.actor != "holdfast:scheduler":
            raise Broken("I2", f"nobody asked for job {job.id} ({label})")
        if not job.state.finished and job.state != "held":
            raise Broken("I11", f"job {job.id} is {job.state}, and nobody is left who would run it")
        if job.state == "done" and not world.effects[str(job.id)]:
            raise Broken("I5", f"job {job.id} is done, and had no effect")


# -- batches ---------------------------------------------------------------------------------


def opening(identity: str = "rows", **options: object) -> RunRequest:
    return RunRequest(
        identity=identity, kind="resync", arguments="{}", source="keys", actor="ada", owner="{}", **options
    )


def begin(world: World, store: Store, **options: object) -> BatchRun:
    asked = opening(**options)
    if asked not in world.batches:
        world.batches.append(asked)
    return store.batches.open(asked, worker=WorkerId("first"))


def keys(values: Iterable[Any]) -> list[tuple[str, int]]:
    return [(unit_key(value), place) for place, value in enumerate(values)]


def run_units(world: World, store: Store, run: BatchRun, *, limit: int = 100) -> int:
    """Take units, have their effects, then write their ends."""
    return _run(world, store, run, NextUnits(candidates=keys(world.keys), limit=limit))


def run_shard(world: World, store: Store, lease: Lease) -> None:
    """What a worker does as a shard of a batch, until no unit is left or the deadline has passed."""
    batch_id = json.loads(lease.payload)["batch"]
    run = store.batches.join(batch_id, lease, owner="{}", worker=WorkerId("w"))
    if run is None:
        return
    sharding = sharding_of(run.batch)
    late = sharding is not None and sharding.until is not None and sharding.until <= world.database.clock.now()
    while not late and _run(world, store, run, NextUnits(limit=2)):
        pass
    store.batches.leave(run, AbortedBy.DEADLINE if late else None)


def _run(world: World, store: Store, run: BatchRun, request: NextUnits) -> int:
    taken = store.batches.flush(run, next_units=request).taken
    if "effects" in world.bag:
        for unit in taken:
            end = make_effect(world, run, unit)
            with suppress(AlreadyFinished), store.batches.unit_transaction(run, lambda end=end: end) as connection:
                _insert_effect(connection, unit.key)
    elif taken:
        store.batches.flush(run, [make_effect(world, run, unit) for unit in taken])
    return len(taken)


def make_effect(world: World, run: BatchRun, unit: UnitRow) -> UnitOutcome:
    """A unit has its effect, and then its end. A verifier knows the effects of units that were lost in flight."""
    made = f"{run.batch.id}:{unit.key}"
    verified = "verifier" in world.bag and unit.poison_suspect and world.effects[made] > 0
    world.effects[made] += not verified
    return UnitOutcome(key=unit.key, position=unit.position, state=UnitState.DONE, attempts=unit.attempts + 1)


def _insert_effect(connection: Any, key: str) -> None:
    """A statement of the user, whose errors are the user's."""
    try:
        connection.execute(f"INSERT INTO effect VALUES ('{key}')")
    except (sqlite3.Error, psycopg.Error) as error:
        raise StoreUnavailable("the user's statement failed") from error


def finish(world: World, asked: RunRequest) -> None:
    """The same command once more, which goes on where the last one stopped; results in an inbox are accepted."""
    store = world.store
    run = store.batches.open(asked, worker=WorkerId("recovery"))
    while run_units(world, store, run, limit=1):
        pass
    for result in store.inbox.take(BOX, limit=10):
        store.inbox.accept(result)
    batch, _ = store.batches.end(run, None, len(world.keys), complete=True)
    store.leases.settle(run.lease, Done())
    if batch.state != "done":
        raise Broken("I11", f"batch {batch.id} is {batch.state} after its last unit")
    units = store.batches.units(batch.id)
    if len(units) != len(world.keys):
        raise Broken("R3", f"only {len(units)} of {len(world.keys)} units were ever run")
    for unit in units:
        if unit.state != "done":
            raise Broken("R3", f"unit {unit.key} is {unit.state}: the batch did not go on at the unit")
        if not world.effects[f"{batch.id}:{unit.key}"]:
            raise Broken("I5", f"unit {unit.key} is done, and had no effect")


# -- the scenarios ---------------------------------------------------------------------------


def _enqueue_unique(world: World, store: Store) -> None:
    (first,) = world.enqueue(store, "a", unique=Unique("k"))
    (again,) = world.enqueue(store, "b", unique=Unique("k"))
    known = store.views.get(again)
    if again != first and known.label != "b":
        raise Broken("I9", f"'already there' was answered with job {again}, which is another's")


def _enqueue_many(world: World, store: Store) -> None:
    world.enqueue(store, "a", "b", "c")


def _after_enqueue_many(world: World) -> None:
    there = [job.label for job in world.store.views.all(Selector())]
    if sorted(there) not in ([], ["a", "b", "c"]):
        raise Broken("I1", f"of one call only {sorted(there)} were kept")


def _enqueue_after(world: World, store: Store) -> None:
    world.enqueue(store, "later", after=After(ids=(world.known["dependency"],)))


def _settle(world: World, store: Store) -> None:
    for lease in world.claim(store, limit=2):
        world.run(store, lease)


def _settle_group(world: World, store: Store) -> None:
    from holdfast.store.jobs.settlement import Settlement

    leases = world.claim(store, limit=2)
    for lease in leases:
        world.effects[str(lease.job_id)] += 1
    store.leases.settle_many([Settlement(lease, Done(), MINUTE) for lease in leases])


def _effects_of_ends(world: World, store: Store) -> None:
    """A group of ends with a fan-in, a fan-out and a chain behind them, some of them failures."""
    from holdfast.store.jobs.settlement import Settlement

    leases = world.claim(store, limit=3)
    if len(leases) == 3:
        outcomes = [Done(), Done(), Failed(error="boom", permanent=True)]
        for lease in leases:
            world.effects[str(lease.job_id)] += 1
        store.leases.settle_many(list(map(Settlement, leases, outcomes)))


def _effects_left(world: World, store: Store) -> None:
    """The transaction of an end has left its effects, as that of a user has to; another one completes them."""
    from holdfast.store.engine.operation import Operation, query
    from holdfast.store.jobs import settlement
    from holdfast.store.jobs.settlement import Settlement

    leases = world.claim(store, limit=2)
    ends = [Settlement(lease, Done()) for lease in leases]

    def settle_alone() -> Operation[None]:
        if ends:
            finished = yield settlement.settle_done(ends, ())
            yield query("insert_pending_effects", ids=[job.id for job in finished])

    for lease in leases:
        world.effects[str(lease.job_id)] += 1
    store.backend.write(settle_alone)
    store.leases.complete_effects()


def _after_effects(world: World) -> None:
    """Every job behind an end was judged by its record: nothing was left to the check of all waiting jobs."""
    left = world.database.execute("SELECT job_id FROM holdfast.pending_effect")
    if left:
        raise Broken("I11", f"effects of {left} are left after all rounds")


def _settle_and_start(world: World, store: Store) -> None:
    from holdfast.store.jobs.settlement import Settlement

    leases = world.claim(store, limit=2)
    if len(leases) == 2:
        world.effects[str(leases[0].job_id)] += 1
        _, started = store.leases.settle_and_start(Settlement(leases[0], Done(), MINUTE), leases[1])
        if started is not None:
            world.run(store, leases[1])


def _retry(world: World, store: Store) -> None:
    for lease in world.claim(store, started=True):
        store.leases.report(lease, done=1, checkpoint="1")
        store.leases.settle(lease, Failed(error="boom"))
    store.control.retry(Selector(), actor="ada")


def _release(world: World, store: Store) -> None:
    leases = world.claim(store, limit=3)
    if leases:
        store.leases.settle(leases[0], Released())
        store.leases.release(leases[1:])
    store.leases.release_unknown(WorkerId("first"), queues=[QUEUE], known=[])


def _take_over(world: World, store: Store) -> None:
    world.claim(store, limit=1, started=True)
    world.claim(store, limit=1)
    world.database.clock.advance(2 * MINUTE)
    store.leases.take_over()
    store.leases.promote()


def _cancel(world: World, store: Store) -> None:
    store.control.cancel(Selector(ids=(world.known["dependency"],)), actor="ada")


def _children(world: World, store: Store) -> None:
    for lease in world.claim(store):
        world.asked.update(["child"])
        answer = store.jobs.enqueue_child(NewJob(kind=KIND, label="child", unique=Unique("child")), EnqueueCall(lease))
        world.known["child"] = answer.id
        world.run(store, lease)


def _flush(world: World, store: Store) -> None:
    run = begin(world, store)
    run_units(world, store, run, limit=2)
    run_units(world, store, run)


def _out_of_order(world: World, store: Store) -> None:
    """The last unit ends first, while the others are still in hand."""
    run = begin(world, store)
    *hand, last = store.batches.flush(run, next_units=NextUnits(candidates=keys(KEYS), limit=9)).taken
    world.effects[f"{run.batch.id}:{last.key}"] += 1
    end = UnitOutcome(key=last.key, position=last.position, state=UnitState.DONE)
    store.batches.flush(run, [end], NextUnits(in_hand=[(unit.key, unit.position) for unit in hand]))


def _effects(world: World) -> None:
    """Effects of units are rows in the same database."""
    world.bag["effects"] = True
    world.database.execute("CREATE TABLE IF NOT EXISTS effect (key TEXT)")
    world.database.execute("DELETE FROM effect")


def _unit_transactions(world: World, store: Store) -> None:
    """Units that end in their own transactions, and notes that come after them."""
    run = begin(world, store)
    run_units(world, store, run, limit=2)
    run_units(world, store, run, limit=1)
    late = UnitOutcome(key=unit_key(KEYS[0]), position=0, state=UnitState.DONE, label="late", warning="slow")
    store.batches.flush(run, amended=[late])


def _after_unit_transactions(world: World) -> None:
    made = Counter(key for (key,) in world.database.execute("SELECT key FROM effect"))
    wrong = {str(key): made[str(key)] for key in KEYS if made[str(key)] != 1}
    world.database.execute("DROP TABLE effect")
    if wrong:
        raise Broken("I5", f"effects of units in their own transactions were made so often: {wrong}")


def _conclude(world: World, store: Store) -> None:
    run = begin(world, store)
    run_units(world, store, run)
    store.batches.end(run, None, len(KEYS), complete=True)
    store.leases.settle(run.lease, Done())


def _retry_chosen(world: World, store: Store) -> None:
    """Units fail, and a person retries some of them by their keys."""
    run = begin(world, store)
    for unit in store.batches.flush(run, next_units=NextUnits(candidates=keys(KEYS), limit=9)).taken:
        failed = UnitOutcome(key=unit.key, position=unit.position, state=UnitState.FAILED, error="no")
        store.batches.flush(run, [failed])
    store.batches.end(run, None, len(KEYS), complete=True)
    store.leases.settle(run.lease, Done())
    store.ledger.retry(run.batch.id, [unit_key(key) for key in KEYS[:2]])


def _stop(world: World, store: Store) -> None:
    run = begin(world, store)
    run_units(world, store, run, limit=1)
    store.batches.end(run, AbortedBy.SIGNAL, len(KEYS), complete=False)
    store.leases.settle(run.lease, Done())
    again = begin(world, store)
    run_units(world, store, again)


def _launch(world: World, store: Store) -> None:
    run = store.batches.open(opening("shards"), worker=WorkerId("first"))
    store.batches.plan(run, keys(KEYS))
    store.batches.launch(run, Sharding(kind=SHARD, shards=2, queue=QUEUE))
    store.leases.settle(run.lease, Done())
    world.bag["launched"] = run.batch.id
    for lease in world.claim(store):
        world.run(store, lease)


def after_launch(world: World) -> None:
    """Launched: the workers end it. Not launched: the same command goes on."""
    if "launched" in world.bag:
        batch = world.store.batches.latest("shards")
        if batch is None or batch.state != "done":
            raise Broken("I11", f"a batch of the workers is left as {batch}")
        for unit in world.store.batches.units(batch.id):
            if not world.effects[f"{batch.id}:{unit.key}"]:
                raise Broken("I5", f"unit {unit.key} is {unit.state}, and had no effect")


def _inbox(world: World, store: Store) -> None:
    run = begin(world, store)
    for unit in store.batches.flush(run, next_units=NextUnits(candidates=keys(KEYS), limit=9)).taken:
        world.effects[f"{run.batch.id}:{unit.key}"] += 1
        handed = HandedResult(BOX, "{}")
        end = UnitOutcome(key=unit.key, position=unit.position, state=UnitState.RUNNING, handed=handed)
        store.batches.flush(run, [end])
    store.batches.end(run, None, len(KEYS), complete=True)
    store.leases.settle(run.lease, Done())
    for result in store.inbox.take(BOX, limit=3):
        store.inbox.accept(result)


def _schedule(world: World) -> None:
    world.store.schedules.create("five", Definition(kind=KIND, cron="*/5 * * * *"), actor="ada")
    (due,) = world.store.schedules.due(providers=(), limit=9).schedules
    world.bag["step"] = Advance(
        name="five",
        token=due.token,
        cursor=START,
        next_at=START + 5 * MINUTE,
        overlap=Overlap.ALLOW,
        fire=[PlanToFire(Plan("five", START, "global"), NewJob(kind=KIND, label="five", actor="holdfast:scheduler"))],
    )


def _plan(world: World, store: Store) -> None:
    """Two planners that have seen the same: one of them is too late."""
    for _ in range(2):
        store.plans.advance([world.bag["step"]])


def _after_plan(world: World) -> None:
    cursor = world.store.schedules.get("five").cursor
    fired = world.store.plans.history("five")
    if len(fired) != (cursor == START):
        raise Broken("I7", f"the cursor is at {cursor}, and {len(fired)} plans were fired")


def _retention(world: World, store: Store) -> None:
    world.removable = True
    store.pruner.prune(Retention(done=MINUTE, cancelled=MINUTE, dead=MINUTE), limit=2)


def _finished(world: World) -> None:
    world.enqueue(world.store, "a", "b", "c")
    work_off(world, world.store, "early")
    world.enqueue(world.store, "d", unique=Unique("k"))
    world.database.clock.advance(HOUR)


def _three(world: World) -> None:
    world.enqueue(world.store, "a", "b", "c")


def _chain(world: World) -> None:
    world.enqueue(world.store, "dependency")
    world.enqueue(world.store, "then", after=After(ids=(world.known["dependency"],)))


def _net(world: World) -> None:
    """Three jobs; two of them, or each, or the end of one has jobs behind it."""
    first, second, third = world.enqueue(world.store, "a", "b", "c")
    world.enqueue(world.store, "both", after=After(ids=(first, second)))
    world.enqueue(world.store, "one", "another", after=After(ids=(first,)))
    (behind,) = world.enqueue(world.store, "behind a failure", after=After(ids=(third,)))
    world.enqueue(world.store, "end of the chain", after=After(ids=(behind,)))


def _queue(world: World, store: Store) -> None:
    store.queues.set_limits(QUEUE, limit=1)
    for lease in world.claim(store, limit=3):
        world.run(store, lease)
    store.queues.pause(QUEUE)
    if world.claim(store):
        raise Broken("I12", "a paused queue has started a job")
    store.queues.resume(QUEUE)


def steer(world: World, store: Store) -> None:
    """A person pauses, resumes and cancels a batch."""
    with suppress(HoldfastError):
        batch = store.batches.latest("rows")
        if batch is not None:
            store.batches.pause(batch.id)
            store.batches.resume(batch.id)


SCENARIOS = {
    "enqueue with a unique key": Scenario(_enqueue_unique),
    "enqueue many": Scenario(_enqueue_many, after=_after_enqueue_many),
    "enqueue after a need": Scenario(_enqueue_after, prepare=_chain),
    "claim, run, settle": Scenario(_settle, prepare=_chain),
    "settle a group": Scenario(_settle_group, prepare=_three),
    "effects of ends": Scenario(_effects_of_ends, prepare=_net, after=_after_effects),
    "effects that were left": Scenario(_effects_left, prepare=_net, after=_after_effects),
    "settle and start": Scenario(_settle_and_start, prepare=_three),
    "retry": Scenario(_retry, prepare=_chain),
    "give back": Scenario(_release, prepare=_three),
    "take over": Scenario(_take_over, prepare=_three),
    "cancel": Scenario(_cancel, prepare=_chain),
    "children": Scenario(_children, prepare=_three),
    "batch flush": Scenario(_flush, meanwhile=steer),
    "batch out of order": Scenario(_out_of_order, meanwhile=steer),
    "unit transactions": Scenario(
        _unit_transactions, prepare=_effects, meanwhile=steer, after=_after_unit_transactions
    ),
    "conclusion of a batch": Scenario(_conclude, meanwhile=steer),
    "retry of chosen units": Scenario(_retry_chosen, meanwhile=steer),
    "stop and resume of a batch": Scenario(_stop, meanwhile=steer),
    "launch on workers": Scenario(_launch, after=after_launch),
    "inbox accept": Scenario(_inbox, meanwhile=steer),
    "schedule firing": Scenario(_plan, prepare=_schedule, meanwhile=_plan, after=_after_plan),
    "retention": Scenario(_retention, prepare=_finished),
    "queue limits and pause": Scenario(_queue, prepare=_three),
}
