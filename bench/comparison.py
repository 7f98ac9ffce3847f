"""Holdfast beside its peers, in one run.

    python -m bench.comparison [--rounds 3] [--jobs 100000] [--quick] [--write]

The systems take turns on one server, each in a database of its own, with the same settings. So ratios within a run can be
trusted where rates cannot: on a shared machine the same code may take half as long again a minute later. ``--write`` writes
the figures and the chart of docs/performance.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time

import psycopg
from tests.support.postgres import DURABLE, PostgresServer, bundled_programs, running

from bench.chart import write_chart
from bench.comparison_page import section
from bench.fill import fill_postgres
from bench.meter import IDLE_STATISTICS_S
from bench.page import machine, write_section
from bench.peers import Process, python
from bench.race import DRAIN, DRAIN_TWO, ONE, ONE_TURNS, P50, P99, TEN_THOUSANDS, THOUSANDS, Race, add_latency
from bench.raw import RawPostgres
from bench.runs import record
from bench.samples import Samples
from bench.systems import HOLDFAST, HUEY, RAW, System, present

RAW_IDS = 1_000_000_000
RAW_DATABASE = "raw_sql"
#: The first round prepares statements and fills caches. It does this part of the jobs, and is not counted.
WARM_UP = 0.25
#: Vacuum comes between the rounds, for all alike; its own timing would decide who is slow.
SETTINGS = {**DURABLE, "autovacuum": "off"}


def race_on_postgres(systems: list[System], options: argparse.Namespace) -> Samples:
    samples, names = Samples(), [system.database for system in systems] + [RAW_DATABASE]
    with running(bundled_programs(), settings=SETTINGS) as server:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            for name in names:
                connection.execute(f"CREATE DATABASE {name}".encode())
        races = [Race(system, server, options, samples) for system in systems]
        fill_postgres(server.url(RAW_DATABASE), None, 0)  # it works on our tables
        raw = RawPostgres(server.url(RAW_DATABASE), first_id=RAW_IDS)
        for turn in range(options.rounds + 1):
            _vacuum(server, names)
            shift = turn % len(races)
            for race in races:
                race.set_part(1.0 if turn else WARM_UP)
            for step in races[0].steps():
                for race in (races[shift:] + races[:shift]) * (ONE_TURNS if step == ONE else 1):
                    race.steps()[step]()
            samples.add(RAW, TEN_THOUSANDS, options.jobs / raw.enqueue_bulk(options.jobs))
            samples.add(RAW, DRAIN, options.jobs / raw.drain(options.jobs, 1000))
            if turn == 0:
                samples.clear()
        _count(races)
        for race in races:
            race.close()
        raw.close()
    return samples


def _count(races: list[Race]) -> None:
    """Statements and transactions. All wait at the same time until their sessions have reported."""
    for race in races:
        race.count_enqueue()
    time.sleep(IDLE_STATISTICS_S)
    for race in races:
        race.count_drain()
    time.sleep(IDLE_STATISTICS_S)
    for race in races:
        race.count_transactions()


def _vacuum(server: PostgresServer, names: list[str]) -> None:
    for name in names:
        with psycopg.connect(server.url(name), autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
            connection.execute("CHECKPOINT")


def race_on_sqlite(options: argparse.Namespace) -> Samples:
    """Beside huey, as durable. huey has no bulk, and does a twentieth of the jobs."""
    samples = Samples()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        ours, sender = (Process("bench.racer_holdfast", f"sqlite:///{folder}/jobs.db") for _ in range(2))
        huey = Process("bench.racer_huey", f"{folder}/huey.db", program=python())
        few = max(100, options.jobs // 20)
        for _ in range(options.rounds):
            samples.add(HOLDFAST, ONE, options.ones / ours.perform("one", options.ones)["seconds"])
            samples.add(HUEY, ONE, few / huey.perform("one", few)["seconds"])
            samples.add(HOLDFAST, THOUSANDS, options.jobs / ours.perform("bulk", options.jobs, 1000)["seconds"])
            for name, racer in ((HOLDFAST, ours), (HUEY, huey)):
                answer = racer.perform("drain")
                samples.add(name, DRAIN, answer["jobs"] / answer["seconds"])
            add_latency(samples, HOLDFAST, ours, sender, options.latencies)
        for racer in (ours, sender, huey):
            racer.close()
    return samples


def _record(postgres: Samples, sqlite: Samples) -> None:
    """Keep the figures that have a target."""
    peer = "PgQueuer"
    targets = {ONE: ">= 1.2", THOUSANDS: ">= 2", TEN_THOUSANDS: ">= 2", DRAIN: ">= 3", DRAIN_TWO: ">= 2.5"}
    ratios = [(postgres, peer, figure, target) for figure, target in {**targets, P50: "<= 1", P99: "<= 1"}.items()]
    for samples, other, figure, target in [*ratios, (postgres, RAW, DRAIN, ">= 0.75"), (sqlite, HUEY, DRAIN, ">= 10")]:
        if (spread := samples.ratio(HOLDFAST, other, figure)) is not None:
            record(f"Holdfast / {other}: {figure}", spread.middle, target)
    for database, samples in (("PostgreSQL", postgres), ("SQLite", sqlite)):
        for figure, target in ((P50, "<= 3"), (P99, "<= 8")):
            if (spread := samples.spread(HOLDFAST, figure)) is not None:
                record(f"{database}: {figure}", spread.middle, target)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--ones", type=int, default=2000)
    parser.add_argument("--latencies", type=int, default=120)
    parser.add_argument("--quick", action="store_true", help="two rounds of fewer jobs: a first impression")
    parser.add_argument("--write", action="store_true", help="write docs/performance.md")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.jobs, options.ones, options.latencies = 2, 10_000, 300, 50
    systems, missing = present()
    for line in missing:
        print(line, flush=True)
    began = time.monotonic()
    postgres = race_on_postgres(systems, options)
    print(f"PostgreSQL: {time.monotonic() - began:.0f} seconds", flush=True)
    sqlite = race_on_sqlite(options)
    seconds = time.monotonic() - began
    print(f"with SQLite: {seconds:.0f} seconds\n")
    how = f"Medians of {options.rounds} rounds, {seconds:.0f} seconds in all, on {machine()}."
    text = section(postgres, sqlite, [system.name for system in systems], [how, *missing])
    print(text)
    _record(postgres, sqlite)
    if options.write:
        write_section("comparison", text)
        write_chart(postgres)


if __name__ == "__main__":
    main(sys.argv[1:])
