"""The chart of docs/performance.md: bars of the drains, with a line from the lowest to the highest round."""

from __future__ import annotations

from bench.peers import HOME
from bench.race import DRAIN, DRAIN_TWO
from bench.samples import Samples, Spread
from bench.systems import HOLDFAST, RAW

CHART = HOME / "docs" / "guides" / "pictures" / "performance.svg"
#: Greys and a blue with enough contrast on white and on black: a picture does not know the colours of its page.
TEXT, OURS, OTHERS, RANGE = "#767b83", "#3b82c4", "#8a8f98", "#c2783c"
LEFT, WIDTH, ROW = 210, 330, 30


def write_chart(samples: Samples) -> None:
    CHART.write_text(chart(samples))


def chart(samples: Samples) -> str:
    """The best system of each step is on top."""
    bars = [bar for step in (DRAIN, DRAIN_TWO) for bar in _bars(samples, step)]
    scale = WIDTH / max(spread.high for _, _, spread in bars)
    size = f'viewBox="0 0 660 {len(bars) * ROW + 10}" font-family="sans-serif" font-size="14"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}>',
        "<title>Jobs a second that one worker and two workers drain on PostgreSQL</title>",
    ]
    for place, (label, name, spread) in enumerate(bars):
        lines += _row(place * ROW + 8, label, OURS if name == HOLDFAST else OTHERS, spread, scale)
    return "\n".join([*lines, "</svg>\n"])


def _bars(samples: Samples, step: str) -> list[tuple[str, str, Spread]]:
    workers = "one worker" if step == DRAIN else "two workers"
    found = [
        (f"{name}, {workers}", name, spread)
        for name in samples.values[step]
        if name != RAW and (spread := samples.spread(name, step))
    ]
    return sorted(found, key=lambda bar: -bar[2].middle)


def _row(top: int, label: str, colour: str, spread: Spread, scale: float) -> list[str]:
    middle, low, high = (round(value * scale) for value in spread)
    line = f'x1="{LEFT + low}" x2="{LEFT + high}" y1="{top + 10}" y2="{top + 10}"'
    return [
        f'<text x="{LEFT - 10}" y="{top + 15}" text-anchor="end" fill="{TEXT}">{label}</text>',
        f'<rect x="{LEFT}" y="{top}" width="{max(2, middle)}" height="20" fill="{colour}"/>',
        f'<line {line} stroke="{RANGE}" stroke-width="3"/>',
        f'<text x="{LEFT + 6 + max(2, high)}" y="{top + 15}" fill="{TEXT}">{spread.middle:,.0f}</text>',
    ]
