"""This checkout against another one: ``python -m bench.against ../other [--rounds 10] [--jobs 40000]``.

One worker drains no-ops with the code of each checkout, in turns, and another one begins in every round, in case the order
matters. It prints the medians of the jobs a second, and of the CPU for each job of worker and server.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg
from tests.support.postgres import DURABLE, bundled_programs, running

from bench.meter import Meter
from bench.peers import HOME

#: Runs with the code of a checkout, which may be old: it uses what all have.
DRAIN = """
import json, sys, time
from bench.worker_jobs import app
app.use(sys.argv[1])
def drain(jobs):
    for _ in range(0, jobs, 2000):
        app.store.jobs.enqueue_many([app.request("nothing", {"n": 1}, {})] * 2000)
    print("ready", flush=True)
    sys.stdin.readline()
    worker = app.worker(drain=True, slots=8)
    used, began = time.process_time(), time.perf_counter()
    worker.run()
    return time.process_time() - used, time.perf_counter() - began
drain(2000)
jobs = int(sys.argv[2])
cpu, seconds = drain(jobs)
print(json.dumps({"jobs a second": jobs / seconds, "worker, us": cpu / jobs * 1e6}), flush=True)
sys.stdin.readline()
"""


def drained(checkout: Path, url: str, jobs: int, meter: Meter | None = None) -> dict[str, float]:
    process = subprocess.Popen(
        [sys.executable, "-c", DRAIN, url, str(jobs)],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": f"{checkout / 'src'}:{checkout}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    for _ in range(2):  # a few jobs to warm up, then those that count
        _await(process.stdout, "ready")
        if meter is not None:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("VACUUM ANALYZE")
                connection.execute("CHECKPOINT")
        before = meter.read().cpu_s if meter else 0.0
        process.stdin.write("\n")
        process.stdin.flush()
    found: dict[str, float] = json.loads(_await(process.stdout, "{"))
    if meter:
        found["server, us"] = (meter.read().cpu_s - before) / jobs * 1e6
    process.communicate(timeout=60)
    return found


def _await(lines: object, begin: str) -> str:
    return next(line for line in lines if line.startswith(begin))  # type: ignore[attr-defined]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=40_000)
    options = parser.parse_args(arguments)
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    checkouts = [("this", HOME), ("other", options.other.resolve())]
    with running(bundled_programs(), settings={**DURABLE, "autovacuum": "off"}) as server:
        for turn in range(options.rounds):
            for name, checkout in checkouts if turn % 2 else checkouts[::-1]:
                database = f"{name}_{turn}"
                with psycopg.connect(server.url(), autocommit=True) as connection:
                    connection.execute(f"CREATE DATABASE {database}".encode())
                url = server.url(database)
                result = drained(checkout, url, options.jobs, Meter(server, url))
                found.setdefault(("PostgreSQL", name), []).append(result)
                with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
                    result = drained(checkout, f"sqlite:///{folder}/jobs.db", options.jobs)
                found.setdefault(("SQLite", name), []).append(result)
    for (store, name), results in sorted(found.items()):
        medians = {key: statistics.median(result[key] for result in results) for key in results[0]}
        print(f"{store:12}{name:8}" + "".join(f"{key}: {value:>10,.1f}   " for key, value in medians.items()))


if __name__ == "__main__":
    main(sys.argv[1:])
