"""A short run of the campaign ``producers``: its producers reach all paths, and what it finds is told."""

from __future__ import annotations

import pytest

from tests.chaos import producers
from tests.chaos.campaigns import Campaign
from tests.chaos.producers import ACKNOWLEDGED, Violation, judge


@pytest.mark.slow
def test_acknowledged_jobs_exist_once(backend_name):
    outcome = producers.run(Campaign(names=(producers.NAME,), backend=backend_name, seed=7, count=3000))
    broken = [f"{each.invariant} is broken: {each.text}" for each in outcome.violations]
    assert not broken, "\n".join(broken)
    assert outcome.figures["acknowledged"] >= 3000
    assert outcome.strikes[producers.NAME] > 0


class FakeSite:
    """A store with these jobs: pairs of a number and an id."""

    name = "sqlite"

    def __init__(self, *rows):
        self.execute = lambda query: list(rows)


def test_lost_and_doubled_jobs_are_found(tmp_path):
    """A producer that was killed may have written half of its last pair."""
    pairs = b"".join(ACKNOWLEDGED.pack(n, 10 + n) for n in range(4))
    (tmp_path / "1.acknowledged").write_bytes(pairs + b"\0\0\0")
    violations, figures = judge(FakeSite((0, 10), (1, 11), (1, 90), (3, 99), (7, 70)), tmp_path)
    assert figures == {"acknowledged": 4, "jobs": 5, "lost": 3, "doubled": 1}
    assert violations[0] == Violation("I2", "job 1 exists more than once")
    assert {each.invariant for each in violations[1:]} == {"I1"}
