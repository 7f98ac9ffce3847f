"""Dry runs of all actions, on random stores: they give the answer of the action, and change nothing."""

from __future__ import annotations

import os
import random
import sqlite3
from datetime import timedelta

import pytest
from msgspec import structs

from holdfast.admin.actions.actions import Actions
from holdfast.admin.actions.batches import UnitCluster
from holdfast.admin.actions.table import Target, actions_on
from holdfast.admin.views.batches import BatchReader
from holdfast.domain.access.audit import Via
from holdfast.domain.batches.batch import AbortedBy, BatchId
from holdfast.domain.batches.unit import UnitState
from holdfast.domain.commands.command import COMMAND, Command
from holdfast.domain.fleet.stop_switch import StopMode
from holdfast.domain.jobs.dependencies import After, IfNot
from holdfast.domain.jobs.job import JobId, State
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.kind_options import KindOptions
from holdfast.domain.jobs.new_job import Unique
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.verdict import Done, Failed
from holdfast.errors import HoldfastError
from holdfast.store.engine.migrations import TABLES
from tests.store.batches.test_batches import begin, finish, leave, take
from tests.store.batches.test_inbox import BOX, hand_over
from tests.store.batches.test_runs import launch
from tests.support.backends import open_database
from tests.support.jobs import claim_jobs, put

#: Random stores per backend, each of which meets every action; a store of PostgreSQL takes longer.
STORES = {"sqlite": 50, "postgres": 12}
#: The stores are divided among so many tests, which can run at the same time.
PARTS = 2
#: Among as many stores, every action changes something.
MANY = 25
QUEUES, KINDS = ("default", "slow"), ("mail", COMMAND)


def mail(to: int = 0) -> None:
    """A handler."""


class RandomStore:
    """A store with random objects in random states."""

    def __init__(self, database, rng):
        self.database, self.rng, self.store = database, rng, database.open()
        self.store.kinds.publish([Kind("mail", mail, KindOptions()).published()])
        self.actions = Actions(self.store, actor="ada", via=Via.CLI)
        for _ in range(rng.randint(2, 9)):
            self._add_job()
        for change in (self._cancel, self._claim, self._hold, self._claim, self._pause, self._claim):
            change()
        self._add_batches()
        hand_over(self.store, 1, 2)
        self._add_schedules()
        self._add_fleet()

    def _ids(self):
        return [job.id for job in self.store.views.all(Selector())]

    def _batches(self):
        return [batch.id for batch in self.store.batches.page(limit=10).batches]

    def _some(self):
        ids = self._ids() or [JobId(1)]  # an action may have deleted all jobs
        return Selector(ids=tuple(sorted(self.rng.sample(ids, self.rng.randint(1, min(3, len(ids)))))))

    def _add_job(self):
        rng, kind = self.rng, self.rng.choice(KINDS)
        options = {"queue": rng.choice(QUEUES), "label": rng.choice(("x", "y"))}
        options["payload"] = Command(argv=("true",), cwd="/").dumps() if kind == COMMAND else "{}"
        if rng.random() < 0.3:
            options["unique"] = Unique(rng.choice("ab"))
        if (ids := self._ids()) and rng.random() < 0.4:
            options["after"] = After(ids=(rng.choice(ids),), if_not=rng.choice(list(IfNot)))
        put(self.store, kind, max_attempts=rng.choice((1, 3)), **options)

    def _claim(self):
        leases = claim_jobs(self.store, "w", 3, queues=QUEUES, kinds=KINDS, started=True)
        for lease in leases:
            outcome = self.rng.choice((None, Done(), Failed(error=f"row {lease.job_id}"), Failed(error="no")))
            if outcome is not None:
                self.store.leases.settle(lease, outcome)

    def _cancel(self):
        self.store.control.cancel(self._some(), actor="bob")

    def _hold(self):
        self.store.control.hold(self._some(), actor="bob")

    def _pause(self):
        self.store.control.pause(self._some(), actor="bob")

    def _add_batches(self):
        for identity in "ab":
            if self.rng.random() < 0.3:
                launch(self.store, *range(3), identity=identity)
                continue
            run = begin(self.store, identity=identity)
            finish(self.store, run, 1)
            for key in self.rng.sample((2, 3), self.rng.randint(0, 2)):
                finish(self.store, run, key, state=UnitState.FAILED, error=f"row {key}")
            if self.rng.random() < 0.3:
                take(self.store, run, 4)
            else:
                aborted_by = self.rng.choice((None, AbortedBy.SIGNAL, AbortedBy.PAUSE))
                if aborted_by is AbortedBy.PAUSE:
                    self.store.batches.pause(run.batch.id, actor="bob")
                leave(self.store, run, aborted_by, total=3, complete=aborted_by is None)

    def _add_schedules(self):
        for name in ("hourly", "scoped"):
            scopes = {"scopes": ["eu", "us"]} if name == "scoped" else {}
            self.actions.schedules.create(name, "mail", "@hourly", **scopes)
            if self.rng.random() < 0.4:
                self.actions.schedules.perform("pause", name)

    def _add_fleet(self):
        for worker in ("w1", "w2"):
            self.store.workers.announce(worker, host="h", pid=1, queues=list(QUEUES), kinds=list(KINDS))
        if self.rng.random() < 0.5:
            self.actions.workers.perform(self.rng.choice(("quiet", "stop")), "w1")
        if self.rng.random() < 0.5:
            self.actions.queues.perform("pause", "slow", note="why")
        if self.rng.random() < 0.4:
            self.store.stop_switch.set(self.rng.choice(list(StopMode)), actor="bob")

    def subject(self, target):
        """An object of this sort, seldom one that does not exist."""
        rng = self.rng
        match target:
            case Target.JOB:
                by_state = Selector(states=tuple(rng.sample(list(State), rng.randint(1, 4))))
                return rng.choice((self._some, lambda: Selector(labels=("x",)), lambda: by_state))()
            case Target.BATCH:
                return rng.choice([*self._batches(), BatchId(99)])
            case Target.UNIT:
                batch_id = rng.choice(self._batches() or [BatchId(99)])
                clusters = BatchReader(self.store, batch_id).clusters() if batch_id in self._batches() else []
                return UnitCluster(batch_id, rng.choice([each.key for each in clusters] or ["0123456789ab"]))
            case Target.RESULT:
                receipts = [f"{row.id}.{row.token}" for row in self.store.inbox.results(BOX)]
                return [*rng.sample(receipts, rng.randint(0, len(receipts))), *rng.choice(([], ["9.9"]))] or ["1.7"]
            case Target.SCHEDULE:
                return rng.choice(("hourly", "scoped", "hourly", "scoped", "missing"))
            case Target.QUEUE:
                return rng.choice(("default", "slow", "new"))
            case Target.WORKER:
                return rng.choice(("w1", "w2", "gone"))
            case Target.STORE:
                return None

    def options(self, action):
        """Random options that the action takes. A time is fixed: now would differ between two runs."""
        rng, now = self.rng, self.database.clock.now()
        possible = {
            "note": "why",
            "create": True,
            "with_dependents": True,
            "memory": "64M",
            "done": True,
            "priority": rng.randint(0, 2),
            "to_queue": rng.choice(QUEUES),
            "run_at": (now + timedelta(hours=1)).isoformat(),
            "limit": rng.randint(0, 3),
            "worker_limit": rng.randint(0, 3),
            "autoscaler": rng.choice(("1-3", "off")),
            "scopes": ["eu"],
            "first": now - timedelta(hours=rng.randint(1, 4)),
            "last": now - timedelta(hours=rng.randint(0, 1)),
        }
        required = {"first", "last"} & set(action.options)
        chosen = [name for name in action.options if name in required or rng.random() < 0.6]
        return {name: possible[name] for name in chosen}

    def perform(self, action, subject, *, dry_run, **options):
        """The answer of an action, or its refusal."""
        services = {Target.STORE: "stop_switch", Target.BATCH: "batches", Target.RESULT: "inboxes"}
        service = getattr(self.actions, services.get(action.target, f"{action.target}s"))
        try:
            return service.perform(action.name, subject, dry_run=dry_run, **options)
        except HoldfastError as error:
            return type(error), error.message


class Fingerprint:
    """Changes when a row of any table changes."""

    def __init__(self, database):
        self._database = database
        self._watcher = sqlite3.connect(database.path) if database.name == "sqlite" else None
        rows = (
            "SELECT '{0}', count(*), max(xmin::text::bigint) FROM holdfast.{0}"  # the last transaction that wrote one
        )
        self._query = " UNION ALL ".join(rows.format(table) for table in TABLES)

    def read(self):
        if self._watcher is not None:  # changes with every commit of another connection
            return self._watcher.execute("PRAGMA data_version").fetchall()
        return self._database.execute(self._query)

    def close(self):
        if self._watcher is not None:
            self._watcher.close()


@pytest.fixture
def count(backend_name):
    return int(os.environ.get("HOLDFAST_DRY_RUN_STORES", STORES[backend_name]))


@pytest.mark.parametrize("part", range(PARTS))
def test_a_dry_run_gives_the_answer_of_the_action(backend_name, tmp_path, count, part):
    """E1.3: the same ids, counts, reasons and refusals; and the dry run changes no row of any table.

    Every store meets every action, in a random order. HOLDFAST_DRY_RUN_STORES=2000 tries more stores.
    """
    actions, changed = [action for target in Target for action in actions_on(target).values()], set()
    for seed in range(part, count, PARTS):
        rng = random.Random(seed)
        (folder := tmp_path / str(seed)).mkdir()
        with open_database(backend_name, folder) as database:
            random_store, fingerprint = RandomStore(database, rng), Fingerprint(database)
            for action in rng.sample(actions, k=len(actions)):
                subject, options = random_store.subject(action.target), random_store.options(action)
                before = fingerprint.read()
                dry = random_store.perform(action, subject, dry_run=True, **options)
                assert fingerprint.read() == before, (seed, action.name)
                answer = random_store.perform(action, subject, dry_run=False, **options)
                if not isinstance(answer, tuple):
                    is_new = action.target is Target.SCHEDULE  # the ids of new jobs are not known before
                    answer = structs.replace(answer, dry_run=True, jobs=[] if is_new else answer.jobs)
                    changed |= {action.audit_name} if answer.changed or answer.requested else set()
                assert dry == answer, (seed, action.name, subject, options)
            fingerprint.close()
    if count >= MANY * PARTS:
        assert {action.audit_name for action in actions} == changed
