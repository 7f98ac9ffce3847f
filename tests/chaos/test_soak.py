"""The verdict of a soak: what grows is named, noise is not."""

from __future__ import annotations

import random

import pytest

from tests.chaos.soak import MAX_LOG_BYTES, Series, judge

JOBS = range(0, 60_000, 200)
CHANCE = random.Random(7)


@pytest.mark.parametrize(
    ("case", "sort", "values", "grows"),
    [
        ("constant", "rows", [100.0 for _ in JOBS], False),
        ("noise", "bytes", [1e6 + CHANCE.uniform(-3e5, 3e5) for _ in JOBS], False),
        ("a row for each job", "rows", [float(jobs) for jobs in JOBS], True),
        ("a tag for each job", "bytes", [85.0 * jobs + CHANCE.uniform(0, 1e5) for jobs in JOBS], True),
        ("a descriptor for 1,000 jobs", "handles", [20.0 + jobs // 1000 for jobs in JOBS], True),
        ("grows at first", "bytes", [min(85.0 * jobs, 1e6) for jobs in JOBS], False),
        ("a saw that rises", "bytes", [60.0 * jobs + jobs % 5000 * 100 for jobs in JOBS], True),
        ("a saw that does not", "bytes", [jobs % 5000 * 100.0 for jobs in JOBS], False),
        ("shrinks", "rows", [60_000.0 - jobs for jobs in JOBS], False),
    ],
)
def test_growth_per_job_is_judged_in_the_second_half(case, sort, values, grows):
    series = Series(case, sort, list(zip(JOBS, values, strict=True)))
    assert [case in str(violation) for violation in judge([series])] == [True] * grows


def test_a_short_soak_judges_nothing():
    assert judge([Series("few", "rows", [(0, 1.0), (5, 9.0)])]) == []


def test_a_step_of_maintenance_that_fails_is_a_violation():
    assert [each.invariant for each in judge([], failures=["maintenance could not prune logs"] * 9)] == ["G3"]


def test_a_large_log_is_a_violation():
    """G1: also if it is small again at the end."""
    assert [each.invariant for each in judge([], largest_log=MAX_LOG_BYTES + 1)] == ["G1"]
