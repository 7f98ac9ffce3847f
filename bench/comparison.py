"""Holdfast beside its peers, in one run.

    python -m bench.comparison [--rounds 5] [--jobs 20000] [--quick] [--write]

The systems take turns on one server, each in a database of its own, with the same settings. So ratios within a run can be
trusted where rates cannot: on a shared machine the same code may take half as long again a minute later. ``--write`` writes
the figures and the chart of docs/performance.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
from tests.support.postgres import DURABLE, PostgresServer, bundled_programs, running

from bench.comparison_page import (
    DRAIN,
    DRAIN_TWO,
    HUEY,
    LATENCY,
    ONE,
    RAW,
    TEN_THOUSANDS,
    THOUSANDS,
    Samples,
    page,
    write_page,
)
from bench.fill import fill_postgres
from bench.peers import Peer, Process, python
from bench.raw import RawPostgres

#: The modules of the systems. Procrastinate does a tenth of the jobs: it would take most of the time.
RACERS = {"Holdfast": ("bench.racer_holdfast", 1.0), "PgQueuer": ("bench.racer_pgqueuer", 1.0)}
RACERS |= {"Procrastinate": ("bench.racer_procrastinate", 0.1)}
RAW_IDS = 1_000_000_000
#: The statistics of a session reach the server at most once a second.
STATISTICS_S = 1.2
#: Vacuum comes between the rounds, for all alike; its own timing would decide who is slow.
SETTINGS = {**DURABLE, "autovacuum": "off"}


class Racer(Process):
    """One of the systems. It does what it is ordered to do, and measures it."""

    def __init__(self, module: str, url: str) -> None:
        super().__init__(module, url, program=sys.executable if module == "bench.racer_holdfast" else python())
        self.perform("bulk", 0)  # it has started, and its tables exist

    def perform(self, act: str, count: int, size: int = 1) -> dict[str, Any]:
        self.order(act=act, count=count, size=size)
        return self.answer()


class Meter:
    """What a step costs the server."""

    def __init__(self, server: PostgresServer, url: str) -> None:
        self._pid = int((Path(server.data) / "postmaster.pid").read_text().splitlines()[0])
        self._url = url

    def read(self) -> tuple[float, float, float]:
        """Seconds of CPU, bytes of WAL, transactions."""
        time.sleep(STATISTICS_S)
        query = (
            "SELECT (pg_current_wal_insert_lsn() - '0/0')::float8, xact_commit::float8 FROM pg_stat_database"
            " WHERE datname = current_database()"
        )
        with psycopg.connect(self._url, autocommit=True) as connection:
            wal, transactions = connection.execute(query).fetchone() or (0.0, 0.0)
        return self._cpu(), wal, transactions

    def _cpu(self) -> float:
        postmaster = psutil.Process(self._pid)
        used = postmaster.cpu_times()
        total = used.user + used.system + used.children_user + used.children_system
        for child in postmaster.children(recursive=True):
            with suppress(psutil.Error):  # it has just ended
                times = child.cpu_times()
                total += times.user + times.system
        return float(total)


class Race:
    """One system on its database of PostgreSQL."""

    def __init__(self, name: str, server: PostgresServer, options: argparse.Namespace, samples: Samples) -> None:
        self._name, self._samples = name, samples
        module, share = RACERS[name]
        url = server.url(_database(name))
        self._jobs, self._ones = int(options.jobs * share), int(options.ones * share)
        self._latencies = options.latencies
        self._meter = Meter(server, url)
        self._racers = [Racer(module, url), Racer(module, url)]

    def steps(self) -> dict[str, Callable[[], None]]:
        return {
            ONE: lambda: self._enqueue(ONE, "one", self._ones),
            THOUSANDS: lambda: self._enqueue(THOUSANDS, "bulk", self._jobs, 1000),
            DRAIN: self._drain,
            TEN_THOUSANDS: lambda: self._enqueue(TEN_THOUSANDS, "bulk", self._jobs, 10_000),
            DRAIN_TWO: self._drain_by_two,
            LATENCY: self._measure_latency,
        }

    def close(self) -> None:
        for racer in self._racers:
            racer.close()

    def _enqueue(self, step: str, act: str, count: int, size: int = 1) -> None:
        self._samples.add(self._name, step, count / self._racers[0].perform(act, count, size)["seconds"])

    def _drain(self) -> None:
        before = self._meter.read()
        answer = self._racers[0].perform("drain", 0)
        after, jobs = self._meter.read(), answer["jobs"]
        self._samples.add(self._name, DRAIN, jobs / answer["seconds"])
        cpu, wal, transactions = ((end - begin) / jobs for begin, end in zip(before, after, strict=True))
        costs = self._samples.costs.setdefault(self._name, {})
        found = {"worker": answer["cpu"] / jobs * 1e6, "server": cpu * 1e6, "wal": wal, "transactions": transactions}
        for name, value in found.items():
            costs.setdefault(name, []).append(value)

    def _drain_by_two(self) -> None:
        for racer in self._racers:
            racer.order(act="drain", count=0)
        answers = [racer.answer() for racer in self._racers]
        rate = sum(answer["jobs"] for answer in answers) / max(answer["seconds"] for answer in answers)
        self._samples.add(self._name, DRAIN_TWO, rate)

    def _measure_latency(self) -> None:
        worker, sender = self._racers
        worker.order(act="serve", count=self._latencies)
        time.sleep(0.5)  # the worker listens
        sender.perform("send", self._latencies)
        self._samples.waits.setdefault(self._name, []).extend(wait * 1000 for wait in worker.answer()["waits"])


def _database(name: str) -> str:
    return name.lower().replace(" ", "_")


def race_on_postgres(options: argparse.Namespace, samples: Samples) -> None:
    with running(bundled_programs(), settings=SETTINGS) as server:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            for name in (*RACERS, RAW):
                connection.execute(f"CREATE DATABASE {_database(name)}".encode())
        races = {name: Race(name, server, options, samples) for name in RACERS}
        fill_postgres(server.url(_database(RAW)), None, 0)  # it works on our tables
        raw = RawPostgres(server.url(_database(RAW)), first_id=RAW_IDS)
        for turn in range(options.rounds + 1):
            _vacuum(server)
            order = [*RACERS][turn % len(RACERS) :] + [*RACERS][: turn % len(RACERS)]
            for step in races["Holdfast"].steps():
                for name in order:
                    races[name].steps()[step]()
            samples.add(RAW, TEN_THOUSANDS, options.jobs / raw.enqueue_bulk(options.jobs))
            samples.add(RAW, DRAIN, options.jobs / raw.drain(options.jobs, 1000))
            if turn == 0:  # statements were prepared, and caches filled
                samples.clear()
        for race in races.values():
            race.close()
        raw.close()


def _vacuum(server: PostgresServer) -> None:
    for name in (*RACERS, RAW):
        with psycopg.connect(server.url(_database(name)), autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
            connection.execute("CHECKPOINT")


def race_on_sqlite(options: argparse.Namespace, samples: Samples) -> None:
    """Beside huey, as durable. huey has no bulk, and does a fiftieth of the jobs."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        ours = Racer("bench.racer_holdfast", f"sqlite:///{folder}/jobs.db")
        peer = Peer("bench.peer_huey", f"{folder}/huey.db")
        few = max(100, options.jobs // 50)
        for _ in range(options.rounds):
            samples.add("Holdfast", ONE, options.ones / ours.perform("one", options.ones)["seconds"])
            samples.add(HUEY, ONE, few / peer.enqueue_one(few))
            samples.add("Holdfast", THOUSANDS, options.jobs / ours.perform("bulk", options.jobs, 1000)["seconds"])
            answer = ours.perform("drain", 0)
            samples.add("Holdfast", DRAIN, answer["jobs"] / answer["seconds"])
            samples.add(HUEY, DRAIN, few / peer.drain(few, 1))
        ours.close()
        peer.close()


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--ones", type=int, default=2000)
    parser.add_argument("--latencies", type=int, default=200)
    parser.add_argument("--quick", action="store_true", help="two rounds of fewer jobs: a first impression")
    parser.add_argument("--write", action="store_true", help="write docs/performance.md")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.jobs, options.ones, options.latencies = 2, 10_000, 500, 50
    postgres, sqlite = Samples(), Samples()
    began = time.monotonic()
    race_on_postgres(options, postgres)
    race_on_sqlite(options, sqlite)
    minutes = (time.monotonic() - began) / 60
    machine = f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
    text = page(postgres, sqlite, f"Medians of {options.rounds} rounds, {minutes:.0f} minutes in all, on {machine}.")
    print(text)
    if options.write:
        write_page(text, postgres)


if __name__ == "__main__":
    main(sys.argv[1:])
