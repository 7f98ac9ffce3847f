"""A whole fleet in one thread: virtual workers, one virtual clock, one seed, over the real store and its rules.

A run is a list of steps, each a verb and a few numbers that stand for its choices, so that any of them can be left
out. One that breaks an invariant is shortened to the steps that are needed for it::

    python -m tests.chaos.simulation --seed 17 --steps 400
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from holdfast import Holdfast
from holdfast.client.batches.keys import epochs
from holdfast.domain.batches.batch import AbortedBy, BatchId
from holdfast.domain.batches.unit import HandedResult, UnitOutcome, UnitRow, UnitState, unit_key
from holdfast.domain.jobs.context import AlreadyFinished
from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.job import JobId, Lease, OnLost, WorkerId
from holdfast.domain.jobs.new_job import Enqueued, NewJob, Unique
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.verdict import Done, Failed, Outcome, Released, Stopped
from holdfast.domain.schedules.definition import CatchUp, Definition
from holdfast.errors import BatchHeld, BatchPaused, LeaseLost, ResultLost
from holdfast.store import Store
from holdfast.store.batches.runs import RunRequest
from holdfast.store.batches.state import BatchRun
from holdfast.store.batches.unit_choice import NextUnits
from holdfast.store.jobs.leases import Leases
from holdfast.store.sqlite.backend import SqliteBackend
from holdfast.worker import clock as own_clock
from holdfast.worker.schedules.planner import Planner
from holdfast.worker.schedules.scopes import ScopeProviders
from holdfast.worker.stats import Stats
from tests.chaos.referee import Referee
from tests.chaos.standing import Broken, audit
from tests.support.backends import START
from tests.support.jobs import claim_jobs, record_start

TERM = timedelta(seconds=60)
MINUTE = timedelta(minutes=1)
QUEUES, KINDS, TICKS = ("fast", "tight"), ("mail", "plan"), 600
UNITS = 6
WORKERS, BATCHES = 4, 2
#: The units of the first batch have a verifier. Those of the second are epochs, in doubt if their run is lost.
VERIFIED = 0
KEYS = ([unit_key(n) for n in range(UNITS)], [unit_key(span) for span in epochs(1, 2 * UNITS, 2)])
#: So many rounds of an hour each, and nothing may be left to do.
QUIET = 40

Step = tuple[str, int, int, int]

#: How often each verb comes.
ACTIONS = {
    "enqueue": 14, "claim": 14, "begin": 9, "finish": 14, "report": 3, "renew": 6, "give_back": 2, "crash": 3,
    "stop": 3, "wake": 3, "time": 12, "sweep": 9, "cancel": 2, "hold": 1, "resumed": 2, "retry": 2, "queue": 2,
    "limit": 2, "plan": 4, "open": 6, "units": 14, "end": 3, "steer": 4, "ghost": 3, "inbox": 2,
}  # fmt: skip


def steps_of(seed: int, count: int) -> list[Step]:
    """The steps of a seed."""
    chance = random.Random(seed)
    actions = chance.choices(list(ACTIONS), weights=list(ACTIONS.values()), k=count)
    return [(action, chance.randrange(1000), chance.randrange(1000), chance.randrange(1000)) for action in actions]


class Worker:
    """A virtual worker: what it believes to hold. A stopped one does nothing until it wakes, and knows nothing new."""

    def __init__(self, number: int) -> None:
        self.id = WorkerId(f"w{number}")
        self.held: list[Lease] = []
        self.begun: set[int] = set()
        self.stopped = False

    def one(self, n: int) -> Lease | None:
        return self.held[n % len(self.held)] if self.held else None

    def drop(self, lease: Lease) -> None:
        self.held.remove(lease)
        self.begun.discard(lease.job_id)


class Simulation:
    """One run. Every step is checked by the referee; the tables are audited after each."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.now = START
        self.chance = random.Random(seed)
        backend = SqliteBackend(folder / "jobs.db", durability="fast", clock=lambda: self.now)
        self.store = Store(backend)
        self.store.__dict__["leases"] = Leases(backend, chance=self.chance.random)
        self._looking = sqlite3.connect(folder / "jobs.db", isolation_level=None)
        self.referee = Referee()
        self.count = WORKERS
        self.workers = [Worker(n) for n in range(WORKERS)]
        self.runs: list[tuple[int, BatchRun, list[Any]]] = []
        self.drivers: set[int] = set()
        #: The runs that hold a batch: its id, and the end of the lease. Those of *gone* are known to be dead.
        self.holders: dict[JobId, tuple[BatchId, datetime]] = {}
        self.gone: set[JobId] = set()
        self.ghosts: list[Lease] = []
        self.cancelled: set[int] = set()
        self._make_schedules(backend.path)

    def _make_schedules(self, path: Path) -> None:
        app = Holdfast(f"sqlite:///{path}")
        app.job(name="plan")(lambda: None)
        self.store.kinds.publish([app.kinds["plan"].published()])
        self.planners = [Planner(self.store, ScopeProviders({}), counts=Stats()) for _ in range(2)]
        for catch_up in CatchUp:
            every = timedelta(seconds=TICKS)
            definition = Definition(kind="plan", every=every, catch_up=catch_up, queue=QUEUES[0])
            self.store.schedules.create(str(catch_up), definition, actor="ada")

    def close(self) -> None:
        self.store.close()
        self._looking.close()

    def execute(self, query: str) -> list[Any]:
        return self._looking.execute(query.replace("holdfast.", "holdfast_")).fetchall()

    def do(self, step: Step) -> None:
        action, *choices = step
        with _virtual(self):
            getattr(self, f"do_{action}")(*choices)
        audit(self.execute)

    # -- jobs ------------------------------------------------------------------------------

    def do_enqueue(self, a: int, b: int, c: int) -> None:
        known = sorted(self.referee.jobs)
        dependencies = After(ids=(JobId(known[a % len(known)]),)) if known and a % 5 == 0 else None
        request = NewJob(
            kind="mail",
            queue=QUEUES[b % 2],
            priority=c % 3,
            unique=Unique(f"k{c % 4}") if b % 4 == 1 else None,
            after=dependencies,
            delay=MINUTE if c % 7 == 0 else None,
            max_attempts=1 + a % 3,
            max_crashes=1 + c % 3,
            on_lost=OnLost.HOLD if b % 9 == 0 else OnLost.RETRY,
        )
        many = [request] if request.unique or c % 3 else [request, request]
        for each, answer in zip(many, self.store.jobs.enqueue_many(many), strict=True):
            live = not self.store.views.get(answer.id).state.finished
            self.referee.enqueued(each, answer, live)

    def do_claim(self, a: int, b: int, c: int) -> None:
        worker = self._awake(a)
        if worker is not None:
            started = bool(b % 2)
            leases = claim_jobs(
                self.store, worker.id, queues=QUEUES, kinds=KINDS, limit=1 + c % 4, lease_duration=TERM, started=started
            )
            self._know_plans()
            self.referee.granted(worker.id, leases, self.now, TERM, started=started)
            again = {lease.job_id for lease in leases}  # what it had lost without knowing
            for lease in [lease for lease in worker.held if lease.job_id in again]:
                worker.drop(lease)
            worker.held += leases

    def do_begin(self, a: int, b: int, c: int) -> None:
        """The start is marked, then the handler has its effect."""
        worker, lease = self._pick(a, b)
        if worker is not None and lease is not None:
            if self._try(lease, "a start", lambda: record_start(self.store, lease)):
                self.referee.marked(lease)
                self.referee.effects[lease.job_id] += 1
                worker.begun.add(lease.job_id)
            else:
                worker.drop(lease)

    def do_report(self, a: int, b: int, c: int) -> None:
        _, lease = self._pick(a, b)
        if lease is not None:
            self._try(lease, "a checkpoint", lambda: self.store.leases.report(lease, done=c, checkpoint=str(c)))

    def do_finish(self, a: int, b: int, c: int) -> None:
        worker, lease = self._pick(a, b)
        if worker is None or lease is None:
            return
        if lease.job_id not in worker.begun:
            self.referee.effects[lease.job_id] += 1  # a short run is settled without a mark
        outcome: Outcome = (Done(), Done(), Failed(error="boom"), Failed(error="boom"), Released(), Stopped())[c % 6]
        hold = self.referee.holds.get(lease.job_id)
        if self._try(lease, f"a settle ({type(outcome).__name__})", lambda: self.store.leases.settle(lease, outcome)):
            assert hold is not None
            self.referee.finished(lease, done=isinstance(outcome, Done), failed=isinstance(outcome, Failed))
            self.ghosts.append(lease)
        worker.drop(lease)

    def do_ghost(self, a: int, b: int, c: int) -> None:
        """Somebody whose run has ended speaks once more."""
        if self.ghosts:
            lease = self.ghosts[a % len(self.ghosts)]
            ghost = Failed(error="ghost", reason="oom")
            writes: list[Callable[[], object]] = [
                lambda: self.store.leases.report(lease, done=9),
                lambda: record_start(self.store, lease),
                lambda: self.store.leases.settle(lease, ghost),
            ]
            self._try(lease, "a word of a ghost", writes[b % 3])

    def do_renew(self, a: int, b: int, c: int) -> None:
        worker = self._awake(a)
        if worker is not None:
            answers = self.store.leases.renew(worker.held, lease_duration=TERM, begun=worker.begun)
            self.referee.renewed(worker.held, answers, self.now, TERM)
            kept = {answer.job_id for answer in answers}
            for lease in [lease for lease in worker.held if lease.job_id not in kept]:
                worker.drop(lease)
            for job_id in kept & worker.begun:
                self.referee.holds[job_id].started = True

    def do_give_back(self, a: int, b: int, c: int) -> None:
        worker = self._awake(a)
        if worker is not None:
            unbegun = [lease for lease in worker.held if not self._marked(lease)]
            self.store.leases.release(unbegun)
            for lease in unbegun:
                worker.drop(lease)
                if self.referee.holds_still(lease):
                    self.referee.finished(lease, done=False, failed=False)

    def do_crash(self, a: int, b: int, c: int) -> None:
        """A worker is gone with all that it knew; another starts in its place."""
        self.workers[a % WORKERS] = Worker(self.count)
        self.count += 1

    def do_stop(self, a: int, b: int, c: int) -> None:
        self.workers[a % WORKERS].stopped = True

    def do_wake(self, a: int, b: int, c: int) -> None:
        self.workers[a % WORKERS].stopped = False

    def do_time(self, a: int, b: int, c: int) -> None:
        self.now += timedelta(seconds=(1, 20, 45, 61, 200, 700)[a % 6])

    def do_sweep(self, a: int, b: int, c: int) -> None:
        taken = self.store.leases.take_over()
        for each in taken:
            self.holders.pop(each.job_id, None)
        self.referee.taken_over([each for each in taken if each.job_id not in self.drivers], self.now)
        self.store.leases.promote()
        self.store.leases.check_waiting()
        self.store.plans.release()
        self.store.plans.unqueue()

    # -- people ----------------------------------------------------------------------------

    def do_cancel(self, a: int, b: int, c: int) -> None:
        held = sorted(self.referee.holds)
        selector = Selector(ids=(JobId(held[a % len(held)]),)) if held and b % 2 else self._job(a)
        self.referee.cancelled(self.store.control.cancel(selector, actor="ada"))

    def do_hold(self, a: int, b: int, c: int) -> None:
        (self.store.control.pause if b % 2 else self.store.control.hold)(self._job(a), actor="ada")

    def do_resumed(self, a: int, b: int, c: int) -> None:
        self.referee.resumed(self.store.control.resume(self._job(a), actor="ada"))

    def do_retry(self, a: int, b: int, c: int) -> None:
        selector = self._job(a)
        finished = {job.id for job in self.store.views.all(selector) if job.state.finished}
        self.referee.revived(set(self.store.control.retry(selector, actor="ada")) & finished)

    def do_queue(self, a: int, b: int, c: int) -> None:
        name = QUEUES[a % 2]
        (self.store.queues.resume if b % 3 else self.store.queues.pause)(name)
        (self.referee.paused.discard if b % 3 else self.referee.paused.add)(name)

    def do_limit(self, a: int, b: int, c: int) -> None:
        limit = b % 3
        self.store.queues.set_limits(QUEUES[1], limit=limit)
        self.referee.limits = {QUEUES[1]: limit} if limit else {}

    # -- schedules -------------------------------------------------------------------------

    def do_plan(self, a: int, b: int, c: int) -> None:
        """Two planners, one of which may have seen an older state: it must do nothing."""
        due = self.store.schedules.due(providers=(), limit=9)
        self.planners[a % 2].tick()
        if due.schedules and b % 2:
            from tests.chaos.simulation_plans import late_planner

            late_planner(self.planners[1 - a % 2], self.store, due)
        self._know_plans()

    def _know_plans(self) -> None:
        """Plans are asked for by their schedules: once each."""
        rows = self.execute("SELECT job_id FROM holdfast.plan")
        for (job_id,) in rows:
            if job_id not in self.referee.jobs:
                job = self.store.views.get(JobId(job_id))
                request = NewJob(kind=job.kind, max_attempts=job.max_attempts, max_crashes=job.max_crashes)
                self.referee.enqueued(request, Enqueued(JobId(job_id)), True)

    # -- batches ---------------------------------------------------------------------------

    def do_open(self, a: int, b: int, c: int) -> None:
        """A process starts the command of a batch. It may know of dead holders, and it may join live ones."""
        number, join = a % BATCHES, b % 4 == 0
        dead = tuple(self.gone) if c % 3 == 0 else ()
        batch = self.store.batches.latest(f"b{number}")
        rivals = [
            job_id
            for job_id, (held, until) in self.holders.items()
            if batch is not None and held == batch.id and until > self.now and job_id not in dead
        ]
        try:
            run = self.store.batches.open(_opening(number, join, dead), worker=WorkerId(f"r{b}"), lease_duration=TERM)
        except BatchPaused:
            return
        except BatchHeld:
            if not rivals:
                raise Broken("R18", f"a run of batch {number} was refused, and no other run holds it") from None
            return
        if batch is not None and run.batch.id == batch.id:
            if rivals and not join:
                raise Broken("R18", f"a run of batch {number} began beside {rivals}")
            for job_id in dead:
                if self.holders.get(job_id, (None,))[0] == batch.id:
                    del self.holders[job_id]
        self.runs.append((number, run, []))
        self.drivers.add(run.lease.job_id)
        self.holders[run.lease.job_id] = (run.batch.id, self.now + TERM)

    def do_units(self, a: int, b: int, c: int) -> None:
        """A run writes the ends of what it has in hand, each after its effect, and takes more. It may die in between."""
        if not self.runs:
            return
        number, run, hand = self.runs[a % len(self.runs)]
        expires = self.holders.get(run.lease.job_id, (None, self.now))[1]
        if number == VERIFIED and expires <= self.now:  # its watchdog has ended it
            self._is_gone(number, run, hand)
            return
        ends = [self._end_of(number, run, unit, c + place) for place, unit in enumerate(hand)]
        if c % 7 == 0:
            self._is_gone(number, run, hand)
            return
        keys = [(key, place) for place, key in enumerate(KEYS[number])]
        request = NextUnits(candidates=keys, limit=b % 4, in_doubt_if_lost=number != VERIFIED)
        try:
            if ends and b % 5 == 0:  # one of them ends in its own transaction
                own = ends.pop()
                with suppress(AlreadyFinished), self.store.batches.unit_transaction(run, lambda: own):
                    pass
            flushed = self.store.batches.flush(run, ends, request)
            hand[:] = flushed.taken
        except LeaseLost:
            self._is_gone(number, run, hand)
        self._check_units()

    def _is_gone(self, number: int, run: BatchRun, hand: list[Any]) -> None:
        self.runs.remove((number, run, hand))
        self.gone.add(run.lease.job_id)

    def _end_of(self, number: int, run: BatchRun, unit: UnitRow, choice: int) -> UnitOutcome:
        """The effect of a unit and its end. A verifier confirms effects of units that were lost in flight."""
        last = UnitState.DONE if number == VERIFIED else UnitState.RUNNING
        state = (UnitState.DONE, UnitState.DONE, UnitState.FAILED, UnitState.SKIPPED, last)[choice % 5]
        made = (run.batch.id, unit.key)
        if number == VERIFIED and unit.poison_suspect and self.referee.effects[made]:
            state = UnitState.DONE
        elif state in (UnitState.DONE, UnitState.RUNNING):
            self.referee.effects[made] += 1
        handed = HandedResult("box", "{}") if state is UnitState.RUNNING else None
        return UnitOutcome(
            key=unit.key, position=unit.position, state=state, attempts=1, crashes=unit.crashes, handed=handed
        )

    def do_inbox(self, a: int, b: int, c: int) -> None:
        """A consumer accepts or refuses results, or keeps them until another may take them."""
        for result in self.store.inbox.take("box", limit=1 + a % 3):
            if b % 3:
                with suppress(ResultLost):
                    self.store.inbox.accept(result) if b % 3 == 1 else self.store.inbox.refuse(result, "no")
        self.store.inbox.expire()
        self._check_units()

    def do_end(self, a: int, b: int, c: int) -> None:
        if self.runs:
            number, run, hand = self.runs[a % len(self.runs)]
            self._is_gone(number, run, hand)
            if b % 3 == 0:
                return  # its process is gone
            aborted_by = (None, AbortedBy.DEADLINE, AbortedBy.SIGNAL)[c % 3]
            with suppress(LeaseLost):
                if aborted_by is not None:  # what it has in hand has begun, and is stopped
                    interrupted = [(unit.key, unit.position) for unit in hand]
                    self.store.batches.flush(run, interrupted=interrupted)
                complete = not hand and b % 3 == 1 and aborted_by is None
                self.store.batches.end(run, aborted_by, UNITS, complete=complete)
                self.holders.pop(run.lease.job_id, None)
                self.store.leases.settle(run.lease, Done())
            self._check_units()

    def do_steer(self, a: int, b: int, c: int) -> None:
        batch = self.store.batches.latest(f"b{a % BATCHES}")
        chosen = [KEYS[a % BATCHES][c % UNITS], KEYS[a % BATCHES][b % UNITS]]
        if batch is not None:
            actions: list[Callable[[Any], Any]] = [
                self.store.batches.pause,
                self.store.batches.resume,
                self.store.batches.retry_failed,
                self.store.batches.cancel,
                lambda batch_id: self.store.ledger.retry(batch_id, chosen),
                lambda batch_id: self.store.ledger.skip(batch_id, chosen),
            ]
            actions[b % 6](batch.id)
            if b % 6 == 3 and not batch.state.finished:
                self.cancelled.add(batch.id)
        self._check_units()

    def _check_units(self) -> None:
        for batch_id, state in self.execute("SELECT id, state FROM holdfast.batch"):
            if batch_id in self.cancelled and state in ("done", "partial", "failed"):
                raise Broken("I6", f"batch {batch_id} was cancelled, and is {state}")
        for batch_id, key in self.execute("SELECT batch_id, key FROM holdfast.unit WHERE state = 'done'"):
            if not self.referee.effects[batch_id, key]:
                raise Broken("I5", f"unit {key} of batch {batch_id} is done, and had no effect")
        verified = {batch_id for (batch_id,) in self.execute("SELECT id FROM holdfast.batch WHERE identity = 'b0'")}
        for made, times in self.referee.effects.items():
            if isinstance(made, tuple) and made[0] in verified and times > 1:
                raise Broken("B14", f"unit {made[1]} of batch {made[0]} has a verifier, and {times} effects")

    # -- the quiet end ---------------------------------------------------------------------

    def rest(self) -> None:
        """Nobody disturbs any more: everything must come to its end."""
        with _virtual(self):
            self._let_all_go()
            for _ in range(QUIET):
                self.now += timedelta(hours=1)
                self.referee.resumed(self.store.control.resume(Selector(), actor="ada"))
                self.do_sweep(0, 0, 0)
                self._drain()
                waiting = self.execute("SELECT id, state FROM holdfast.live")
                if not waiting:
                    break
            else:
                raise Broken("I11", f"nobody is left who would run these jobs: {waiting}")
        audit(self.execute)
        self.referee.check_end({row[0] for row in self.execute("SELECT id FROM holdfast.job")} - self.drivers)
        self._check_plans()
        for number in range(BATCHES):
            self._finish_batch(number)

    def _finish_batch(self, number: int) -> None:
        """The same command once more reaches every unit, whatever stopped the runs before."""
        batch = self.store.batches.latest(f"b{number}")
        if batch is None:
            return
        self.store.batches.resume(batch.id)
        run = self.store.batches.open(_opening(number), worker=WorkerId("last"), lease_duration=TERM)
        keys, ends = [(key, place) for place, key in enumerate(KEYS[number])], []
        while (flushed := self.store.batches.flush(run, ends, NextUnits(candidates=keys, limit=1))).taken:
            ends = [self._end_of(number, run, unit, 0) for unit in flushed.taken]
        ended, _ = self.store.batches.end(run, flushed.stop, UNITS, complete=flushed.stop is None)
        left = self.execute(f"SELECT key FROM holdfast.unit WHERE batch_id = {run.batch.id} AND state = 'pending'")
        if left or not (ended.state.finished or self.execute("SELECT 1 FROM holdfast.inbox LIMIT 1")):
            raise Broken("I19", f"the command of batch {number} left {left}, and the batch is {ended.state}")
        self._check_units()
        audit(self.execute)

    def _let_all_go(self) -> None:
        for name in QUEUES:
            self.store.queues.resume(name)
            self.store.queues.set_limits(name, limit=0)
        self.referee.paused.clear()
        self.referee.limits.clear()
        self.workers = [Worker(self.count)]
        self.runs.clear()
        self._know_plans()

    def _drain(self) -> None:
        while True:
            self.do_claim(0, 1, 3)
            if not self.workers[0].held:
                return
            while self.workers[0].held:
                self.do_finish(0, 0, 0)

    def _check_plans(self) -> None:
        """Between the first plan and the cursor every moment was fired, or skipped with a reason."""
        micro = 1_000_000 * TICKS
        for name, cursor in self.execute("SELECT name, cursor FROM holdfast.schedule WHERE cursor IS NOT NULL"):
            fired = {row[0] for row in self.execute(f"SELECT time FROM holdfast.plan WHERE schedule = '{name}'")}
            skipped = self.execute(f"SELECT first, last FROM holdfast.skipped_plan WHERE schedule = '{name}'")
            for timestamp in range(min(fired), cursor + 1, micro) if fired else ():
                if timestamp not in fired and not any(first <= timestamp <= last for first, last in skipped):
                    raise Broken("I7", f"the plan {timestamp} of {name} was neither fired nor skipped")

    # -- choices ---------------------------------------------------------------------------

    def _awake(self, n: int) -> Worker | None:
        worker = self.workers[n % len(self.workers)]
        return None if worker.stopped else worker

    def _pick(self, a: int, b: int) -> tuple[Worker | None, Lease | None]:
        worker = self._awake(a)
        return (worker, worker.one(b)) if worker is not None else (None, None)

    def _job(self, n: int) -> Selector:
        known = sorted(self.referee.jobs)
        return Selector(ids=(JobId(known[n % len(known)]) if known else JobId(0),))

    def _marked(self, lease: Lease) -> bool:
        hold = self.referee.holds.get(lease.job_id)
        return hold is not None and hold.started

    def _try(self, lease: Lease, what: str, write: Callable[[], object]) -> bool:
        try:
            write()
        except LeaseLost:
            return self.referee.wrote(lease, what, accepted=False)
        return self.referee.wrote(lease, what, accepted=True)


def _opening(number: int, join: bool = False, dead: tuple[JobId, ...] = ()) -> RunRequest:
    return RunRequest(
        identity=f"b{number}",
        kind="resync",
        arguments="{}",
        source="keys",
        actor="ada",
        owner="{}",
        join=join,
        dead=dead,
    )


@contextmanager
def _virtual(simulation: Simulation) -> Iterator[None]:
    """The clock of this process follows the store's."""
    before = own_clock.now
    own_clock.now = lambda: (simulation.now - START).total_seconds() + 1000.0
    try:
        yield
    finally:
        own_clock.now = before


# -- running, shortening, telling --------------------------------------------------------------


def play(steps: Sequence[Step], seed: int) -> Broken | None:
    """Run these steps on an empty store; answers what they break."""
    with tempfile.TemporaryDirectory(prefix="holdfast-sim-", dir=_memory()) as folder:
        simulation = Simulation(Path(folder), seed)
        try:
            for step in steps:
                simulation.do(step)
            simulation.rest()
        except Broken as broken:
            return broken
        finally:
            simulation.close()
    return None


def shortened(steps: list[Step], seed: int, broken: Broken, *, tries: int = 400) -> list[Step]:
    """Leave out what is not needed to break the same invariant."""
    size = len(steps) // 2
    while size and tries:
        start = 0
        while start < len(steps) and tries:
            tries -= 1
            fewer = steps[:start] + steps[start + size :]
            found = play(fewer, seed)
            if found is not None and found.invariant == broken.invariant:
                steps = fewer
            else:
                start += size
        size //= 2
    return steps


def simulate(seed: int, count: int, *, shorten: bool = True) -> None:
    """Raise what a seed breaks, with the shortest way there and the command that shows it again."""
    steps = steps_of(seed, count)
    broken = play(steps, seed)
    if broken is None:
        return
    few = shortened(steps, seed, broken) if shorten else steps
    told = json.dumps(few)
    broken.add_note(
        f"seed {seed}, {len(few)} of {count} steps:\n"
        + "\n".join(f"  {action} {a} {b} {c}" for action, a, b, c in few)
        + f"\nagain: python -m tests.chaos.simulation --seed {seed} --replay '{told}'"
    )
    raise broken


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def main() -> int:
    parser = argparse.ArgumentParser(description="Simulate a fleet, seed by seed.")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds")
    parser.add_argument("--steps", type=int, default=400, help="how many steps of each")
    parser.add_argument("--quick", action="store_true", help="do not shorten what fails")
    parser.add_argument("--replay", help="these steps instead, as JSON")
    asked = parser.parse_args()
    try:
        if asked.replay:
            broken = play([tuple(step) for step in json.loads(asked.replay)], asked.seed)
            if broken is not None:
                raise broken
        else:
            for seed in range(asked.seed, asked.seed + asked.seeds):
                simulate(seed, asked.steps, shorten=not asked.quick)
    except Broken as broken:
        print(broken, *getattr(broken, "__notes__", ()), sep="\n")  # noqa: T201 - a program
        return 1
    print(f"{asked.seeds} seeds from {asked.seed}, {asked.steps} steps each: nothing broken")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
