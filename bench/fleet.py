"""Many worker processes on one database: connections, transactions of idle workers and of an enqueue, the drain."""

from __future__ import annotations

import argparse
import time

import psutil
import psycopg

from bench.meter import ACTIVE_STATISTICS_S, Meter
from bench.peers import Process
from bench.samples import Spread
from bench.situation import Finding, server_of
from bench.systems import OURS

DATABASE = "fleet"
STARTUP_S, WINDOW_S = 5, 10
ENQUEUES = 100


def measure(options: argparse.Namespace) -> list[Finding]:
    with server_of(DATABASE, max_connections=str(options.workers * 14 + 50)) as server:
        url = server.url(DATABASE)
        producer = OURS.start(url)
        alone = _drain([producer], producer, 3 * options.jobs)
        workers = [OURS.start(url) for _ in range(options.workers)]
        found = _idle(url, Meter(server, url), producer, workers)
        together = _drain(workers, producer, 3 * options.jobs)
        for process in (producer, *workers):
            process.close()
    label, ratio = f"{options.workers} workers on one database", together / alone
    found.append(("drain by all, jobs a second", f"{together:,.0f}", Spread(ratio, ratio, ratio)))
    return [Finding(label, *facts) for facts in found]


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
