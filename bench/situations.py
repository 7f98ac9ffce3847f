"""Holdfast in situations that are not a short queue of one kind, each beside that one.

    python -m bench.situations [--only crowds,fleet,…] [--quick] [--write] [--finished 10000000] [--pinned 1800]

Each part prints its seconds. ``--write`` writes the figures of docs/performance.md.
"""

from __future__ import annotations

import argparse
import sys
import time

from bench import crowds, file_writers, fleet, long_snapshot
from bench.page import machine, table, write_section
from bench.situation import Finding

PARTS = {
    "crowds": crowds.measure,
    "fleet": fleet.measure,
    "long_snapshot": long_snapshot.measure,
    "file_writers": file_writers.measure,
}
HEAD = ["situation", "figure", "value", "ratio to an empty store, or to one process"]


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas between them")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=60_000, help="jobs of a drain")
    parser.add_argument("--lane-jobs", type=int, default=60_000, help="jobs of a drain over the lanes")
    parser.add_argument("--finished", type=int, default=10_000_000)
    parser.add_argument("--waiting", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=50)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--enqueues", type=int, default=300, help="jobs that each writer of the SQLite file enqueues")
    parser.add_argument("--clean", type=float, default=20, help="seconds before the snapshot")
    parser.add_argument("--pinned", type=float, default=40, help="seconds with the snapshot")
    parser.add_argument("--together", action="store_true", help="the systems beside the snapshot at the same time")
    parser.add_argument("--window", type=float, default=10, help="seconds of a figure beside the snapshot")
    parser.add_argument("--quick", action="store_true", help="fewer of all: a first impression")
    parser.add_argument("--write", action="store_true", help="write docs/performance.md")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.jobs, options.finished, options.waiting = 1, 8000, 100_000, 50_000
        options.lane_jobs, options.workers, options.enqueues = 4000, 6, 50
        options.clean, options.pinned, options.window = 4, 6, 2
    return options


def main(arguments: list[str]) -> None:
    options = _options(arguments)
    found, seen, began = list[Finding](), 0, time.monotonic()
    for name in options.only.split(","):
        start = time.monotonic()
        found += PARTS[name](options)
        for finding in found[seen:]:
            finding.record()
        seen = len(found)
        print(f"{name}: {time.monotonic() - start:.0f} seconds", flush=True)
    seconds = time.monotonic() - began
    how = f"Medians of {options.rounds} rounds of {options.jobs:,} jobs, {seconds:.0f} seconds in all, on {machine()}."
    text = "\n".join([how, "", *table(HEAD, [finding.cells() for finding in found])]) + "\n"
    print(text)
    if options.write:
        write_section("situations", text)


if __name__ == "__main__":
    main(sys.argv[1:])
