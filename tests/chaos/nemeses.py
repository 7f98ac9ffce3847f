"""What strikes a world. Each nemesis can be used alone, and they can be mixed by a seed."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import psutil

from holdfast.errors import HoldfastError
from tests.chaos import kinds
from tests.chaos.checker import Violation
from tests.chaos.loads import PROGRAM
from tests.chaos.sites import SqliteSite
from tests.chaos.world import World
from tests.support.processes import Child, gone


class Nemesis:
    """Strikes once in a while; :meth:`heal` undoes what lasts. *every*: seconds between two strikes, on average."""

    #: What one strike is called in the table.
    unit = "strikes"
    every = 1.0
    backends: tuple[str, ...] = ("sqlite", "postgres")
    #: What has to stand before the server.
    before: str | None = None
    #: What the world must be like, and the server.
    shape: Mapping[str, Any] = MappingProxyType({})
    settings: Mapping[str, str] = MappingProxyType({})

    def strike(self, world: World) -> int:
        """Do harm once; answers how many strikes that was."""
        raise NotImplementedError

    def heal(self, world: World) -> None:
        """Let all go on as if nothing had been."""

    def forgives(self, violation: Violation) -> bool:
        """Whether a promise does not hold under it: guarantees.md says so."""
        return False


class Kills(Nemesis):
    """kill -9: mostly workers, some at once; also what they have started, and who runs a batch in the foreground."""

    unit = "kill -9"
    every = 0.15
    shape = MappingProxyType({"workers": 8, "slots": 4, "every": 0.02})

    def strike(self, world: World) -> int:
        number = 0
        chance = world.random.random()
        if chance < 0.05 and world.driver is not None:
            world.driver.kill()
            number += 1
        elif chance < 0.15:
            worker = world.random.choice(world.workers)
            number += _kill_one_below(worker.pid, world)
        else:
            # Those that have begun to work: to kill one that has not harms nobody.
            ready = [worker for worker in world.workers if worker.says()]
            for worker in world.random.sample(ready, world.random.randint(min(1, len(ready)), len(ready))):
                worker.signal(signal.SIGKILL)
                number += 1
        world.tend()
        return number


class BatchKills(Nemesis):
    """kill -9 of batches in all four forms: in the foreground, sessions, units in children, and shards on workers.

    A foreground run is spared while it has begun no unit, or while many batches are not over: a worker is killed instead.
    """

    unit = "kill -9 of batches"
    every = 0.2
    shape = MappingProxyType({"workers": 3, "slots": 4, "every": 0.2, "heavy": False})

    def strike(self, world: World) -> int:
        chance, number = world.random.random(), 0
        with suppress(HoldfastError):
            world.client.submit_batch()
        # Few before their first unit, most of them later: a start takes longer than a batch.
        is_due = chance < 0.1 or (chance < 0.6 and world.driver_began())
        if is_due and world.driver is not None and not world.behind:
            number = world.driver.alive
            world.driver.kill()
        elif 0.6 <= chance < 0.75 and world.driver is not None:
            number = _kill_one_below(world.driver.pid, world)
        elif ready := [worker for worker in world.workers if worker.says()]:
            world.random.choice(ready).signal(signal.SIGKILL)
            number = 1
        world.tend()
        return int(number)


def _kill_one_below(pid: int, world: World) -> int:
    """Kill the supervisor of a worker, a program, or a child."""
    with suppress(psutil.NoSuchProcess, ProcessLookupError):
        below = psutil.Process(pid).children(recursive=True)
        if below:
            os.kill(world.random.choice(below).pid, signal.SIGKILL)
            return 1
    return 0


class Pauses(Nemesis):
    """SIGSTOP past the lease, then SIGCONT: they wake up as holders of what others have taken over."""

    unit = "pauses"
    every = 0.3
    shape = MappingProxyType({"workers": 12, "slots": 2, "every": 0.05, "longest": 3.0})

    def strike(self, world: World) -> int:
        chosen = world.random.sample(world.workers, len(world.workers) * 3 // 4)
        for worker in chosen:
            worker.signal(signal.SIGSTOP)
        world.rest(kinds.LEASE * world.random.uniform(1.1, 1.6))
        for worker in chosen:
            worker.resume()
        world.tend()
        return len(chosen)

    def heal(self, world: World) -> None:
        for worker in world.workers:
            worker.resume()


class StoppedWorkers(Nemesis):
    """SIGSTOP of most workers while their measured programs run on: supervisors must end these with their leases."""

    unit = "programs of stopped workers"
    every = 0.5
    shape = MappingProxyType({"workers": 4, "slots": 4, "every": 0.1, "measured": True})
    #: The file that ends the programs, and how long after the lease a busy machine may need to end them.
    enough, patience = "enough", 20.0

    def __init__(self) -> None:
        self._added = 0

    def strike(self, world: World) -> int:
        while self._added < 2 * len(world.workers):
            with suppress(HoldfastError):
                world.client.add_program(queue=kinds.MEASURED, until=self.enough)
                self._added += 1
        world.rest(1.5)
        chosen = world.random.sample(world.workers, len(world.workers) - 1)
        for worker in chosen:
            worker.signal(signal.SIGSTOP)
        programs = [pid for worker in chosen for pid in _programs_below(worker.pid)]
        world.rest(kinds.LEASE * 1.2)
        until = time.monotonic() + self.patience
        while (left := [pid for pid in programs if not gone(pid)]) and time.monotonic() < until:
            world.rest(0.1)
        world.outliving += [f"program {pid} of a stopped worker" for pid in left]
        for worker in chosen:
            worker.resume()
        world.tend()
        return len(programs)

    def heal(self, world: World) -> None:
        (world.folder / self.enough).touch()
        for worker in world.workers:
            worker.resume()


def _programs_below(pid: int) -> list[int]:
    with suppress(psutil.Error):
        return [each.pid for each in psutil.Process(pid).children(recursive=True) if str(PROGRAM) in each.cmdline()]
    return []


class Clocks(Nemesis):
    """The store's clock is stepped, forward and back."""

    unit = "clock steps"
    every = 0.4
    shape = MappingProxyType({"stepped": True})

    def strike(self, world: World) -> int:
        world.site.set_clock(round(world.random.choice([-20, -3, 0, 1, 5, 20]) * world.random.random(), 3))
        return 1

    def heal(self, world: World) -> None:
        """Time goes on from the latest that was ever told: what was leased then has lapsed soon."""
        world.site.set_clock(20)


class Restarts(Nemesis):
    """All processes of the server are killed at once, and it recovers."""

    unit = "immediate restarts"
    every = 2.0
    backends = ("postgres",)

    def strike(self, world: World) -> int:
        assert world.site.server is not None
        world.site.server.stop("immediate")
        world.rest(world.random.choice([0, 0, 0.5]))
        world.site.server.start()
        world.tend()
        return 1


class Backends(Nemesis):
    """Connections are ended by the server, one or all."""

    unit = "backend kills"
    every = 0.15
    backends = ("postgres",)

    def strike(self, world: World) -> int:
        some = world.random.choice([1, 1, 3, 100])
        killed = world.site.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' ORDER BY random() LIMIT %s) AS chosen",
            (some,),
        )[0][0]
        world.tend()
        return int(killed)


class LostAnswers(Nemesis):
    """Connections are cut after the server has done what it was asked, before it is told."""

    unit = "lost answers"
    every = 1.0
    backends = ("postgres",)
    before = "proxy"

    def __init__(self) -> None:
        self._seen = 0

    def strike(self, world: World) -> int:
        assert world.site.proxy is not None
        world.site.proxy.lose_some(0.02, seed=world.random.randrange(2**31))
        cuts, self._seen = world.site.proxy.cuts - self._seen, world.site.proxy.cuts
        world.tend()
        return cuts

    def heal(self, world: World) -> None:
        assert world.site.proxy is not None
        world.site.proxy.lose_some(0)


class BlackHoles(Nemesis):
    """Nothing that is sent arrives, and nobody is told; connections of before never wake up again."""

    unit = "black holes"
    every = 3.0
    backends = ("postgres",)
    before = "proxy"

    def strike(self, world: World) -> int:
        assert world.site.proxy is not None
        world.site.proxy.black_hole()
        world.rest(world.random.uniform(0.5, 2 * kinds.LEASE))
        world.site.proxy.heal()
        world.tend()
        return 1


class SlowNetwork(Nemesis):
    """Every message takes its time."""

    unit = "slow spells"
    every = 2.0
    backends = ("postgres",)
    before = "proxy"

    def strike(self, world: World) -> int:
        assert world.site.proxy is not None
        world.site.proxy.delay = world.random.choice([0.01, 0.05, 0.2])
        world.rest(world.random.uniform(1, 3))
        world.site.proxy.delay = 0.0
        return 1

    def heal(self, world: World) -> None:
        assert world.site.proxy is not None
        world.site.proxy.delay = 0.0


class LateMessages(Nemesis):
    """Some messages arrive after the lease of their sender has lapsed: settlements of a job that others run now."""

    unit = "late spells"
    every = 1.0
    backends = ("postgres",)
    before = "proxy"
    shape = MappingProxyType({"longest": 3.0})

    def strike(self, world: World) -> int:
        assert world.site.proxy is not None
        world.site.proxy.late = (world.random.choice([0.02, 0.1, 0.5]), kinds.LEASE * world.random.uniform(1.0, 2.5))
        world.rest(world.random.uniform(1, 2 * kinds.LEASE))
        world.site.proxy.late = (0.0, 0.0)
        world.tend()
        return 1


class Failovers(Nemesis):
    """The primary is lost for good, and its synchronous standby takes over."""

    unit = "failovers"
    every = 3.0
    backends = ("postgres",)
    before = "standby"

    def strike(self, world: World) -> int:
        assert world.site.cluster is not None
        assert world.site.proxy is not None
        world.site.cluster.fail_over()
        world.site.proxy.lead_to(world.site.cluster.url)
        world.rest(1)
        world.site.cluster.restore()
        world.tend()
        return 1


class LostTails(Failovers):
    """The primary is lost for good, and a standby takes over that lacks the last commits.

    What was acknowledged may be gone, and runs of before go on: their outcomes must reach no other job, and no other run.
    """

    unit = "lost tails"
    before = "asynchronous standby"
    #: One outcome of each token, none of another run, and effects under the token that is on record.
    judged = ("I3", "I4", "I5")

    def strike(self, world: World) -> int:
        assert world.site.cluster is not None
        world.site.cluster.fall_behind()
        world.rest(world.random.uniform(0.2, 1.0))
        return super().strike(world)

    def forgives(self, violation: Violation) -> bool:
        return violation.invariant not in self.judged or violation.text.startswith("the checkpoint of")


class Bouncer(Backends):
    """PgBouncer in transaction mode stands before the server, whose connections are ended."""

    every = 0.5
    before = "pgbouncer"


class Exhaustion(Nemesis):
    """Others take every connection that the server has left."""

    unit = "pool exhaustions"
    every = 2.0
    backends = ("postgres",)
    settings = MappingProxyType({"max_connections": "60"})

    def strike(self, world: World) -> int:
        import psycopg

        taken = []
        with suppress(psycopg.OperationalError):
            while True:
                taken.append(psycopg.connect(world.site.url, connect_timeout=5))
        world.rest(world.random.uniform(0.5, kinds.LEASE))
        for connection in taken:
            connection.close()
        world.tend()
        return 1


class IdleTransactions(Nemesis):
    """A transaction that does nothing keeps a snapshot, so that nothing can be vacuumed, and holds some jobs' rows."""

    unit = "idle transactions"
    every = 1.0
    backends = ("postgres",)

    def strike(self, world: World) -> int:
        import psycopg

        with psycopg.connect(world.site.url) as old, psycopg.connect(world.site.url) as locking:
            old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            old.execute("SELECT count(*) FROM holdfast.live")
            choice = "SELECT id FROM holdfast.live ORDER BY random() LIMIT 3 FOR UPDATE SKIP LOCKED"
            rows = locking.execute(choice).fetchall()
            with kinds.recorder().running("locked", jobs=[row[0] for row in rows]):
                world.rest(world.random.uniform(1, 2 * kinds.LEASE))
                world.site.execute("VACUUM ANALYZE holdfast.live")
                locking.rollback()
            old.rollback()
        return 1


class FullDisk(Nemesis):
    """The disk of the store and of the logs is full for a while."""

    unit = "full disks"
    every = 1.0
    backends = ("sqlite",)
    before = "small disk"
    shape = MappingProxyType({"workers": 3, "every": 0.05})

    def strike(self, world: World) -> int:
        assert isinstance(world.site, SqliteSite)
        filler = world.site.path.with_name("filler")
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(1 << world.random.choice([12, 16, 20])))
        world.rest(world.random.uniform(0.2, kinds.LEASE))
        filler.unlink()
        world.tend()
        return 1


class BusyStorms(Nemesis):
    """Thirty-two others write to the same file, and hold its lock for a while each."""

    unit = "busy storms"
    every = 0.5
    backends = ("sqlite",)
    shape = MappingProxyType({"longest": 1.0})

    def strike(self, world: World) -> int:
        assert isinstance(world.site, SqliteSite)
        writers = [Child(storm, str(world.site.path), 8, world.random.randrange(2**31)) for _ in range(4)]
        world.rest(world.random.uniform(0.3, 1.5 * kinds.LEASE))
        for writer in writers:
            writer.kill()
            writer.end()
        return 1


def storm(pipe: Any, path: str, threads: int, seed: int) -> None:
    """Threads that take the write lock, keep it for some milliseconds, and give it back."""

    def write(number: int) -> None:
        import random

        chance = random.Random(seed + number)
        connection = sqlite3.connect(path, timeout=60, isolation_level=None)
        while True:
            with suppress(sqlite3.OperationalError):
                connection.execute("BEGIN IMMEDIATE")
                kinds.NEVER.wait(chance.uniform(0, 0.01))
                connection.execute("ROLLBACK")
            kinds.NEVER.wait(chance.uniform(0, 0.1))

    for number in range(threads):
        threading.Thread(target=write, args=(number,), daemon=True).start()
    pipe.poll(None)


class MemoryCaps(Nemesis):
    """Children that take more memory than they may are killed."""

    unit = "memory kills"
    every = 0.5

    def strike(self, world: World) -> int:
        with suppress(HoldfastError):
            world.client.hungry()
            return 1
        return 0


NEMESES: dict[str, Callable[[], Nemesis]] = {
    "kills": Kills,
    "batches": BatchKills,
    "pauses": Pauses,
    "stopped": StoppedWorkers,
    "clocks": Clocks,
    "restarts": Restarts,
    "backends": Backends,
    "answers": LostAnswers,
    "holes": BlackHoles,
    "slow": SlowNetwork,
    "late": LateMessages,
    "failovers": Failovers,
    "tails": LostTails,
    "pgbouncer": Bouncer,
    "pools": Exhaustion,
    "idle": IdleTransactions,
    "disk": FullDisk,
    "storms": BusyStorms,
    "memory": MemoryCaps,
}
