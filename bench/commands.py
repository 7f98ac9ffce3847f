"""The benchmark of commands: programs that do nothing, beside posix_spawn and GNU parallel; adding, among many ended.

    python -m bench.commands [--count 10000] [--rounds 3]

GNU parallel (Debian: parallel) keeps a job log, as we do. posix_spawn is the floor: it starts them and waits, no more.
All take turns. Nothing is deleted before the end: where logs were deleted, the file system makes new ones slowly for some
minutes (docs/adr/0020-cost-of-a-job.md).
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import holdfast
from bench.fill import fill_sqlite
from bench.report import Ratio, print_ratios
from holdfast.domain.commands.command import COMMAND, Command
from holdfast.domain.jobs.new_job import NewJob, Unique

SLOTS = 2
#: The least programs per second; HyperQueue ran 255 on the reference machine.
PROGRAMS = 900


def call(*words: str, url: str) -> float:
    """Seconds of one call of the program."""
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "holdfast", *words],
        env={**os.environ, "HOLDFAST_URL": url},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - began


def spawned(count: int) -> float:
    """Seconds to start *count* programs from two threads, and to wait for each."""
    program = shutil.which("true") or "true"

    def start_each() -> None:
        for _ in range(count // SLOTS):
            os.waitpid(os.posix_spawn(program, ["true"], {}), 0)

    threads = [threading.Thread(target=start_each) for _ in range(SLOTS)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


def ours(home: str, count: int, line: str = "true") -> tuple[float, float]:
    """Seconds to add *count* programs in bulk, and to run them on two slots, without the start and end of the worker."""
    folder = tempfile.mkdtemp(dir=home)
    url = f"sqlite:///{folder}/jobs.db"
    lines = Path(folder, "lines")
    lines.write_text(f"{line}\n" * count)
    drain = ("worker", "--drain", "--slots", str(SLOTS))
    call(*drain, url=url)  # creates the store
    idle = call(*drain, url=url)
    added = call("add", "--from", str(lines), url=url)
    ran = call(*drain, url=url) - idle
    with holdfast.Holdfast(url) as app:
        assert app.views.count(holdfast.Selector(states=(holdfast.State.DONE,)), cap=count).count == count
    return added, ran


def parallel(count: int) -> float:
    """Seconds that GNU parallel takes for as many."""
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder, "lines")
        lines.write_text("true\n" * count)
        began = time.perf_counter()
        with lines.open() as commands:
            subprocess.run(
                ["parallel", "--will-cite", f"-j{SLOTS}", "--joblog", f"{folder}/log"],
                stdin=commands,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=True,
            )
        return time.perf_counter() - began


def latency(url: str, rounds: int = 200) -> float:
    """Milliseconds to add one program, in a process that is up; median."""
    with holdfast.Holdfast(url) as app:
        times = []
        for n in range(rounds):
            request = NewJob(kind=COMMAND, payload=Command(argv=("true",), cwd="/").dumps(), unique=Unique(f"k{n}"))
            began = time.perf_counter()
            app.store.jobs.enqueue(request)
            times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if shutil.which("parallel") is None:
        print("GNU parallel is not installed: apt-get install parallel")
        return 1
    few = max(100, options.count // 5)  # it is slower, and as fast with fewer
    added, ran, logged, floors, peers = [], [], [], [], []
    with tempfile.TemporaryDirectory() as home:
        for _ in range(options.rounds):
            first, second = ours(home, options.count)
            added.append(first)
            ran.append(options.count / second)
            logged.append(options.count / ours(home, options.count, "echo x")[1])
            floors.append(few / spawned(few))
            peers.append(few / parallel(few))
    rate, floor, peer = statistics.median(ran), statistics.median(floors), statistics.median(peers)
    print(
        f"\n{options.count:,} x true on {SLOTS} slots: {rate:,.0f}/s; posix_spawn {floor:,.0f}/s; GNU parallel {peer:,.0f}/s"
    )
    with tempfile.TemporaryDirectory() as folder:
        empty, full = f"sqlite:///{folder}/empty.db", f"sqlite:///{folder}/full.db"
        for url in (empty, full):
            holdfast.Holdfast(url).store.close()
        fill_sqlite(f"{folder}/full.db", "finished", 100_000)
        ratio = latency(full) / latency(empty)
    ratios = [
        Ratio(name="seconds to add in bulk", value=statistics.median(added), target=1.0, at_most=True),
        Ratio(name="programs per second", value=rate, target=PROGRAMS),
        Ratio(name="holdfast / posix_spawn", value=rate / floor, target=0.85),
        Ratio(name="with output / without", value=statistics.median(logged) / rate, target=0.8),
        Ratio(name="holdfast / GNU parallel", value=rate / peer, target=1.5),
        Ratio(name="add among 100,000 ended / empty", value=ratio, target=1.2, at_most=True),
    ]
    print_ratios(ratios)
    return 1 if any(each.verdict == "MISSED" for each in ratios) else 0


if __name__ == "__main__":
    raise SystemExit(main())
