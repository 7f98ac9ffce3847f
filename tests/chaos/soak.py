"""The soak: a mixed load for many minutes, with a short retention. Whatever still grows per job in the second half is named.

``python -m tests.chaos soak --seconds 900``. Each process counts its own memory, Python objects, descriptors and threads.
The main process reads the rows and bytes of every table and index, the connections, the log of SQLite and the logs of
commands.
"""

from __future__ import annotations

import gc
import itertools
import logging
import multiprocessing
import os
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil

import holdfast
from holdfast.domain.access.roles import Role
from holdfast.domain.commands.command import COMMAND, Command
from holdfast.domain.jobs.kind_options import PublishedKind
from holdfast.domain.jobs.new_job import NewJob
from holdfast.errors import HoldfastError
from holdfast.store.sqlite import checkpoints
from tests.chaos.campaigns import Campaign, Outcome
from tests.chaos.checker import Violation
from tests.chaos.sites import Site, open_site
from tests.support.processes import Child

#: Ages while a soak runs. Maintenance prunes every second.
SHORT = timedelta(seconds=15)
AGES = ("done", "cancelled", "dead", "batches", "plans", "events", "logs", "audit", "kinds", "responses")
#: The campaign, its length, and what its table counts.
NAME, SECONDS, UNIT = "soak", 900.0, "minutes"
#: Seconds between two samples, and between two rounds of the producer.
SAMPLE_S, ROUND_S = 2.0, 0.5
#: The growth per 1,000 jobs that noise explains, by what a figure counts.
TOLERANCE = {"bytes": 20_000.0, "memory": 150_000.0, "objects": 60.0, "rows": 10.0, "handles": 0.5}
#: What retention leaves follows the pace of the load: rows and bytes grow only if they grow by this factor too.
PACE = 1.25
#: Fewer jobs than this between the two looks say nothing about memory: allocators warm up.
WARM_JOBS = 5_000
#: The log of SQLite may not exceed this; before the bound was made it had no limit.
MAX_LOG_BYTES = getattr(checkpoints, "MAX_LOG_BYTES", 64 * 1024 * 1024)
#: What a worker says when a step of maintenance fails.
FAILED = "maintenance could not"
NEVER = threading.Event()
log = logging.getLogger(__name__)

app = holdfast.Holdfast(os.environ.get("SOAK_URL"))


@app.job(lease=5)
def noop(n: int = 0, pad: str = "") -> None: ...


@app.job(lease=5, retry=["0s"], max_attempts=2)
def flaky(n: int, me: holdfast.Context) -> None:
    """Fails at its first attempt; each tenth job dies."""
    me.progress(1, 2)
    if me.attempt == 1 or n % 10 == 0:
        raise ValueError(f"job {n}")


@app.unit(lease=5)
def labelled(key: int, run: int, unit: holdfast.Unit) -> None:
    unit.done(f"label {run % 5}")


@app.schedule("every 1s", name="beat", catch_up="every")
@app.job(lease=5)
def beat() -> None: ...


@dataclass(frozen=True, slots=True)
class Series:
    """The samples of one figure: how many jobs had been enqueued, and its value then."""

    name: str
    sort: str
    points: list[tuple[int, float]]

    def growth(self) -> float:
        """The growth per 1,000 jobs from the middle of the run to its end: the least that noise leaves."""
        count = len(self.points)
        early, late = self.points[count // 2 : 5 * count // 8], self.points[7 * count // 8 :]
        if not early or not late or late[0][0] <= early[-1][0]:
            return 0.0
        least, most = min(value for _, value in late), max(value for _, value in early)
        jobs = late[len(late) // 2][0] - early[len(early) // 2][0]
        if (self.sort == "memory" and jobs < WARM_JOBS) or (self.sort in ("rows", "bytes") and least < PACE * most):
            return 0.0
        return (least - most) / jobs * 1000

    @property
    def grows(self) -> bool:
        return self.growth() > TOLERANCE[self.sort]


def judge(series: list[Series], *, largest_log: float = 0, failures: list[str] | None = None) -> list[Violation]:
    """What does not reach a steady size. *failures*: steps of maintenance that failed."""
    found = [
        Violation("G", f"{each.name} grows by {each.growth():,.1f} {each.sort} per 1,000 jobs")
        for each in sorted(series, key=lambda each: each.name)
        if each.grows
    ]
    if largest_log > MAX_LOG_BYTES:
        found.append(Violation("G1", f"the log of the store had {largest_log / 2**20:,.0f} MiB"))
    return found + [Violation("G3", text) for text in sorted(set(failures or []))[:5]]


# -- processes ---------------------------------------------------------------------------------------------------------


def serve(pipe: Any, url: str, folder: str, part: str) -> None:
    """Run one part of the load, and answer each request with the figures of this process."""
    os.chdir(folder)
    os.environ.update(SOAK_URL=url, XDG_DATA_HOME=folder)  # for the logs of commands
    multiprocessing.current_process()._config["daemon"] = False  # commands are children
    logging.basicConfig(filename=Path(folder) / f"{part}.log", level=logging.WARNING)
    app.use(url)
    jobs: list[int] = []
    threading.Thread(target=_answer, args=(pipe, jobs), daemon=True).start()
    {"worker": _work, "producer": lambda: _produce(jobs), "readers": lambda: _read(url)}[part]()


def _answer(pipe: Any, jobs: list[int]) -> None:
    while pipe.recv():
        pipe.send({**_figures(), "jobs": sum(jobs)})


def _figures() -> dict[str, float]:
    gc.collect()
    me = psutil.Process()
    return {
        "memory": me.memory_info().rss,
        "objects": len(gc.get_objects()),
        "blocks": sys.getallocatedblocks(),
        "descriptors": me.num_fds(),
        "threads": me.num_threads(),
    }


def _work() -> None:
    from holdfast.worker import maintenance
    from holdfast.worker.commands import log_files

    maintenance.PRUNE_INTERVAL_S = maintenance.INBOX_INTERVAL_S = 1.0
    maintenance.LOGS_LIMIT, log_files.MIN_AGE_S = 10, 5.0  # a step ends within a folder that goes
    ages = {name: SHORT for name in AGES if name in holdfast_ages()}
    app.worker(commands=True, slots=8, poll=0.5, retention=ages).run()


def holdfast_ages() -> tuple[str, ...]:
    """The names of ages; an older version has fewer."""
    from holdfast.domain.retention import Retention

    return Retention.__struct_fields__


def _produce(jobs: list[int]) -> None:
    """Work in rounds. *jobs* has one number: that of the enqueued jobs."""
    jobs.append(0)
    for n in itertools.count():
        began = time.monotonic()
        for step in (_enqueue, _operate, _other_applications):
            try:
                jobs[0] += step(n)
            except HoldfastError:
                log.exception("round %s", n)
        NEVER.wait(max(0.0, began + ROUND_S - time.monotonic()))


def _enqueue(n: int) -> int:
    """Jobs with retries, tags, keys, dependencies and delays; a bulk; a command. Returns their number."""
    tagged = noop.options(tags=[f"order-{n}"], label=f"order/{n}").enqueue(n)
    keyed = noop.options(key=f"key-{n}", key_for="1s").enqueue(n)
    failing = flaky.enqueue(n)
    noop.options(after=[tagged.id, keyed.id]).enqueue(n)
    noop.options(after=[failing.id], delay="1s").enqueue(n)
    noop.enqueue_many([{"n": n, "pad": "x" * 500} for _ in range(10)])
    command = Command(argv=("/bin/echo", "done"), cwd="/", env={"PATH": "/usr/bin:/bin"}, parameters={"n": str(n)})
    app.store.jobs.enqueue(NewJob(kind=COMMAND, payload=command.dumps()))
    return 16


def _operate(n: int) -> int:
    """What people do: cancel, retry, batches, tokens, requests that repeat, kinds that are made at run time."""
    parked = noop.options(hold=True).enqueue(n)
    app.store.control.cancel(holdfast.Selector(ids=(parked.id,)), actor="soak")
    if n % 8 == 0:
        app.run(labelled.bind(run=n), range(20), jobs=1, output="none")
    if n % 4 == 0:
        app.store.kinds.publish([PublishedKind(f"made-{n}", "{}", "{}")])
        app.store.idempotency_keys.claim("soak", f"request-{n}", "digest")
        app.store.credentials.add(f"token-{n}", Role.VIEWER, actor="soak")
        app.store.credentials.revoke(f"token-{n}")
    return 1


def _other_applications(n: int) -> int:
    """An application for a request: mostly closed at its end, sometimes left to the collector."""
    if n % 4:
        return 0
    other = holdfast.Holdfast(os.environ["SOAK_URL"])
    other.enqueue("noop", {"n": n})
    if n % 8 == 0:
        other.close()
    return 1


def _read(url: str) -> None:
    """Short transactions that overlap."""
    if not url.startswith("sqlite:///"):
        while True:
            app.views.count(holdfast.Selector(states=(holdfast.State.READY,)))
            NEVER.wait(0.05)
    path = url.removeprefix("sqlite:///").partition("?")[0]

    def read() -> None:
        with sqlite3.connect(path, isolation_level=None, timeout=10) as connection:
            while True:
                with suppress(sqlite3.OperationalError):
                    connection.execute("BEGIN")
                    connection.execute("SELECT count(*) FROM holdfast_live").fetchone()
                    NEVER.wait(0.15)
                    connection.execute("COMMIT")

    for _ in range(2):
        threading.Thread(target=read, daemon=True).start()
        NEVER.wait(0.05)
    read()


# -- the store ---------------------------------------------------------------------------------------------------------


def _of_sqlite(site: Site) -> dict[str, tuple[str, float]]:
    """Rows and bytes of each table, bytes of each index; of the file, its pages in use."""
    names = [
        name
        for (name,) in site.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'holdfast%'")
    ]
    found: dict[str, tuple[str, float]] = {}
    for name in names:
        ((rows,),) = site.execute(f"SELECT count(*) FROM {name}")
        found[f"rows of {name}"] = ("rows", rows)
    for name, size in site.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name"):
        found[f"size of {name}"] = ("bytes", size)
    wal = Path(f"{site.path}-wal")  # type: ignore[attr-defined]
    found["the log"] = ("bytes", wal.stat().st_size if wal.exists() else 0)
    return found


def _of_postgres(site: Site) -> dict[str, tuple[str, float]]:
    found: dict[str, tuple[str, float]] = {}
    query = (
        "SELECT relname, relkind = 'r', pg_relation_size(oid) FROM pg_class"
        " WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'i')"
    )
    for name, is_table, size in site.execute(query):
        found[f"size of {name}"] = ("bytes", size)
        if is_table:
            ((rows,),) = site.execute(f"SELECT count(*) FROM holdfast.{name}")
            found[f"rows of {name}"] = ("rows", rows)
    ((connections,),) = site.execute("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")
    found["connections"] = ("handles", connections)
    return found


#: What the figures of a process count.
_SORTS = {"memory": "memory", "objects": "objects", "blocks": "objects", "descriptors": "handles", "threads": "handles"}


@dataclass(frozen=True, slots=True)
class Soak:
    """What came of a soak."""

    series: list[Series]
    jobs: int
    largest_log: float


def soak(site: Site, folder: Path, *, seconds: float, told: Callable[[str], None] = lambda _: None) -> Soak:
    """Load a store for some seconds, and sample it. The processes end with it."""
    points: dict[tuple[str, str], list[tuple[int, float]]] = {}
    jobs, tell_at = 0, 0.0
    with ExitStack() as stack:
        app.use(site.url)
        stack.callback(app.use, None)
        assert app.store  # its tables are there
        parts = {}
        for part in ("worker", "producer", "readers"):
            parts[part] = Child(serve, site.url, str(folder), part)
            stack.callback(_end, parts[part])
        began = time.monotonic()
        while (now := time.monotonic()) - began < seconds:
            for part, child in parts.items():
                child.tell("sample")
                figures = child.hear()
                jobs = max(jobs, figures.pop("jobs"))
                for name, value in figures.items():
                    points.setdefault((f"{name} of the {part}", _SORTS[name]), []).append((jobs, value))
            read = _of_sqlite if site.name == "sqlite" else _of_postgres
            logs = sum(1 for _ in folder.rglob("[0-9]*-[0-9]*.log"))
            for name, (sort, value) in {**read(site), "logs of commands": ("rows", logs)}.items():
                points.setdefault((name, sort), []).append((jobs, value))
            if now - tell_at > 15:
                tell_at = now
                told(f"{now - began:.0f} s: {jobs:,} jobs")
            NEVER.wait(max(0.0, now + SAMPLE_S - time.monotonic()))
    series = [Series(name, sort, values) for (name, sort), values in points.items()]
    largest = next((max(value for _, value in each.points) for each in series if each.name == "the log"), 0)
    return Soak(series, jobs, largest)


def _end(child: Child) -> None:
    child.kill()
    child.end()


def run(campaign: Campaign, *, told: Callable[[str], None] = lambda _: None) -> Outcome:
    """Soak a new store, and judge."""
    began, seconds = time.monotonic(), campaign.seconds or SECONDS
    settings = {"autovacuum_naptime": "5s"} if campaign.backend == "postgres" else {}
    with tempfile.TemporaryDirectory(prefix="holdfast-soak-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with open_site(campaign.backend, folder, **settings) as site:
            result = soak(site, folder, seconds=seconds, told=told)
        lines = (folder / "worker.log").read_text().splitlines()
    for each in result.series:
        told(f"{each.name}: {', '.join(f'{each.points[at][1]:,.0f}' for at in (0, len(each.points) // 2, -1))}")
    return Outcome(
        campaign=campaign,
        strikes={NAME: round(seconds / 60)},
        took=time.monotonic() - began,
        violations=judge(
            result.series, largest_log=result.largest_log, failures=[each for each in lines if FAILED in each]
        ),
        figures={"jobs": result.jobs, "units": 0, "plans": 0, "taken over": 0, "unknown": 0},
        folder=None,
    )
