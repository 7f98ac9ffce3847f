"""Processes that enqueue single jobs into one SQLite file at the same time."""

from __future__ import annotations

import argparse
import tempfile

from bench.peers import Process
from bench.runs import record
from bench.samples import Samples, Spread, percentile
from bench.situation import Finding
from bench.systems import OURS

P50, P99, LONGEST = "p50", "p99", "longest"


def measure(options: argparse.Namespace) -> list[Finding]:
    samples, busy = Samples(), 0
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        writers = [OURS.start(f"sqlite:///{folder}/jobs.db") for _ in range(options.writers)]
        for _ in range(options.rounds):
            for name, chosen in (("one", writers[:1]), ("all", writers)):
                waits, refused = _enqueue(chosen, options.enqueues)
                busy += refused
                for figure, value in _percentiles(waits).items():
                    samples.add(name, figure, value)
        for writer in writers:
            writer.close()
    label = f"{options.writers} processes enqueue into one SQLite file"
    if (slow := samples.spread("all", P99)) is not None:
        record(f"{label}: p99, ms", slow.middle, "<= 50")
    found = [Finding(label, f"one call, {name}, ms", *_compare(samples, name)) for name in (P50, P99, LONGEST)]
    return [*found, Finding(label, "calls that failed, such as on a busy file", str(busy))]


def _enqueue(writers: list[Process], count: int) -> tuple[list[float], int]:
    for writer in writers:
        writer.order(act="timed", count=count, size=1)
    answers = [writer.answer() for writer in writers]
    return [wait * 1000 for answer in answers for wait in answer["waits"]], sum(answer["busy"] for answer in answers)


def _percentiles(waits: list[float]) -> dict[str, float]:
    return {P50: percentile(waits, 50), P99: percentile(waits, 99), LONGEST: max(waits)}


def _compare(samples: Samples, figure: str) -> tuple[str, Spread | None]:
    alone, together = samples.spread("one", figure), samples.spread("all", figure)
    assert alone is not None
    assert together is not None
    return f"{together.middle:,.1f}; {alone.middle:,.1f} alone", samples.ratio("all", "one", figure)
