"""Units a second of batches on workers: PostgreSQL, two worker processes, a function that does nothing.

    python -m bench.worker_batch [--units 100000] [--shards 2] [--batches 1] [--checkpoint auto]

The clock runs from the launch of the batches to their end; their units were planned before. The workers are warm.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

import psycopg
from tests.support.postgres import DURABLE, bundled_programs, running

import holdfast
from bench.runs import record
from holdfast.domain.batches.batch import BatchId, BatchState

TARGET = 20_000
WORKERS = 2
app = holdfast.Holdfast()


@app.unit()
def nothing(key: int) -> None:
    """Do nothing."""


def seconds(url: str, options: argparse.Namespace) -> float:
    """Submit the batches while the queue is paused, then resume it; returns the seconds until all are done."""
    app.store.queues.pause("default")
    ids: list[BatchId] = []
    for number in range(options.batches):
        batch = app.submit(
            nothing,
            range(options.units // options.batches),
            name=f"{time.time()}-{number}",
            shards=options.shards,
            checkpoint=options.checkpoint,
        )
        ids.append(batch.id)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
    app.store.queues.resume("default")
    began = time.perf_counter()
    while any(app.store.batches.get(batch_id).state is BatchState.RUNNING for batch_id in ids):
        time.sleep(0.02)
    took = time.perf_counter() - began
    assert all(app.store.batches.get(batch_id).state is BatchState.DONE for batch_id in ids)
    return took


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--units", type=int, default=100_000)
    parser.add_argument("--shards", type=int, default=WORKERS)
    parser.add_argument("--batches", type=int, default=1)
    parser.add_argument("--checkpoint", default="auto")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker")
    options = parser.parse_args()
    if options.worker:
        app.use(options.worker)
        app.worker(slots=max(1, options.shards * options.batches // WORKERS)).run()
        return 0
    with running(bundled_programs(), settings=DURABLE) as server:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute("CREATE DATABASE batches")
        app.use(server.url("batches"))
        assert app.store
        line = [sys.executable, "-m", "bench.worker_batch", "--worker", server.url("batches")]
        line += ["--shards", str(options.shards), "--batches", str(options.batches)]
        workers = [subprocess.Popen(line) for _ in range(WORKERS)]
        try:
            rates = [options.units / seconds(server.url("batches"), options) for _ in range(options.rounds)]
        finally:
            for worker in workers:
                worker.terminate()
            for worker in workers:
                worker.wait()
        app.close()
    record("units a second on two workers", statistics.median(rates), f">= {TARGET:,}")
    print(f"units a second: {', '.join(f'{rate:,.0f}' for rate in rates)} (at least {TARGET:,})")
    return 0 if statistics.median(rates) >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
