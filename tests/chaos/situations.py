"""Nemeses that kill nothing: ordinary situations of a deployment, in which every worker has to stay alive and useful."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import holdfast
from holdfast.errors import HoldfastError, NoSuchSchedule
from tests.chaos import kinds
from tests.chaos.nemeses import NEMESES as KILLERS
from tests.chaos.nemeses import Nemesis
from tests.chaos.scattered import Scattered
from tests.chaos.sites import SqliteSite
from tests.chaos.world import World

#: Interrupted calls of one strike.
INTERRUPTS = 500
#: No worker may end, and a free slot may not stay free while a job waits.
STEADY = MappingProxyType({"steady": True, "workers": 3, "slots": 4, "heavy": False})


#: The ids of jobs that are made to be gone begin behind all others.
FIRST_GONE = 1_000_000_000_000


class Transactions(Nemesis):
    """Users' own transactions: they lock running, waiting, due and needed jobs, keys, and enqueue before they end."""

    unit = "user transactions"
    every = 0.4
    shape = STEADY

    def __init__(self) -> None:
        self._open: list[threading.Thread] = []

    def strike(self, world: World) -> int:
        seconds = world.random.uniform(0.2, 2 * kinds.LEASE)
        hold = self._hold_file if isinstance(world.site, SqliteSite) else self._hold_rows
        what = world.random.choice(["running", "waiting", "scheduled", "ready", "needed", "keys", "enqueue"])
        arguments = (world, what, seconds if hold is self._hold_rows else min(seconds, 1.0), world.random.random())
        thread = threading.Thread(target=hold, args=arguments, daemon=True)
        thread.start()
        if isinstance(world.site, SqliteSite):
            thread.join()  # there is one writer at a time
        self._open = [each for each in self._open if each.is_alive()] + [thread]
        return 1

    def heal(self, world: World) -> None:
        for thread in self._open:
            thread.join()

    def _hold_rows(self, world: World, what: str, seconds: float, chance: float) -> None:
        import psycopg

        with suppress(psycopg.Error, HoldfastError), psycopg.connect(world.site.url) as connection:
            if what == "enqueue":
                _enqueue_late(world, connection, seconds, chance)
                return
            rows = connection.execute(_LOCKS.get(what, _LOCK_STATE), {"state": what}).fetchall()
            with kinds.recorder().running("locked", jobs=[row[0] for row in rows]):
                world.rest(seconds)
            connection.rollback()

    def _hold_file(self, world: World, what: str, seconds: float, chance: float) -> None:
        import sqlite3

        assert isinstance(world.site, SqliteSite)
        connection = sqlite3.connect(world.site.path, timeout=60)
        try:
            if what == "enqueue":
                _enqueue_late(world, connection, seconds, chance)
                return
            connection.execute("BEGIN IMMEDIATE")
            with kinds.recorder().running("outage", brief=True):
                world.rest(seconds)
            connection.rollback()
        finally:
            connection.close()


def _enqueue_late(world: World, connection: Any, seconds: float, chance: float) -> None:
    """A user's row and a job in one transaction, which stays open for a while."""
    name = f"own-{threading.get_ident()}-{chance}"
    options: dict[str, Any] = {"connection": connection}
    facts: dict[str, Any] = {}
    if chance < 0.4:
        facts["key"] = options["key"] = f"own-{int(chance * 10)}"
    if isinstance(world.site, SqliteSite):
        connection.execute("BEGIN IMMEDIATE")
    with (
        kinds.recorder().running("outage", brief=True),
        kinds.recorder().asking("enqueue", name=name, kind="quick", **facts) as answer,
    ):
        ref = kinds.app.enqueue("quick", {"name": name}, **options)
        world.rest(seconds)
        connection.commit()
        answer.update(id=ref.id, created=ref.created)


_LOCK_STATE = "SELECT id FROM holdfast.live WHERE state = %(state)s ORDER BY random() LIMIT 3 FOR UPDATE SKIP LOCKED"
_LOCKS = {
    "needed": "SELECT id FROM holdfast.live WHERE has_dependents ORDER BY random() LIMIT 3 FOR UPDATE SKIP LOCKED",
    "keys": "SELECT job_id FROM holdfast.key ORDER BY random() LIMIT 3 FOR UPDATE SKIP LOCKED",
}


class PinnedEntries(Nemesis):
    """A forgotten session pins the index entries of many jobs that are gone, and users commit their enqueues late.

    Claims from the start of a lane are slow. What is committed behind a worker's position must not wait for them.
    """

    unit = "late commits"
    every = 0.5
    backends = ("postgres",)
    shape = STEADY
    #: Jobs that are gone. With more, a claim takes longer than the checker allows between a change and its effect.
    entries = 300_000

    def __init__(self) -> None:
        self._forgotten: Any = None
        self._open: list[threading.Thread] = []

    def strike(self, world: World) -> int:
        if self._forgotten is None:
            self._pin(world)
        seconds, chance = world.random.uniform(0.2, 2 * kinds.LEASE), world.random.random()
        thread = threading.Thread(target=self._commit_late, args=(world, seconds, chance), daemon=True)
        thread.start()
        self._open = [each for each in self._open if each.is_alive()] + [thread]
        return 1

    def heal(self, world: World) -> None:
        del world
        for thread in self._open:
            thread.join()
        if self._forgotten is not None:
            self._forgotten.close()

    def _pin(self, world: World) -> None:
        import psycopg

        self._forgotten = psycopg.connect(world.site.url)
        self._forgotten.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        self._forgotten.execute("SELECT count(*) FROM holdfast.meta")
        with psycopg.connect(world.site.url, autocommit=True) as connection:
            connection.execute("SET session_replication_role = replica")  # no trigger records them
            connection.execute(
                "INSERT INTO holdfast.live (id, state, queue, kind, priority, due_at) SELECT %s::bigint + n, 'ready', "
                "'default', 'quick', 0, now() - interval '1 hour' FROM generate_series(1, %s) AS n",
                (FIRST_GONE, self.entries),
            )
            connection.execute("DELETE FROM holdfast.live WHERE id > %s", (FIRST_GONE,))

    def _commit_late(self, world: World, seconds: float, chance: float) -> None:
        import psycopg

        with suppress(psycopg.Error, HoldfastError), psycopg.connect(world.site.url) as connection:
            _enqueue_late(world, connection, seconds, chance)


class Forks(Nemesis):
    """Handlers that fork: children that are terminated, pools, and children that use the application themselves."""

    unit = "forks"
    every = 0.5
    shape = STEADY

    def strike(self, world: World) -> int:
        with suppress(HoldfastError):
            world.client.enqueue("forker", mode=world.random.choice(["terminate", "pool", "enqueue"]))
            return 1
        return 0


class Saturation(Nemesis):
    """Every slot is busy with long jobs, beside short ones, with different leases, priorities and ``on_lost``."""

    unit = "bursts"
    every = 3.0
    shape = MappingProxyType({**STEADY, "every": 0.1})

    def strike(self, world: World) -> int:
        with suppress(HoldfastError):
            for _ in range(world.shape.workers * world.shape.slots):
                kind = world.random.choice(["slow", "unhurried", "cautious"])
                seconds = round(world.random.uniform(0.5, 2.0), 3)
                world.client.enqueue(kind, seconds=seconds, priority=world.random.randrange(-5, 5))
            for _ in range(5):
                world.client.enqueue("quick", priority=world.random.randrange(10, 20))
            return 1
        return 0


class Outages(Nemesis):
    """The store is away for some seconds while handlers report progress, keep checkpoints and enqueue."""

    unit = "outages"
    every = 4.0
    shape = MappingProxyType({**STEADY, "every": 0.1})
    #: Seconds of the shortest and of the longest outage.
    shortest, longest = 1.0, 50.0

    def strike(self, world: World) -> int:
        for _ in range(4):
            with suppress(HoldfastError):
                world.client.enqueue("reporter")
        world.rest(0.5)
        # Short ones are frequent: a square law.
        seconds = self.shortest + (self.longest - self.shortest) * world.random.random() ** 4
        if isinstance(world.site, SqliteSite):
            self._lock_file(world, seconds)
        else:
            self._stop_server(world, seconds)
        world.tend()
        return 1

    def _lock_file(self, world: World, seconds: float) -> None:
        import sqlite3

        assert isinstance(world.site, SqliteSite)
        connection = sqlite3.connect(world.site.path, timeout=60, isolation_level=None)
        with kinds.recorder().running("outage", brief=False):
            connection.execute("BEGIN IMMEDIATE")
            world.rest(seconds)
            connection.execute("ROLLBACK")
        connection.close()

    def _stop_server(self, world: World, seconds: float) -> None:
        assert world.site.server is not None
        with kinds.recorder().running("outage", brief=False):
            world.site.server.stop("fast")
            world.rest(seconds)
            world.site.server.start()


class Deploys(Nemesis):
    """Workers of two versions of an application, replaced one by one, and payloads of both."""

    unit = "replaced workers"
    every = 1.0
    shape = MappingProxyType({"workers": 3, "slots": 4, "heavy": False, "rolling": True})

    def strike(self, world: World) -> int:
        with suppress(HoldfastError):
            for version in (1, 2, 1, 2):
                world.client.enqueue_version(version)
        world.random.choice(world.workers).signal(signal.SIGTERM)
        world.tend()
        return 1

    def heal(self, world: World) -> None:
        """The deploy is complete: all workers have the newer version."""
        world.versions = [2]
        for worker in world.workers:
            worker.signal(signal.SIGTERM)


class Strangers(Nemesis):
    """Another application and another module use the names of this one on its store.

    The schedule stays as this application declares it, and no unit counts for a function that did not do it.
    """

    unit = "strangers"
    every = 0.7
    shape = MappingProxyType({"workers": 3, "slots": 4, "heavy": False})

    def __init__(self) -> None:
        self._batches = 0

    def strike(self, world: World) -> int:
        self._batches += 1
        with suppress(HoldfastError), holdfast.Holdfast(world.site.url, name="stranger") as stranger:

            @stranger.schedule("every 7s", name=kinds.SCHEDULE, version=1000 + self._batches)
            @stranger.job()
            def theirs(plan: holdfast.Plan) -> None: ...

            if any(kinds.SCHEDULE in names.schedules for names in stranger.store.workers.names()):
                for name, result in stranger.declare_schedules().items():
                    kinds.recorder().tell("declared", schedule=name, result=str(result))
            self._run(world, "ours", fails=True)
            self._run(world, "theirs", fails=False)
        return 1

    def _run(self, world: World, module: str, *, fails: bool) -> None:
        """Run the batch of this strike with a function of a module; another module's function left it open."""
        ran: list[int] = []

        def touch(key: int) -> None:
            ran.append(key)
            if fails:
                raise ValueError(key)

        touch.__module__ = f"strangers.{module}"
        with holdfast.Holdfast(world.site.url) as app:
            work = app.unit(name=f"touch {self._batches}")(touch)
            result = app.run(work, range(3), output="none")
        if not fails:
            kinds.recorder().tell("foreign run", exit=result.exit_code, ran=ran)


class HungProviders(Nemesis):
    """Schedules whose scope functions hang, raise or are slow, beside plain ones; planners are killed.

    Every plain plan fires once, and in time.
    """

    unit = "schedules with a provider"
    every = 0.5
    shape = MappingProxyType({"workers": 3, "slots": 4, "every": 0.1, "heavy": False, "drivers": False})
    #: Seconds in which a plain plan must be decided, with planners that are killed and started again.
    in_time = 30.0

    def __init__(self) -> None:
        self._made: list[str] = []

    def strike(self, world: World) -> int:
        with suppress(HoldfastError):
            provider = world.random.choice(
                ["hanging", "hanging", "hanging", "raising", "slow_to_tell", "quick_to_tell"]
            )
            self._make(f"{provider} {len(self._made)}", "every 5s", scopes=provider)
            if len(self._made) < 20:
                self._make(f"plain {len(self._made)}", "every 2s", overlap="allow")
        if world.random.random() < 0.3:
            world.random.choice(world.workers).signal(signal.SIGKILL)
            world.tend()
        return 1

    def _make(self, name: str, expression: str, **options: Any) -> None:
        self._made.append(name)
        kinds.app.schedules.create(name, "planned", expression, catch_up="every", **options)

    def heal(self, world: World) -> None:
        for name in self._made:
            with suppress(NoSuchSchedule):
                kinds.app.schedules.pause(name)
        seconds = (
            "(decided_at - time) / 1e6"
            if isinstance(world.site, SqliteSite)
            else "extract(epoch FROM decided_at - time)"
        )
        late = f"SELECT schedule, {seconds} FROM holdfast.plan WHERE substr(schedule, 1, 6) = 'plain '"
        for name, waited in world.site.execute(late):
            if waited > self.in_time:
                kinds.recorder().tell("late plan", schedule=name, seconds=round(float(waited), 1))


class Interrupts(Nemesis):
    """SIGALRM that raises in client calls of a main thread, on a store beside that of the world.

    Nothing hangs, other threads enqueue undisturbed, no acknowledged job is lost, and all connections are idle at the end.
    """

    unit = "interrupted calls"
    every = 0.1
    shape = MappingProxyType({"workers": 1, "slots": 2, "heavy": False, "drivers": False})

    def strike(self, world: World) -> int:
        name = f"interrupted_{world.random.randrange(10**9)}"
        beside = f"{world.folder / name}.db?durability=fast"
        # The schema is part of the URL: no worker of the world runs its jobs.
        url = f"sqlite:///{beside}" if isinstance(world.site, SqliteSite) else _with_schema(world.site.url, name)
        arguments = [sys.executable, "-m", "tests.chaos.interrupted", url, name.rpartition("_")[2], str(INTERRUPTS)]
        ended = subprocess.run(arguments, capture_output=True, text=True, timeout=600, check=False)
        if ended.returncode:
            raise AssertionError(f"the program hung or failed, seed {name}: {ended.stderr[-5000:]}")
        result = json.loads(ended.stdout)
        if result["broken"]:
            raise AssertionError(f"seed {name}: {result}")
        if not isinstance(world.site, SqliteSite):
            world.site.execute(f"DROP SCHEMA {name} CASCADE")
        return int(result["interrupts"])


def _with_schema(url: str, schema: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}schema={schema}"


NEMESES: dict[str, Callable[[], Nemesis]] = {
    **KILLERS,
    "providers": HungProviders,
    "transactions": Transactions,
    "forks": Forks,
    "pinned": PinnedEntries,
    "saturation": Saturation,
    "outages": Outages,
    "deploys": Deploys,
    "strangers": Strangers,
    "scattered": Scattered,
    "interrupts": Interrupts,
}
