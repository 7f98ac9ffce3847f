"""The figures of the comparison, as a part of docs/performance.md and as its chart."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from bench.peers import HOME

PAGE = HOME / "docs" / "performance.md"
CHART = HOME / "docs" / "guides" / "pictures" / "performance.svg"
BEGIN, END = "<!-- figures: written by python -m bench.comparison --write -->\n", "<!-- end of figures -->"
RAW, HUEY = "raw SQL", "huey"
ONE, THOUSANDS, TEN_THOUSANDS = "enqueue, one by one", "enqueue, 1,000 a call", "enqueue, 10,000 a call"
DRAIN, DRAIN_TWO = "drain, one worker", "drain, two workers"
LATENCY = "enqueue to start"
COSTS = {
    "worker": "CPU of the worker, µs",
    "server": "CPU of the server, µs",
    "wal": "write-ahead log, bytes",
    "transactions": "transactions",
}


@dataclass
class Samples:
    """What was measured, by system and step: one value for each round."""

    rates: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    #: For each job of a drain by one worker: CPU in microseconds, bytes, transactions.
    costs: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    #: Milliseconds from the enqueue to the start.
    waits: dict[str, list[float]] = field(default_factory=dict)

    def add(self, system: str, step: str, rate: float) -> None:
        self.rates.setdefault(system, {}).setdefault(step, []).append(rate)

    def clear(self) -> None:
        """Forget the round that only warmed up."""
        self.rates.clear()
        self.costs.clear()
        self.waits.clear()


def page(postgres: Samples, sqlite: Samples, how: str) -> str:
    """The figures as Markdown."""
    systems = ["Holdfast", "PgQueuer", "Procrastinate", RAW]
    steps = [ONE, THOUSANDS, TEN_THOUSANDS, DRAIN, DRAIN_TWO]
    return "\n".join(
        [
            how,
            "",
            "Jobs a second on PostgreSQL, with the lowest and the highest round:",
            "",
            *_table(["step", *systems], [[step, *(_rate(postgres, name, step) for name in systems)] for step in steps]),
            "",
            "Milliseconds from the enqueue of a job to its start, on an idle worker:",
            "",
            *_table(
                ["", *systems[:3]], [[f"p{n}", *(_wait(postgres, name, n) for name in systems[:3])] for n in (50, 99)]
            ),
            "",
            "For each job of the drain by one worker:",
            "",
            *_table(
                ["", *systems[:3]],
                [[label, *(_cost(postgres, name, cost) for name in systems[:3])] for cost, label in COSTS.items()],
            ),
            "",
            "Jobs a second on SQLite:",
            "",
            *_table(
                ["step", "Holdfast", HUEY],
                [
                    [step, *(_rate(sqlite, name, step) for name in ("Holdfast", HUEY))]
                    for step in (ONE, THOUSANDS, DRAIN)
                ],
            ),
            "",
        ]
    )


def write_page(text: str, postgres: Samples) -> None:
    """Put the figures into the page, and draw the chart."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{text}{END}{rest.partition(END)[2]}")
    CHART.write_text(chart(postgres))


def chart(samples: Samples) -> str:
    """Bars of the drains, as SVG. The colours can be read on light and dark pages."""
    bars = [
        (f"{name}, {'one worker' if step == DRAIN else 'two workers'}", statistics.median(found[step]), name)
        for step in (DRAIN, DRAIN_TWO)
        for name, found in samples.rates.items()
        if step in found and name != RAW
    ]
    most = max(value for _, value, _ in bars)
    size = f'viewBox="0 0 640 {len(bars) * 30 + 10}" font-family="sans-serif" font-size="14"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}>',
        "<title>Jobs a second that one worker and two workers drain on PostgreSQL</title>",
    ]
    for place, (label, value, name) in enumerate(bars):
        top, colour = place * 30 + 8, "#2f6f9f" if name == "Holdfast" else "#8a8f98"
        width = max(2, round(330 * value / most))
        lines += [
            f'<text x="200" y="{top + 15}" text-anchor="end" fill="#7a7f87">{label}</text>',
            f'<rect x="210" y="{top}" width="{width}" height="20" fill="{colour}"/>',
            f'<text x="{216 + width}" y="{top + 15}" fill="#7a7f87">{value:,.0f}</text>',
        ]
    return "\n".join([*lines, "</svg>\n"])


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def _rate(samples: Samples, system: str, step: str) -> str:
    values = samples.rates.get(system, {}).get(step)
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})" if values else "-"


def _wait(samples: Samples, system: str, percent: int) -> str:
    waits = sorted(samples.waits[system])
    return f"{waits[min(len(waits) - 1, len(waits) * percent // 100)]:.1f}"


def _cost(samples: Samples, system: str, cost: str) -> str:
    value = statistics.median(samples.costs[system][cost])
    return f"{value:,.3f}" if cost == "transactions" else f"{value:,.1f}" if cost != "wal" else f"{value:,.0f}"
