"""Writers that enqueue single jobs into one SQLite file at the same time: ``python -m bench.writers [--rounds 3]``.

Eight processes, alone and beside a worker that runs the jobs: the time of each call. Then one thread and sixteen threads of
one process: the rate, and the jobs that share a commit.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path

from bench.peers import Process
from bench.racer import obey

PROCESSES, JOBS, THREADS = 8, 300, 16


def serve(url: str) -> None:
    """Enqueue or work, as ordered."""
    import holdfast

    app = holdfast.Holdfast(url)

    @app.job()
    def nothing(n: int) -> None:
        """Do nothing."""

    def enqueue(count: int, _size: int) -> dict[str, list[float]]:
        waits = []
        for n in range(count):
            began = time.perf_counter()
            nothing.enqueue(n=n)
            waits.append(time.perf_counter() - began)
        return {"waits": waits}

    def enqueue_in_threads(count: int, size: int) -> dict[str, int]:
        commits, writer = [0], app.store.backend._writer  # noqa: SLF001
        committed = writer._committed  # noqa: SLF001

        def count_commit(connection) -> None:
            commits[0] += 1
            committed(connection)

        writer._committed = count_commit  # noqa: SLF001
        threads = [threading.Thread(target=enqueue, args=(count // size, 1)) for _ in range(size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        writer._committed = committed  # noqa: SLF001
        return {"commits": commits[0]}

    def work(_count: int, _size: int) -> None:
        app.worker(slots=8).start()

    enqueue(1, 1)
    obey({"enqueue": enqueue, "threads": enqueue_in_threads, "work": work})


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=PROCESSES)
    options = parser.parse_args(arguments)
    for _ in range(options.rounds):
        for beside_worker in (False, True):
            _measure_processes(options.processes, beside_worker=beside_worker)
        _measure_threads()


def _measure_processes(count: int, *, beside_worker: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        writers = _start(folder, count + beside_worker)
        worker = writers.pop() if beside_worker else None
        if worker:
            worker.order(act="work", count=0)
            worker.answer()
        began = time.perf_counter()
        for writer in writers:
            writer.order(act="enqueue", count=JOBS)
        waits = sorted(wait * 1000 for writer in writers for wait in writer.answer()["waits"])
        rate = len(waits) / (time.perf_counter() - began)
        for each in (*writers, worker):
            if each:
                each.close()
    median, late, longest = waits[len(waits) // 2], waits[len(waits) * 99 // 100], waits[-1]
    label = f"{count} processes{' and a worker' if beside_worker else ''}"
    print(f"{label:28} {rate:6.0f}/s   p50 {median:6.2f} ms   p99 {late:6.2f} ms   longest {longest:6.1f} ms")


def _measure_threads() -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        (writer,) = _start(folder, 1)
        for threads in (1, THREADS):
            writer.order(act="threads", count=THREADS * 100, size=threads)
            answer = writer.answer()
            share, rate = answer["jobs"] / answer["commits"], answer["jobs"] / answer["seconds"]
            print(f"{f'{threads} threads':28} {rate:6.0f}/s   {share:.1f} jobs a commit")
        writer.close()


def _start(folder: str, count: int) -> list[Process]:
    started = [Process("bench.writers", f"sqlite:///{Path(folder) / 'jobs.db'}") for _ in range(count)]
    for process in started:
        process.order(act="enqueue", count=1)
        process.answer()
    return started


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1].startswith("sqlite:"):
        serve(sys.argv[1])
    else:
        main(sys.argv[1:])
