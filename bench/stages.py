"""CPU of a worker for each job, by stage, on SQLite: ``python -m bench.stages``.

One thread does what the services and slots of a worker do, group by group. The tenth percentile of the groups changes
little when the machine is busy.
"""
# ruff: noqa: SLF001 - it measures the parts of a worker one by one

from __future__ import annotations

import tempfile
import time
from datetime import timedelta
from itertools import pairwise

from bench.worker_jobs import app
from holdfast.worker import clock
from holdfast.worker.executors.threads import SlotExecutor

JOBS, SLOTS, AHEAD = 20_000, 8, 500
STAGES = ("claim", "begin", "run", "settle")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-stages-") as folder:
        app.use(f"sqlite:///{folder}/jobs.db")
        for _ in range(JOBS // 10_000):
            app.store.jobs.enqueue_many([app.request("nothing", {"n": 1}, {})] * 10_000)
        SlotExecutor.submit = lambda self, runs: self.waiting.put(runs)  # no threads: this one runs all
        worker = app.worker(drain=True, slots=SLOTS)
        groups: list[list[float]] = []
        while group := _work_on_group(worker):
            groups.append(group)
        app.close()
    values = [sorted(group[stage] for group in groups)[len(groups) // 10] for stage in range(len(STAGES))]
    for stage, value in zip(STAGES, values, strict=True):
        print(f"{stage:8} {value:6.2f} us a job")
    print(f"{'total':8} {sum(values):6.2f}")


def _work_on_group(worker) -> list[float]:
    """Claim, begin, run and settle one group of jobs; returns the microseconds of each stage for a job."""
    claimer, settler = worker.services.claimer.service, worker.services.settler.service
    lifecycle, used = worker._lifecycle, [time.process_time()]
    leases = app.store.leases.claim(
        worker.id,
        queues=["default"],
        leases=dict.fromkeys(app.kinds, timedelta(seconds=60)),
        free=SLOTS,
        ahead=AHEAD,
        short=list(app.kinds),
        limits=False,
        build=worker.served.build,
    )
    if not leases:
        return []
    used.append(time.process_time())
    claimer._begin(leases, clock.now())
    used.append(time.process_time())
    (executor,) = worker._pool._all
    executor._finished = executor._finished or [0]
    perform, _ = executor._make_slot()
    for _ in leases:
        run = executor._next()
        lifecycle.finished(run, executor._settlement(run, perform))
        executor._finished[0] += 1
    used.append(time.process_time())
    while len(settler):
        settler.tick()
    used.append(time.process_time())
    return [(after - before) / len(leases) * 1e6 for before, after in pairwise(used)]


if __name__ == "__main__":
    main()
