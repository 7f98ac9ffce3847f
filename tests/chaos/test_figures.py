"""The table of figures is written by the harness."""

from __future__ import annotations

import dataclasses

from tests.chaos import figures
from tests.chaos.campaigns import Campaign, Outcome
from tests.chaos.checker import INVARIANTS
from tests.chaos.nemeses import NEMESES

OUTCOME = Outcome(
    campaign=Campaign(names=("kills",), backend="sqlite", seed=7, count=10_000),
    strikes={"kills": 10_003},
    took=601.0,
    violations=[],
    figures={"jobs": 12_345, "units": 4, "plans": 3, "taken over": 2, "unknown": 1},
    folder=None,
)


def test_a_row_takes_the_place_of_the_one_before(tmp_path):
    """One row per campaign and backend, in order; the rest of the page stays as it is."""
    page = tmp_path / "guarantees.md"
    page.write_text(f"before\n\n{figures.BEGIN}\n{figures.END}\n\nafter\n")
    other = dataclasses.replace(OUTCOME, campaign=dataclasses.replace(OUTCOME.campaign, backend="postgres"))
    for outcome in (dataclasses.replace(OUTCOME, took=1.0), other, OUTCOME):
        figures.write(outcome, page)
    lines = page.read_text().splitlines()
    assert (lines[0], lines[-1]) == ("before", "after")
    rows = [line for line in lines if line.startswith("| kills")]
    assert [row.split(" | ")[1] for row in rows] == ["postgres", "sqlite"]
    assert "| 10,003 kill -9 | 12,345 | 4 | 3 | 2 | 1 | 0 | 10.0 | 7 |" in rows[1]


def test_the_pages_name_every_nemesis_and_invariant():
    """An invariant that the page leaves out is not promised."""
    text = figures.PAGE.read_text()
    promises = figures.PAGE.with_name("guarantees.md").read_text()
    assert [name for name in NEMESES if f"| `{name}` |" not in text] == []
    assert [name for name in INVARIANTS if f"| {name} |" not in promises] == []
    assert figures.HEAD[0] in text


def test_a_campaign_tells_how_to_do_it_again():
    """The command that is printed when something was broken."""
    assert OUTCOME.campaign.replay == "python -m tests.chaos kills --backend sqlite --count 10000 --seed 7"
