"""A Holdfast worker that obeys the benchmark: ``python -m bench.worker_holdfast URL``."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path

from bench.worker_jobs import app


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def drain(slots: int) -> dict[str, float]:
    """Work until nothing is left; answers wall seconds, CPU seconds and memory."""
    worker = app.worker(drain=True, slots=slots)
    began, used = time.perf_counter(), time.process_time()
    worker.run()
    seconds = time.perf_counter() - began
    return {
        "seconds": seconds,
        "cpu": time.process_time() - used,
        "done": worker.counts.results.get("done", 0),
        "resident": resident(),
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


if __name__ == "__main__":
    app.use(sys.argv[1])
    assert app.store
    for line in sys.stdin:
        print(json.dumps(drain(json.loads(line)["slots"])), flush=True)
