"""The campaign ``producers``: every path of an enqueue at once, while connections, producers and ids fail.

    python -m tests.chaos producers --backend postgres --count 1000000 --seed 7

Each job has a number of its own in its payload. A producer writes down a number when its enqueue has returned. At the end
every acknowledged number is there, with the id that was answered (I1), and no number is there twice (I2).
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sqlite3
import struct
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg

import holdfast
from holdfast.domain.jobs.job import Lease, WorkerId
from holdfast.domain.jobs.new_job import NewJob, Unique
from holdfast.errors import HoldfastError, StoreBusy, StoreUnavailable
from holdfast.store.jobs import job_rows
from holdfast.store.jobs.enqueue import EnqueueCall
from tests.chaos.campaigns import Campaign, Outcome
from tests.chaos.checker import Violation
from tests.chaos.sites import PostgresSite, Site, SqliteSite, open_site
from tests.support.processes import Child, wait_until

NAME = "producers"
#: Acknowledged jobs of the whole campaign.
FULL = {"postgres": 1_000_000, "sqlite": 300_000}
#: Seconds between two faults, and between two reports.
FAULT_EVERY_S, TELL_EVERY_S = 0.5, 10.0
#: Producers, and threads of each.
PROCESSES, THREADS = 4, 8
#: Numbers of one process. A process that takes the place of a killed one has others.
NUMBERS = 10_000_000
#: Jobs of one statement, so that a call with more of them takes several.
BLOCK = 40
#: A number and the id of its job, as a producer writes them down.
ACKNOWLEDGED = struct.Struct("<qq")
#: Ids by which the sequence steps back, as after a restore. Producers have drawn thousands ahead, which no job has yet.
STEP_BACK = 100_000
PARENTS, KIND = "parents", "numbered"
NEVER = threading.Event()


class Producer:
    """One process: its threads enqueue on all paths until it is killed, or told to stop."""

    def __init__(self, url: str, folder: str, number: int, seed: int) -> None:
        job_rows.MAX_ROWS = BLOCK
        self.url = url
        self.app = holdfast.Holdfast(url)
        self.end = threading.Event()
        self._log = os.open(Path(folder) / f"{number}.acknowledged", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._next = number * NUMBERS
        self._lock = threading.Lock()
        self._seed = seed
        self._holder: Lease | None = None

        @self.app.job(name=KIND)
        def numbered(n: int) -> None: ...

        self.numbered = numbered
        self.paths: dict[Callable[[random.Random], None], int] = {
            self.single: 30,
            self.keyed: 6,
            self.alike: 12,
            self.mixed: 6,
            self.keys: 4,
            self.dependent: 4,
            self.child: 6,
            self.caller: 6,
            self.asynchronous: 4,
        }

    def work(self, thread: int) -> None:
        chance = random.Random(self._seed * THREADS + thread)
        paths, weights = list(self.paths), list(self.paths.values())
        while not self.end.is_set():
            (path,) = chance.choices(paths, weights)
            try:
                path(chance)
            except (HoldfastError, sqlite3.Error, psycopg.Error):
                self.end.wait(0.01)  # not acknowledged: it may exist, once

    def numbers(self, count: int) -> range:
        with self._lock:
            self._next += count
            return range(self._next - count, self._next)

    def acknowledge(self, numbers: range, ids: list[int]) -> None:
        os.write(self._log, b"".join(ACKNOWLEDGED.pack(n, each) for n, each in zip(numbers, ids, strict=True)))

    def requests(self, numbers: range, **options: Any) -> list[NewJob]:
        return [NewJob(kind=KIND, payload=json.dumps({"n": n}), label=f"{n}", **options) for n in numbers]

    def single(self, _: random.Random) -> None:
        numbers = self.numbers(1)
        self.acknowledge(numbers, [self.numbered.enqueue(n=numbers[0]).id])

    def keyed(self, _: random.Random) -> None:
        numbers = self.numbers(1)
        self.acknowledge(numbers, [self.numbered.options(key=f"{numbers[0]}").enqueue(n=numbers[0]).id])

    def alike(self, chance: random.Random) -> None:
        """In one statement, or in several."""
        numbers = self.numbers(chance.choice((2, 20, BLOCK, 3 * BLOCK)))
        self.acknowledge(numbers, [ref.id for ref in self.numbered.enqueue_many([{"n": n} for n in numbers])])

    def mixed(self, chance: random.Random) -> None:
        numbers = self.numbers(chance.choice((2, 20, 100)))
        self.acknowledge(numbers, [made.id for made in self.app.store.jobs.enqueue_many(self.requests(numbers))])

    def keys(self, _: random.Random) -> None:
        numbers = self.numbers(5)
        requests = [each for n in numbers for each in self.requests(range(n, n + 1), unique=Unique(f"{n}"))]
        self.acknowledge(numbers, [made.id for made in self.app.store.jobs.enqueue_many(requests)])

    def dependent(self, _: random.Random) -> None:
        first, *others = self.numbers(4)
        after = self.numbered.enqueue(n=first).id
        self.acknowledge(range(first, first + 1), [after])
        refs = self.numbered.options(after=after).enqueue_many([{"n": n} for n in others])
        self.acknowledge(range(first + 1, first + 4), [ref.id for ref in refs])

    def child(self, _: random.Random) -> None:
        """As a handler does it: the call is repeated until the store answers."""
        numbers, call = self.numbers(1), EnqueueCall(self.holder())
        (request,) = self.requests(numbers)
        while not self.end.is_set():
            with suppress(StoreUnavailable, StoreBusy):
                self.acknowledge(numbers, [self.app.store.jobs.enqueue_child(request, call).id])
                return
            self.end.wait(0.05)

    def holder(self) -> Lease:
        with self._lock:
            if self._holder is None:
                worker = WorkerId(f"parent-{os.getpid()}")
                self.app.store.jobs.enqueue(NewJob(kind="parent", queue=PARENTS))
                leases = {"parent": timedelta(days=1)}
                (self._holder,) = self.app.store.leases.claim(worker, queues=[PARENTS], leases=leases, free=1)
            return self._holder

    def caller(self, chance: random.Random) -> None:
        numbers = self.numbers(chance.choice((1, 10)))
        with own_connection(self.url) as connection:
            refs = self.numbered.options(connection=connection).enqueue_many([{"n": n} for n in numbers])
            connection.commit()
        self.acknowledge(numbers, [ref.id for ref in refs])

    def asynchronous(self, chance: random.Random) -> None:
        numbers = self.numbers(chance.choice((1, 10)))

        async def enqueue() -> list[int]:
            return [ref.id for ref in await self.numbered.aenqueue_many([{"n": n} for n in numbers])]

        self.acknowledge(numbers, asyncio.run(enqueue()))


def produce(pipe: Any, url: str, folder: str, number: int, seed: int) -> None:
    """What a process does until it hears something."""
    producer = Producer(url, folder, number, seed)
    threads = [threading.Thread(target=producer.work, args=(n,), daemon=True) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    pipe.recv()
    producer.end.set()
    for thread in threads:
        thread.join(90)


def finish(pipe: Any, url: str) -> None:
    """A worker that finishes jobs while their producers do not know yet that they exist."""
    app = holdfast.Holdfast(url)

    @app.job(name=KIND)
    def numbered(n: int) -> None: ...

    with app.worker(slots=4, queues=["default"]):
        pipe.recv()


class Crowd:
    """The producers. Those that are killed are replaced."""

    def __init__(self, site: Site, folder: Path, seed: int) -> None:
        self._site = site
        self._folder = folder
        self._random = random.Random(seed)
        self._count = 0
        self._producers = [self._start() for _ in range(PROCESSES)]

    def _start(self) -> Child:
        self._count += 1
        return Child(produce, self._site.url, str(self._folder), self._count, self._random.randrange(10**6))

    def kill_one(self) -> None:
        """Kill a producer, and wait until the one in its place has enqueued something."""
        place = self._random.randrange(PROCESSES)
        self._producers[place].kill()
        self._producers[place].end()
        self._producers[place] = self._start()
        wait_until(lambda: self._log_of(self._count).exists() and self._log_of(self._count).stat().st_size > 0)

    def _log_of(self, number: int) -> Path:
        return self._folder / f"{number}.acknowledged"

    def acknowledged(self) -> int:
        return sum(path.stat().st_size for path in self._folder.glob("*.acknowledged")) // ACKNOWLEDGED.size

    def stop(self) -> None:
        for producer in self._producers:
            producer.tell(None)
        for producer in self._producers:
            producer._process.join(100)
            producer.end()


class Faults:
    """What happens to the store and to its producers; each of it counted."""

    def __init__(self, site: Site, crowd: Crowd, seed: int) -> None:
        self._site = site
        self._crowd = crowd
        self._random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        if isinstance(site, PostgresSite):
            assert site.proxy is not None
            site.proxy.lose_some(0.004, seed=seed)
            site.proxy.late = (0.002, 0.2)
            self._all = {self.cut: 4, self.terminate: 3, self.give_out_twice: 4, self.kill: 2, self.swallow: 0.2}
        else:
            self._all = {self.kill: 2, self.lock: 2, self.checkpoint: 1}
        #: Each of them strikes at first, and some again: few calls meet an id that was given out twice.
        self.due = [fault for fault in self._all if fault != self.swallow for _ in range(int(self._all[fault]))]
        self._random.shuffle(self.due)

    def strike(self) -> None:
        (fault,) = self._random.choices(list(self._all), list(self._all.values()))
        if self.due:
            fault = self.due.pop()
        with suppress(sqlite3.OperationalError, psycopg.OperationalError):  # a server under cuts hangs up on us, too
            fault()
            self.counts[fault.__name__] += 1

    def heal(self) -> None:
        if self._site.proxy is not None:
            self.counts["lost answers"] = self._site.proxy.cuts
            self._site.proxy.lose_some(0)
            self._site.proxy.late = (0.0, 0.0)

    def kill(self) -> None:
        self._crowd.kill_one()

    def cut(self) -> None:
        """All connections at once, wherever their messages are."""
        assert isinstance(self._site, PostgresSite)
        assert self._site.proxy is not None
        self._site.proxy.lead_to(self._site.server_url)

    def swallow(self) -> None:
        """Nothing arrives for a moment; connections of before stay silent for ever."""
        assert self._site.proxy is not None
        self._site.proxy.black_hole()
        NEVER.wait(0.3)
        self._site.proxy.heal()

    def terminate(self) -> None:
        self._site.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() AND application_name = 'holdfast' ORDER BY random() LIMIT 8"
        )

    def give_out_twice(self) -> None:
        """As a failover does that has lost the last draws of ids."""
        last = f"greatest(1, last_value - {STEP_BACK})"
        self._site.execute(f"SELECT setval('holdfast.job_id', {last}) FROM holdfast.job_id")

    def lock(self) -> None:
        """Another program holds the lock of the file."""
        assert isinstance(self._site, SqliteSite)
        connection = sqlite3.connect(self._site.path, timeout=10, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            NEVER.wait(self._random.uniform(0.05, 1.0))
            connection.execute("ROLLBACK")
        finally:
            connection.close()

    def checkpoint(self) -> None:
        self._site.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def run(campaign: Campaign, *, told: Callable[[str], None] = lambda _: None) -> Outcome:
    """Let producers enqueue until ``count`` jobs are acknowledged, and judge what is there."""
    began, wanted = time.monotonic(), campaign.count or 10_000
    with tempfile.TemporaryDirectory(prefix="holdfast-producers-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        before = "proxy" if campaign.backend == "postgres" else None
        with open_site(campaign.backend, folder, before=before) as site:
            direct = site.server_url if isinstance(site, PostgresSite) else site.url
            with holdfast.Holdfast(direct) as app:
                assert app.store  # the schema is there before its users
            worker, crowd = Child(finish, direct), Crowd(site, folder, campaign.seed)
            faults = Faults(site, crowd, campaign.seed)
            tell_at = began + TELL_EVERY_S
            while (count := crowd.acknowledged()) < wanted or faults.due:
                NEVER.wait(FAULT_EVERY_S)
                faults.strike()
                if time.monotonic() > tell_at:
                    tell_at += TELL_EVERY_S
                    told(f"{time.monotonic() - began:.0f} s: {count:,} acknowledged, {dict(faults.counts)}")
            faults.heal()
            crowd.stop()
            worker.tell(None)
            worker.end()
            took = time.monotonic() - began
            violations, figures = judge(site, folder)
    return Outcome(
        campaign=campaign,
        strikes={NAME: sum(faults.counts.values())},
        took=took,
        violations=violations,
        figures={**figures, **faults.counts},
        folder=None,
    )


def judge(site: Site, folder: Path) -> tuple[list[Violation], dict[str, int]]:
    """Compare what was acknowledged with what is there."""
    acknowledged = {n: job_id for path in folder.glob("*.acknowledged") for n, job_id in records(path)}
    number = "(payload->>'n')::bigint" if site.name == "postgres" else "payload->>'n'"
    rows = site.execute(f"SELECT {number}, id FROM holdfast.job WHERE kind = '{KIND}'")
    found = dict(rows)
    doubled = [n for n, count in Counter(n for n, _ in rows).items() if count > 1]
    lost = [n for n, job_id in acknowledged.items() if found.get(n) != job_id]
    violations = [Violation("I2", f"job {n} exists more than once") for n in doubled[:20]]
    violations += [Violation("I1", f"job {n} was acknowledged as {acknowledged[n]}: {found.get(n)}") for n in lost[:20]]
    figures = {"acknowledged": len(acknowledged), "jobs": len(rows), "lost": len(lost), "doubled": len(doubled)}
    return violations, figures


def records(path: Path) -> Iterator[tuple[int, int]]:
    data = path.read_bytes()
    return ACKNOWLEDGED.iter_unpack(data[: len(data) // ACKNOWLEDGED.size * ACKNOWLEDGED.size])  # type: ignore[return-value]


@contextmanager
def own_connection(url: str) -> Iterator[Any]:
    """A user's connection to the store."""
    if url.startswith("sqlite:///"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///").partition("?")[0], timeout=30)
        try:
            yield connection
        finally:
            connection.close()
        return
    with psycopg.connect(url, connect_timeout=10) as own:
        yield own
