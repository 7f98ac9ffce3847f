"""The benchmark of workers: drains beside PgQueuer, huey and the raw limit; latency, idle cost, memory.

    python -m bench.workers [--quick] [--only postgres|sqlite] [--rounds 3] [--jobs 100000] [--json FILE]

The systems take turns, so that ratios can be trusted where rates cannot: on a shared machine the same
code may take half as long again a minute later.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg
from tests.support.postgres import DURABLE, PostgresServer, bundled_programs, running

from bench.fill import fill_postgres, fill_sqlite
from bench.peers import HOME, Process, python
from bench.raw import RawPostgres
from bench.report import Ratio, print_ratios
from bench.work import chunks
from bench.worker_jobs import app

RESULTS = Path(__file__).parent / "results" / "workers.json"
CROWDS = ("finished", "waiting")
#: Vacuum comes between the rounds, for all alike; its own timing would decide who is slow.
SETTINGS = {**DURABLE, "autovacuum": "off"}
RAW_IDS = 1_000_000_000


@contextmanager
def holdfast_worker(url: str) -> Iterator[Process]:
    process = Process("bench.worker_holdfast", url)
    try:
        yield process
    finally:
        process.close()


def fill(url: str, kind: str, count: int) -> None:
    """Enqueue *count* jobs of a kind that does nothing or naps."""
    app.use(url)
    handler = {"nothing": app.kinds["nothing"], "nap": app.kinds["nap"]}[kind]
    for size in chunks(count):
        app.store.jobs.enqueue_many([app.request(handler.name, {"n": 1}, {})] * size)
    app.close()


def drained(process: Process, *, slots: int = 8) -> dict[str, float]:
    process.order(slots=slots)
    return process.answer()


# -- drains ------------------------------------------------------------------------------------


def drains_postgres(server: PostgresServer, options: argparse.Namespace) -> tuple[dict[str, Any], list[Ratio]]:
    """100k no-ops by one worker process: alone, and among a million jobs."""
    places = {"holdfast": "holdfast", **{f"holdfast, {crowd}": f"holdfast_{crowd}" for crowd in CROWDS}}
    with psycopg.connect(server.url(), autocommit=True) as connection:
        for name in ("pgqueuer", "raw", *places.values()):
            connection.execute(f"CREATE DATABASE {name}")
    for crowd in (None, *CROWDS):
        fill_postgres(server.url(f"holdfast_{crowd}" if crowd else "holdfast"), crowd, options.crowd)
    fill_postgres(server.url("raw"), None, 0)
    peer = Process("bench.worker_pgqueuer", server.url("pgqueuer"), program=python())
    raw = RawPostgres(server.url("raw"), first_id=RAW_IDS)
    rates: dict[str, list[float]] = {}
    cpu: list[float] = []
    for _ in range(options.rounds):
        _vacuum(server, ["pgqueuer", "raw", *places.values()])
        for name, database in places.items():
            fill(server.url(database), "nothing", options.jobs)
            with holdfast_worker(server.url(database)) as process:
                found = drained(process)
            rates.setdefault(name, []).append(found["done"] / found["seconds"])
            if name == "holdfast":
                cpu.append(found["cpu"] / found["done"] * 1e6)
        peer.order(act="fill", count=options.jobs)
        peer.answer()
        peer.order(act="drain")
        found = peer.answer()
        rates.setdefault("pgqueuer", []).append(found["done"] / found["seconds"])
        raw.enqueue_bulk(options.jobs)
        rates.setdefault("raw", []).append(options.jobs / raw.drain(options.jobs, 1000))
    peer.close()
    raw.close()
    middle = {name: statistics.median(values) for name, values in rates.items()}
    ratios = [
        Ratio(name="drain: holdfast / pgqueuer", value=middle["holdfast"] / middle["pgqueuer"], target=2),
        Ratio(name="drain: holdfast / raw", value=middle["holdfast"] / middle["raw"]),
        *[
            Ratio(name=f"drain: {crowd} / empty", value=middle[f"holdfast, {crowd}"] / middle["holdfast"], target=0.9)
            for crowd in CROWDS
        ],
        Ratio(name="worker CPU a job, us", value=statistics.median(cpu), target=20, at_most=True),
    ]
    return {"rates": middle, "samples": rates, "cpu_us": cpu}, ratios


def drains_sqlite(folder: Path, options: argparse.Namespace) -> tuple[dict[str, Any], list[Ratio]]:
    """The same on SQLite beside huey, as durable."""
    url = f"sqlite:///{folder / 'jobs.db'}"
    fill_sqlite(folder / "jobs.db", None, 0)
    peer = Process("bench.peer_huey", str(folder / "huey.db"), program=python())
    rates: dict[str, list[float]] = {}
    few = max(1, options.jobs // 50)
    for _ in range(options.rounds):
        fill(url, "nothing", options.jobs)
        with holdfast_worker(url) as process:
            found = drained(process)
        rates.setdefault("holdfast", []).append(found["done"] / found["seconds"])
        for act in ("one", "drain"):
            peer.order(act=act, count=few)
            seconds = peer.answer()["seconds"]
        rates.setdefault("huey", []).append(few / seconds)
    peer.close()
    middle = {name: statistics.median(values) for name, values in rates.items()}
    ratio = Ratio(name="drain: holdfast / huey", value=middle["holdfast"] / middle["huey"], target=8)
    return {"rates": middle, "samples": rates}, [ratio]


def _vacuum(server: PostgresServer, names: list[str]) -> None:
    for name in names:
        with psycopg.connect(server.url(name), autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")


def two_processes(url: str, options: argparse.Namespace) -> list[Ratio]:
    """One process and two, of no-ops and of naps with one slot each."""
    found: dict[tuple[str, int], list[float]] = {}
    counts = {"nothing": options.jobs, "nap": max(100, options.jobs // 50)}
    for _ in range(options.rounds):
        for kind, count in counts.items():
            for size in (1, 2):
                fill(url, kind, count)
                found.setdefault((kind, size), []).append(_together(url, size, slots=8 if kind == "nothing" else 1))
    middle = {key: statistics.median(values) for key, values in found.items()}
    return [
        Ratio(name="two processes / one: no-ops", value=middle["nothing", 2] / middle["nothing", 1], target=0.95),
        Ratio(name="two processes / one: naps of 5 ms", value=middle["nap", 2] / middle["nap", 1], target=1.8),
    ]


def _together(url: str, size: int, *, slots: int) -> float:
    """Jobs a second of *size* processes that drain one queue."""
    processes = [Process("bench.worker_holdfast", url) for _ in range(size)]
    for process in processes:
        process.order(slots=slots)
    answers = [process.answer() for process in processes]
    for process in processes:
        process.close()
    return sum(answer["done"] for answer in answers) / max(answer["seconds"] for answer in answers)


# -- one worker, nothing to do -----------------------------------------------------------------


@contextmanager
def idle_worker(url: str) -> Iterator[psutil.Process]:
    """``holdfast worker`` as users start it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "worker", "--app", "bench.worker_jobs:app"],
        cwd=HOME,
        env={**os.environ, "HOLDFAST_URL": url},
        stderr=subprocess.DEVNULL,
    )
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(60)


def latency(url: str, options: argparse.Namespace, name: str) -> list[Ratio]:
    """From enqueue to start on an idle worker, in milliseconds."""
    app.use(url)
    took: list[float] = []
    with idle_worker(url):
        app.enqueue("stamp", {"sent": time.time()}).wait(30)
        pause = threading.Event()
        for _ in range(options.samples):
            pause.wait(0.05)
            ref = app.enqueue("stamp", {"sent": time.time()})
            took.append(float(ref.wait(30).result or 0) * 1000)
    app.close()
    took.sort()
    return [
        Ratio(name=f"{name}: enqueue to start, p50 ms", value=took[len(took) // 2], target=5, at_most=True),
        Ratio(name=f"{name}: enqueue to start, p99 ms", value=took[int(len(took) * 0.99)], target=25, at_most=True),
    ]


def idle(url: str, options: argparse.Namespace, statements: Callable[[], int] | None, name: str) -> list[Ratio]:
    """What a worker costs that has nothing to do."""
    with idle_worker(url) as process:
        threading.Event().wait(5)
        memory = process.memory_info().rss / 1024**2
        before, sent, began = process.cpu_times(), statements() if statements else 0, time.monotonic()
        threading.Event().wait(options.idle)
        after, seconds = process.cpu_times(), time.monotonic() - began
        used = (after.user + after.system - before.user - before.system) / seconds * 100
        found = [
            Ratio(name=f"{name}: idle CPU, % of a core", value=used, target=0.5, at_most=True),
            Ratio(name=f"{name}: memory before user code, MB", value=memory, target=60, at_most=True),
        ]
        if statements:
            rate = (statements() - sent) / seconds
            found.append(Ratio(name=f"{name}: idle statements a second", value=rate, target=2, at_most=True))
    return found


def statement_counter(server: PostgresServer) -> Callable[[], int]:
    """Counts by the server's own log."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET log_statement = 'all'")
        connection.execute("ALTER SYSTEM SET log_min_duration_statement = -1")
        connection.execute("SELECT pg_reload_conf()")
    log = server.home / "log"

    def count() -> int:
        return sum("LOG:  statement:" in line or "LOG:  execute" in line for line in log.read_text().splitlines())

    return count


def memory(url: str, options: argparse.Namespace) -> list[Ratio]:
    """Flat over a million jobs: one process drains again and again."""
    sizes = []
    with holdfast_worker(url) as process:
        for _ in range(options.million // options.jobs):
            fill(url, "nothing", options.jobs)
            sizes.append(drained(process)["resident"] / 1024**2)
    return [
        Ratio(name="memory after the first jobs, MB", value=sizes[0]),
        Ratio(name=f"growth over {options.million:,} jobs, MB", value=sizes[-1] - sizes[0], target=5, at_most=True),
    ]


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("postgres", "sqlite"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--crowd", type=int, default=1_000_000)
    parser.add_argument("--million", type=int, default=1_000_000)
    parser.add_argument("--samples", type=int, default=300)
    parser.add_argument("--idle", type=float, default=20.0)
    parser.add_argument("--quick", action="store_true", help="a smoke test: its figures mean little")
    parser.add_argument("--json", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.jobs, options.crowd, options.million = 1, 5000, 20_000, 10_000
        options.samples, options.idle = 50, 5.0
    return options


def main(arguments: list[str]) -> None:
    options = _options(arguments)
    found: list[Ratio] = []
    told: dict[str, Any] = {}
    if options.only != "sqlite":
        with running(bundled_programs(), settings=SETTINGS) as server:
            told["postgres"], ratios = drains_postgres(server, options)
            url = server.url("holdfast")
            found += ratios + two_processes(url, options) + memory(url, options)
            # A million jobs have come and gone, and autovacuum is off here.
            _vacuum(server, ["holdfast"])
            found += latency(url, options, "PostgreSQL")
            found += idle(url, options, statement_counter(server), "PostgreSQL")
    if options.only != "postgres":
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            told["sqlite"], ratios = drains_sqlite(Path(folder), options)
            url = f"sqlite:///{folder}/jobs.db"
            found += ratios + latency(url, options, "SQLite") + idle(url, options, None, "SQLite")
    for backend, facts in told.items():
        print(f"\n{backend}: jobs per second drained by one worker process, medians of {options.rounds}")
        for name, rate in facts["rates"].items():
            print(f"  {name:22}{rate:>10,.0f}")
    print_ratios(found)
    told["ratios"] = [
        {"name": ratio.name, "value": ratio.value, "target": ratio.target, "verdict": ratio.verdict} for ratio in found
    ]
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(told, indent=1) + "\n")
    print(f"\nwritten to {options.json}")


if __name__ == "__main__":
    main(sys.argv[1:])
