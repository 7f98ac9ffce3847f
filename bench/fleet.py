"""Many worker processes on one database: connections, transactions of idle workers and of an enqueue, the drain."""

from __future__ import annotations

import argparse
import time
from contextlib import closing

import psutil
import psycopg

from bench.meter import ACTIVE_STATISTICS_S, Meter
from bench.peers import Process
from bench.samples import Spread
from bench.situation import FLAT, Finding, server_of
from bench.systems import OURS
from holdfast.store import open_store

DATABASE = "fleet"
STARTUP_S, WINDOW_S = 5, 10
#: Jobs for each worker at the steady rate: some ten claims, so that the first one weighs little. All of them are finished
#: in so many seconds.
STEADY_JOBS, STEADY_S, LOOK_S = 8000, 30, 0.05
ENQUEUES = 100
STARTED = "jobs a second of all, once they have started"


def measure(options: argparse.Namespace) -> list[Finding]:
    with server_of(DATABASE, max_connections=str(options.workers * 14 + 50)) as server:
        url = server.url(DATABASE)
        producer = OURS.start(url)
        drained = _drain([producer], producer, options.jobs)
        workers = [OURS.start(url) for _ in range(options.workers)]
        steady = STEADY_JOBS * options.workers
        alone, _ = _steady(url, Meter(server, url), producer, workers[:1], steady)
        found = _idle(url, Meter(server, url), producer, workers)
        together, facts = _steady(url, Meter(server, url), producer, workers, steady)
        rate = (STARTED, f"{together:,.0f}", _ratio(together, alone))
        found += [rate, facts]
        started = _drain(workers, producer, options.jobs)
        found.append(("drain by all, the start of the workers included", f"{started:,.0f}", _ratio(started, drained)))
        for process in (producer, *workers):
            process.close()
    label = f"{options.workers} workers on one database"
    return [Finding(label, *facts, FLAT if facts[0] == STARTED else "") for facts in found]


def _ratio(together: float, alone: float) -> Spread:
    return Spread(together / alone, together / alone, together / alone)


def _steady(
    url: str, meter: Meter, producer: Process, workers: list[Process], jobs: int
) -> tuple[float, tuple[str, str, Spread | None]]:
    """The rate of workers that have started: the queue is paused while a producer fills it. And their CPU for a job."""
    startup = STARTUP_S + len(workers) // 10
    for worker in workers:
        worker.order(act="idle", count=startup + STEADY_S, size=1)
    time.sleep(startup)
    with closing(open_store(url)) as store, psycopg.connect(url, autocommit=True) as connection:
        store.queues.pause("default")
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")
        producer.perform("bulk", jobs, 10_000)
        used, began = _cpu(workers) + meter.read().cpu_s, time.monotonic()
        store.queues.resume("default")
        while connection.execute("SELECT FROM holdfast.live LIMIT 1").rowcount:
            time.sleep(LOOK_S)
        seconds = time.monotonic() - began
        used = _cpu(workers) + meter.read().cpu_s - used
    for worker in workers:
        worker.answer()
    return jobs / seconds, ("CPU of workers and server, µs a job", f"{used / jobs * 1e6:.0f}", None)


def _idle(url: str, meter: Meter, producer: Process, workers: list[Process]) -> list[tuple[str, str, Spread | None]]:
    """All workers idle, then one job at a time for all of them."""
    seconds = STARTUP_S + len(workers) // 10 + 2 * WINDOW_S + 10
    for worker in workers:
        worker.order(act="idle", count=seconds, size=1)
    time.sleep(STARTUP_S + len(workers) / 10)
    first, began, used = meter.transactions(), time.monotonic(), _cpu(workers)
    time.sleep(WINDOW_S)
    connections = _connections(url)
    second, elapsed, used = meter.transactions(), time.monotonic() - began, _cpu(workers) - used
    idle = (second - first) / elapsed
    began = time.monotonic()
    producer.perform("send", ENQUEUES)
    time.sleep(ACTIVE_STATISTICS_S)
    sent = meter.transactions() - second - idle * (time.monotonic() - began)
    for worker in workers:
        worker.answer()
    return [
        ("connections held", f"{connections}", None),
        ("transactions a second while all are idle", f"{idle:,.1f}", None),
        ("CPU of an idle worker, % of a core", f"{used / elapsed / len(workers) * 100:.2f}", None),
        ("memory of a worker before user code, MB", f"{_memory(workers[0]):.0f}", None),
        ("transactions for each job that is enqueued alone, to its end", f"{sent / ENQUEUES:,.1f}", None),
    ]


def _drain(workers: list[Process], producer: Process, jobs: int) -> float:
    producer.perform("bulk", jobs, 10_000)
    for worker in workers:
        worker.order(act="drain", count=0)
    answers = [worker.answer() for worker in workers]
    return float(sum(answer["jobs"] for answer in answers) / max(answer["seconds"] for answer in answers))


def _connections(url: str) -> int:
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND backend_type = 'client backend'"
    )
    with psycopg.connect(url, autocommit=True) as connection:
        (count,) = connection.execute(query).fetchone() or (0,)
    return int(count)


def _cpu(workers: list[Process]) -> float:
    times = [psutil.Process(worker.pid).cpu_times() for worker in workers]
    return float(sum(used.user + used.system for used in times))


def _memory(worker: Process) -> float:
    return float(psutil.Process(worker.pid).memory_info().rss / 1024**2)
