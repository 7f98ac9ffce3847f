"""The figures of the comparison as Markdown."""

from __future__ import annotations

from bench.page import table
from bench.race import COSTS, DRAIN, ONE, P50, P99, RATES, SERVER_CPU, THOUSANDS, WAL, WORKER_CPU
from bench.samples import Samples, Spread
from bench.systems import HOLDFAST, HUEY, RAW

#: Less is better; the others are rates.
TIMES = (P50, P99, WORKER_CPU, SERVER_CPU, WAL)


def section(postgres: Samples, sqlite: Samples, systems: list[str], notes: list[str]) -> str:
    peers = [name for name in systems if name != HOLDFAST]
    parts = [
        notes,
        ["Holdfast divided by each peer, round by round: the median, with the lowest and the highest round."],
        ["Jobs a second on PostgreSQL. Above 1, Holdfast is faster:"],
        _ratios(postgres, [*peers, RAW], RATES),
        ["Times and costs on PostgreSQL. Below 1, Holdfast needs less:"],
        _ratios(postgres, peers, TIMES),
        ["Jobs a second on SQLite:"],
        _ratios(sqlite, [HUEY], (ONE, DRAIN)),
        ["### The figures behind the ratios"],
        ["Jobs a second on PostgreSQL:"],
        _figures(postgres, [*systems, RAW], RATES),
        ["From the enqueue of a job to its start, on an idle worker, in milliseconds. Percentiles of each round:"],
        _figures(postgres, systems, (P50, P99)),
        ["For each job of the drain by one worker, and statements for each job that is enqueued alone:"],
        _figures(postgres, systems, COSTS),
        ["Jobs a second on SQLite:"],
        _figures(sqlite, [HOLDFAST, HUEY], (ONE, THOUSANDS, DRAIN)),
        ["From the enqueue of a job to its start, on SQLite:"],
        _figures(sqlite, [HOLDFAST], (P50, P99)),
    ]
    return "".join("\n".join(part) + "\n\n" for part in parts)


def _ratios(samples: Samples, peers: list[str], figures: tuple[str, ...]) -> list[str]:
    rows = [[figure, *(_cell(samples.ratio(HOLDFAST, peer, figure), ".2f") for peer in peers)] for figure in figures]
    return table(["Holdfast /", *peers], rows)


def _figures(samples: Samples, systems: list[str], figures: tuple[str, ...]) -> list[str]:
    rows = [[figure, *(_cell(samples.spread(system, figure)) for system in systems)] for figure in figures]
    return table(["", *systems], rows)


def _cell(spread: Spread | None, form: str = "") -> str:
    if spread is None:
        return "-"
    if form == ".2f" and spread.low < 0.095:
        form = ".3f"
    form = form or (",.0f" if spread.middle >= 100 else ",.1f" if spread.middle >= 1 else ",.3f")
    middle, low, high = (format(value, form) for value in spread)
    return middle if low == high else f"{middle} ({low} to {high})"
