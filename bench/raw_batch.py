"""What a batch costs: no-op units beside the same loop that writes one row per unit by hand, with the same commits.

Run it with ``python -m bench.raw_batch [--units N] [--checkpoint N]``; in ``make bench`` with a million. Both are
durable: SQLite with synchronous=FULL. Each side runs in a process of its own, so that its memory is its own. The modules
are compiled before, as those of an installed package are. Without
``--checkpoint`` the batch runs with ``checkpoint="auto"``; the loop then commits every 1,000 units, as the batch does once
it knows that its units are short. ``--checkpoint 50`` is the default of a batch.
"""

from __future__ import annotations

import argparse
import compileall
import json
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import holdfast
from bench.runs import record
from holdfast.domain.batches.checkpoint import MAX_UNITS

LIMITS = {"ratio": 1.8, "rss_mb": 150, "resume_s": 3.0}


def raw(folder: Path, units: int, size: int) -> None:
    """The loop that people write by hand."""
    connection = sqlite3.connect(folder / "raw.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE unit (key TEXT PRIMARY KEY, state TEXT NOT NULL) WITHOUT ROWID")
    began, cpu = time.perf_counter(), time.process_time()
    group = []
    for key in range(units):
        group.append((str(key), "done"))
        if len(group) == size:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO unit VALUES (?, ?)", group)
            connection.execute("COMMIT")
            group.clear()
    _tell(seconds=time.perf_counter() - began, cpu=time.process_time() - cpu)


def batch(folder: Path, units: int, output: str, checkpoint: int | str) -> None:
    """The same as a batch."""
    app = holdfast.Holdfast(f"sqlite:///{folder}/batch.db")

    @app.unit()
    def nothing(key: int) -> None: ...

    began, cpu = time.perf_counter(), time.process_time()
    result = app.run(nothing, range(units), output=output, progress_every=100_000, checkpoint=checkpoint)
    assert result.exit_code == 0
    _tell(seconds=time.perf_counter() - began, cpu=time.process_time() - cpu)


def resume(folder: Path, units: int) -> None:
    """How long until the first unit of a batch runs, whose others are all done."""
    app = holdfast.Holdfast(f"sqlite:///{folder}/resume.db")
    first: list[float] = []

    @app.unit(name="nothing")
    def nothing(key: int) -> None:
        del key
        first.append(time.perf_counter())

    app.run(nothing, range(units), name="again", output="none", limit=units - 1)
    first.clear()
    began = time.perf_counter()
    app.run(nothing, range(units), name="again", output="none")
    _tell(seconds=first[0] - began)


def _tell(**facts: float) -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stderr.write("\n" + json.dumps({**facts, "rss_mb": peak}) + "\n")


def measured(side: str, units: int, *more: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        line = [
            sys.executable,
            "-m",
            "bench.raw_batch",
            "--side",
            side,
            "--folder",
            folder,
            "--units",
            str(units),
            *more,
        ]
        done = subprocess.run(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True)
        found: dict[str, float] = json.loads(done.stderr.splitlines()[-1])
        return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--units", type=int, default=1_000_000)
    parser.add_argument("--side", choices=["raw", "batch", "resume"])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--output", default="none")
    parser.add_argument("--checkpoint", type=int)
    asked = parser.parse_args()
    match asked.side:
        case "raw":
            raw(asked.folder, asked.units, asked.checkpoint or MAX_UNITS)
            return 0
        case "batch":
            batch(asked.folder, asked.units, asked.output, asked.checkpoint or "auto")
            return 0
        case "resume":
            resume(asked.folder, asked.units)
            return 0
    compileall.compile_dir(str(Path(holdfast.__file__).parent), quiet=2)
    missed = 0
    same = () if asked.checkpoint is None else ("--checkpoint", str(asked.checkpoint))
    before = measured("raw", asked.units, *same)["seconds"]
    for output in ("none", "text", "json", "ndjson"):
        found = measured("batch", asked.units, "--output", output, *same)
        after = measured("raw", asked.units, *same)["seconds"]
        by_hand, before = (before + after) / 2, after  # the machine's speed changes from minute to minute
        ratio = found["seconds"] / by_hand
        good = ratio <= LIMITS["ratio"] and found["rss_mb"] <= LIMITS["rss_mb"]
        missed += not good
        record(f"units here, output {output}, by a loop by hand", ratio, f"<= {LIMITS['ratio']}")
        print(
            f"batch {output:7}{found['seconds']:6.1f} s, {ratio:.2f} times by hand ({by_hand:.1f} s;"
            f" at most {LIMITS['ratio']}), {found['rss_mb']:.0f} MB (at most {LIMITS['rss_mb']}):"
            f" {'met' if good else 'MISSED'}"
        )
    found = measured("resume", asked.units)
    good = found["seconds"] <= LIMITS["resume_s"]
    missed += not good
    print(f"resume       {found['seconds']:6.2f} s (at most {LIMITS['resume_s']}): {'met' if good else 'MISSED'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
