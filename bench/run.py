"""The benchmark: Holdfast's store beside the raw limit and its peers, in one run.

    python -m bench.run [--quick] [--only postgres|sqlite] [--rounds 5] [--jobs 20000] [--json FILE]

Noise is shared by taking turns (see contest.py), so ratios can be trusted where rates cannot.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sqlite3
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psycopg
from tests.support.postgres import DURABLE, PostgresServer, bundled_programs, running

from bench.contest import Contestant, compete, medians, steps
from bench.costs import costs
from bench.fill import fill_postgres, fill_sqlite
from bench.holdfast_store import HoldfastStore
from bench.peers import Peer, python
from bench.raw import RawPostgres
from bench.raw_sqlite import RawSqlite
from bench.report import print_report, ratios
from holdfast.store.postgres.backend import PostgresBackend
from holdfast.store.sqlite.backend import SqliteBackend

#: Databases beside the empty one, and what they are full of.
CROWDS = ("finished", "waiting")
#: Vacuum comes between the rounds, for all alike; its own timing would decide who is slow.
SETTINGS = {**DURABLE, "autovacuum": "off"}
#: Ids that raw gives are far above those of the sequence.
RAW_IDS = 1_000_000_000
RESULTS = Path(__file__).parent / "results" / "latest.json"


def bench_postgres(options: argparse.Namespace) -> dict[str, Any]:
    """All systems on one server, each in a database of its own."""
    with running(bundled_programs(), settings=SETTINGS) as server, ExitStack() as stack:
        _make_databases(server, options.crowd)
        systems: dict[str, Contestant] = {
            "raw": RawPostgres(server.url("raw_empty"), first_id=RAW_IDS),
            "holdfast": HoldfastStore(PostgresBackend(server.url("holdfast_empty"))),
            "pgqueuer": Peer("bench.peer_pgqueuer", server.url("pgqueuer")),
        }
        for crowd in CROWDS:
            systems[f"raw, {crowd}"] = RawPostgres(server.url(f"raw_{crowd}"), first_id=RAW_IDS)
            systems[f"holdfast, {crowd}"] = HoldfastStore(PostgresBackend(server.url(f"holdfast_{crowd}")))
        for system in systems.values():
            stack.callback(system.close)
        plan = steps(ones=options.ones, jobs=options.jobs)
        samples = compete(systems, plan, rounds=options.rounds, before_round=lambda: _vacuum(server))
        spent = _postgres_costs(server, options.jobs)
        return _finish(f"PostgreSQL {server.version}", "pgqueuer", samples, spent)


def _make_databases(server: PostgresServer, crowd: int) -> None:
    """Fill one database of each sort, and copy it: raw and Holdfast begin on equal pages."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE pgqueuer")
        for what in (None, *CROWDS):
            ours, raw = f"holdfast_{what or 'empty'}", f"raw_{what or 'empty'}"
            connection.execute(f"CREATE DATABASE {ours}")
            fill_postgres(server.url(ours), what, crowd)
            connection.execute(f"CREATE DATABASE {raw} TEMPLATE {ours} STRATEGY file_copy")
        connection.execute("CHECKPOINT")


def _vacuum(server: PostgresServer) -> None:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        names = [row[0] for row in connection.execute("SELECT datname FROM pg_database WHERE NOT datistemplate")]
    for name in names:
        with psycopg.connect(server.url(name), autocommit=True) as connection:
            connection.execute("VACUUM")


def _postgres_costs(server: PostgresServer, jobs: int) -> dict[str, dict[str, float]]:
    raw, ours, peer = server.url("raw_empty"), server.url("holdfast_empty"), server.url("pgqueuer")
    return {
        "raw": costs(raw, lambda: RawPostgres(raw, first_id=2 * RAW_IDS), jobs=jobs),
        "holdfast": costs(ours, lambda: HoldfastStore(PostgresBackend(ours)), jobs=jobs),
        "pgqueuer": costs(peer, lambda: Peer("bench.peer_pgqueuer", peer), jobs=jobs),
    }


def bench_sqlite(options: argparse.Namespace) -> dict[str, Any]:
    """All systems on one disk, each on a file of its own."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder, ExitStack() as stack:
        place = Path(folder)
        systems: dict[str, Contestant] = {}
        for what in (None, *CROWDS):
            suffix = f", {what}" if what else ""
            ours, raw = place / f"holdfast-{what}.db", place / f"raw-{what}.db"
            fill_sqlite(ours, what, options.crowd)
            shutil.copy(ours, raw)
            systems[f"raw{suffix}"] = RawSqlite(raw, first_id=RAW_IDS)
            systems[f"holdfast{suffix}"] = HoldfastStore(SqliteBackend(ours))
        systems["huey"] = Peer("bench.peer_huey", str(place / "huey.db"))
        os.sync()
        for system in systems.values():
            stack.callback(system.close)
        plan = steps(ones=options.ones, jobs=options.jobs)
        cannot = frozenset({("huey", "bulk"), ("huey", "settle 100"), ("huey", "settle 1000")})
        samples = compete(systems, plan, rounds=options.rounds, skip=cannot)
        return _finish(f"SQLite {sqlite3.sqlite_version}", "huey", samples, {})


def _finish(title: str, peer: str, samples: Any, spent: dict[str, dict[str, float]]) -> dict[str, Any]:
    rates = medians(samples)
    found = ratios(rates, peer)
    print_report(title, rates, spent, found)
    told = [asdict(ratio) | {"verdict": ratio.verdict} for ratio in found]
    return {"title": title, "rates": rates, "samples": samples, "costs": spent, "ratios": told}


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("postgres", "sqlite"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs per bulk and per drain in batches")
    parser.add_argument("--ones", type=int, default=500, help="jobs enqueued and drained one at a time")
    parser.add_argument(
        "--crowd", type=int, default=1_000_000, help="finished or waiting jobs beside the measured ones"
    )
    parser.add_argument("--quick", action="store_true", help="a smoke test: its figures mean little")
    parser.add_argument("--json", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.jobs, options.ones, options.crowd = 1, 5000, 100, 50_000
    return options


def main(arguments: list[str]) -> None:
    options = _options(arguments)
    python()
    results: dict[str, Any] = {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "options": {"rounds": options.rounds, "jobs": options.jobs, "ones": options.ones, "crowd": options.crowd},
    }
    if options.only != "sqlite":
        results["postgres"] = bench_postgres(options)
    if options.only != "postgres":
        results["sqlite"] = bench_sqlite(options)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(results, indent=1) + "\n")
    print(f"\nwritten to {options.json}")


if __name__ == "__main__":
    main(sys.argv[1:])
