"""The figures that have a target, of the last three runs of ``make bench``: a table of docs/performance.md.

    python -m bench.runs --write

Each part of a run appends its figures to a file in bench/results.
"""

from __future__ import annotations

import json
import os
import statistics
import sys

from bench.page import table, write_section
from bench.peers import HOME

FILE = HOME / "bench" / "results" / "runs.ndjson"
#: The variable with the name of a whole run. Without it, nothing is kept.
RUN_VARIABLE = "HOLDFAST_BENCH_RUN"
RUNS = 3


def record(figure: str, value: float, target: str) -> None:
    """Keep a figure of this run. *target* is told beside it, such as ``>= 3``."""
    run = os.environ.get(RUN_VARIABLE)
    if run is None:
        return
    FILE.parent.mkdir(exist_ok=True)
    with FILE.open("a") as file:
        file.write(json.dumps({"run": run, "figure": figure, "value": value, "target": target}) + "\n")


def text() -> str:
    """The table of the last runs: the median of each figure, and all its values."""
    lines = [json.loads(line) for line in FILE.read_text().splitlines()]
    last = list(dict.fromkeys(line["run"] for line in lines))[-RUNS:]
    values, targets = dict[str, list[float]](), dict[str, str]()
    for line in lines:
        if line["run"] in last:
            values.setdefault(line["figure"], []).append(line["value"])
            targets[line["figure"]] = line["target"]
    rows = [
        [figure, targets[figure], _cell(statistics.median(found)), ", ".join(map(_cell, found))]
        for figure, found in values.items()
    ]
    how = f"Medians of the last {len(last)} whole runs; a run has the median of its own rounds."
    return "\n".join([how, "", *table(["figure", "target", "median", "runs"], rows)]) + "\n"


def _cell(value: float) -> str:
    return format(value, ",.0f" if abs(value) >= 100 else ",.1f" if abs(value) >= 10 else ".2f")


if __name__ == "__main__":
    if "--write" in sys.argv:
        write_section("runs", text())
    print(text())
