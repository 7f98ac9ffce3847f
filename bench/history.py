"""What a long history costs: claims, enqueues, lists and retention beside many finished jobs on PostgreSQL.

    python -m bench.history [--jobs N] [--ranges N] [--by-row] [--rounds N]

The jobs have finished over 40 days, each hundredth is dead. They are inserted straight into the tables of a server of its
own, with durable settings: 100 million take 35 GB and about half an hour. Each operation is called some times: the table
has the median of the time and the CPU time of the server, once with an empty history and once with the full one. Then
retention deletes jobs older than 30 days. ``--by-row``: all jobs are in one range, so that it deletes them one by one.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from datetime import timedelta

import psutil
import psycopg
from tests.support.postgres import DURABLE, PostgresServer, bundled_programs, running

from holdfast.domain.jobs.job import JobId, State, WorkerId
from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.verdict import Done
from holdfast.domain.retention import Retention
from holdfast.store import Store
from holdfast.store.jobs.retention import RULES
from holdfast.store.jobs.settlement import Settlement
from holdfast.store.postgres.backend import PostgresBackend

MOST_ROWS = 500_000
SPAN, KEPT = timedelta(days=40), Retention(done=timedelta(days=30), dead=timedelta(days=90))
LEASES = {"mail": timedelta(minutes=1)}

_JOB = """
INSERT INTO holdfast.job (id, kind, payload, actor, created_at, max_attempts, max_crashes, on_lost)
SELECT n, 'mail', '{"user": 12345, "template": "welcome"}', 'fill', now() - %(span)s::interval * (1 - n / %(jobs)s::float),
    3, 3, 'retry'
FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n
"""
_FINISHED = """
INSERT INTO holdfast.finished (id, state, queue, kind, priority, due_at, attempts, crashes, token, worker, started_at,
    finished_at, reason, error)
SELECT n, CASE WHEN n %% 100 = 0 THEN 'dead' ELSE 'done' END, 'default', 'mail', 0, now(), 1, 0, 1, 'fill', now(),
    now() - %(span)s::interval * (1 - n / %(jobs)s::float), 'done', CASE WHEN n %% 100 = 0 THEN 'ValueError: broken' END
FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n
"""


def fill(url: str, jobs: int, width: int | None) -> None:
    """Insert finished jobs. Ranges of *width* ids begin as the ids grow; without it, all jobs are in the first one."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        if width is not None:
            _shorten_first_range(connection)
        step = min(MOST_ROWS, (width or jobs) // 4)
        for first in range(1, jobs + 1, step):
            values = {"first": first, "last": min(first + step - 1, jobs), "jobs": jobs, "span": SPAN}
            connection.execute("SELECT setval('holdfast.job_id', %s)", (values["last"],))
            if width is not None:
                connection.execute("SELECT FROM holdfast.maintain_ranges(NULL, %s, 10000)", (width,))
            connection.execute(_JOB.encode(), values)
            connection.execute(_FINISHED.encode(), values)
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


def _shorten_first_range(connection: psycopg.Connection) -> None:
    """Leave the oldest range, whose jobs are deleted one by one, without ids: the store is empty."""
    connection.execute("DROP TABLE holdfast.finished_before_10000000, holdfast.finished_from_10000000")
    make = "CREATE TABLE holdfast.finished_{} PARTITION OF holdfast.finished_done FOR VALUES FROM ({}) TO ({})"
    connection.execute(make.format("first", "MINVALUE", 1).encode())
    connection.execute(make.format("last", 1, "MAXVALUE").encode())


def operations(store: Store, jobs: int) -> dict[str, Callable[[], object]]:
    """The operations, by name. *jobs* is the number of finished ones."""
    worker = WorkerId("bench")

    def claim(count: int) -> Callable[[], object]:
        def call() -> object:
            leases = store.leases.claim(worker, queues=["default"], leases=LEASES, free=count)
            return store.leases.settle_many([Settlement(lease, Done()) for lease in leases])

        return call

    middle = JobId(max(1, jobs // 2))
    return {
        "enqueue one": lambda: store.jobs.enqueue(NewJob(kind="mail")),
        "claim and settle one": claim(1),
        "claim and settle 100": claim(100),
        "get a finished job": lambda: store.views.page(Selector(ids=(middle,)), limit=1),
        "ls": lambda: store.views.page(Selector(), limit=50),
        "ls done": lambda: store.views.page(Selector(states=(State.DONE,)), limit=50),
        "ls dead": lambda: store.views.page(Selector(states=(State.DEAD,)), limit=50),
        "list page of the dashboard": lambda: store.views.page(Selector(), limit=50, brief=True),
        "the same, half way down": lambda: store.views.page(Selector(), limit=50, brief=True, before=middle),
        "counters of the dashboard": lambda: store.dashboard.tallies(cap=10_000, most=10_000, span=timedelta(hours=1)),
        "change tokens": store.dashboard.change_counters,
    }


class Meter:
    """The CPU time of a server's processes."""

    def __init__(self, server: PostgresServer) -> None:
        pid = int((server.data / "postmaster.pid").read_text().split()[0])
        self._postmaster = psutil.Process(pid)

    def cpu(self) -> float:
        return sum(sum(each.cpu_times()[:2]) for each in self._postmaster.children())


def measure(store: Store, meter: Meter, jobs: int, rounds: int) -> dict[str, tuple[float, float]]:
    """Median time and CPU time of each operation, in milliseconds."""
    store.jobs.enqueue_many([NewJob(kind="mail")] * (102 * (rounds + 5)))
    figures = {}
    for name, call in operations(store, jobs).items():
        for _ in range(5):
            call()
        times, cpu = [], meter.cpu()
        for _ in range(rounds):
            begun = time.perf_counter()
            call()
            times.append(time.perf_counter() - begun)
        figures[name] = (1000 * statistics.median(times), 1000 * (meter.cpu() - cpu) / rounds)
    return figures


def prune(store: Store, url: str, meter: Meter, width: int | None) -> None:
    """Apply retention until nothing is left to delete, and vacuum; print what it took."""
    if width is not None:
        store.pruner.range_width = width
    with psycopg.connect(url, autocommit=True) as connection:

        def wal() -> int:
            return int((connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'").fetchone() or (0,))[0])

        def jobs() -> int:
            return int((connection.execute("SELECT count(*) FROM holdfast.job").fetchone() or (0,))[0])

        before, written, cpu, begun, longest = jobs(), wal(), meter.cpu(), time.perf_counter(), 0.0
        rules = [rule for rule in RULES if rule.counted_as == "job"]
        idle = 0
        while idle < 3:  # a range a call, then its requests
            step = time.perf_counter()
            count = sum(store.pruner.apply(rule, KEPT) for rule in rules)
            longest = max(longest, time.perf_counter() - step)
            idle = 0 if count else idle + 1
        seconds, cpu, written = time.perf_counter() - begun, meter.cpu() - cpu, wal() - written
        deleted = max(1, before - jobs())
        ((left,),) = connection.execute("SELECT count(*) FROM holdfast.done_ranges()").fetchall()
        print(
            f"retention: {deleted:,} jobs, {seconds:,.1f} s, {1e6 * cpu / deleted:.1f} µs of the server's CPU and"
            f" {written / deleted:.0f} bytes of WAL a job; the longest step {1000 * longest:,.0f} ms; {left} ranges left"
        )
        cpu, written = meter.cpu(), wal()
        connection.execute("VACUUM")
        cpu, written = meter.cpu() - cpu, wal() - written
        print(f"vacuum after it: {1e6 * cpu / deleted:.1f} µs and {written / deleted:.0f} bytes a job")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000_000, help="finished jobs to load")
    parser.add_argument("--ranges", type=int, default=10, help="ranges of finished jobs")
    parser.add_argument("--by-row", action="store_true", help="one range: retention deletes jobs one by one")
    parser.add_argument("--rounds", type=int, default=100, help="calls of each operation")
    options = parser.parse_args()
    width = None if options.by_row else options.jobs // options.ranges
    with running(bundled_programs(), settings={**DURABLE, "autovacuum": "off", "max_wal_size": "8GB"}) as server:
        meter = Meter(server)
        store = Store(PostgresBackend(server.url()))
        empty = measure(store, meter, 1, options.rounds)
        store.close()
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute("DROP SCHEMA holdfast CASCADE")
        store = Store(PostgresBackend(server.url()))
        begun = time.perf_counter()
        fill(server.url(), options.jobs, width)
        with psycopg.connect(server.url()) as connection:
            ((ranges,),) = connection.execute("SELECT count(*) FROM holdfast.done_ranges()").fetchall()
        size = store.backend.tools.size() / 1e9
        print(f"{options.jobs:,} jobs in {ranges} ranges, {size:.1f} GB, {time.perf_counter() - begun:.0f} s to load")
        full = measure(store, meter, options.jobs, options.rounds)
        print(f"{'':28} {'empty: ms':>10} {'CPU ms':>8} {'full: ms':>10} {'CPU ms':>8}")
        for name in full:
            print(
                f"{name:28} {empty[name][0]:>10.2f} {empty[name][1]:>8.2f} {full[name][0]:>10.2f} {full[name][1]:>8.2f}"
            )
        prune(store, server.url(), meter, width)
        store.close()


if __name__ == "__main__":
    main()
