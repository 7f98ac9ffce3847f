"""The table of figures in docs/guarantees-tests.md: a row for each campaign and backend, written by the harness."""

from __future__ import annotations

import os
import platform
import re
from datetime import UTC, datetime
from pathlib import Path

from tests.chaos import soak
from tests.chaos.campaigns import Outcome
from tests.chaos.situations import NEMESES

PAGE = Path(__file__).parents[2] / "docs" / "guarantees-tests.md"
BEGIN, END = "<!-- figures: written by python -m tests.chaos --write -->", "<!-- end of figures -->"
HEAD = (
    "| campaign | backend | strikes | jobs | units | plans | taken over | no answer | violations | minutes | seed | date | machine |",
    "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
)


def row(outcome: Outcome) -> str:
    """What a campaign came to."""
    campaign, figures = outcome.campaign, outcome.figures
    units = {soak.NAME: soak.UNIT, **{name: NEMESES[name]().unit for name in outcome.strikes if name in NEMESES}}
    strikes = ", ".join(f"{count:,} {units[name]}" for name, count in outcome.strikes.items())
    cells = (
        ", ".join(campaign.names),
        campaign.backend,
        strikes,
        *(f"{figures[name]:,}" for name in ("jobs", "units", "plans", "taken over", "unknown")),
        f"{len(outcome.violations)}",
        f"{outcome.took / 60:.1f}",
        str(campaign.seed),
        datetime.now(UTC).date().isoformat(),
        machine(),
    )
    return f"| {' | '.join(cells)} |"


def machine() -> str:
    """What it ran on, as far as it matters."""
    return f"{os.cpu_count()} cores, {platform.system()} {platform.release().split('-')[0]}, Python {platform.python_version()}"


def write(outcome: Outcome, page: Path = PAGE) -> None:
    """Put the row of a campaign into the page, in the place of the one before."""
    page.write_text(replaced(page.read_text(), row(outcome)))


def replaced(text: str, new: str) -> str:
    """The page with *new* in the place of the row of the same campaign and backend, or as one more."""
    before, table, after = re.split(f"{re.escape(BEGIN)}|{re.escape(END)}", text)
    rows = {tuple(line.split(" | ")[:2]): line for line in table.strip().splitlines()[len(HEAD) :]}
    rows[tuple(new.split(" | ")[:2])] = new
    return "\n".join([f"{before}{BEGIN}", *HEAD, *(rows[key] for key in sorted(rows)), f"{END}{after}"])
