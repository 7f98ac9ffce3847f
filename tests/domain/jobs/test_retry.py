"""Retry curves."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.jobs.retry import DEFAULT_CURVE, Curve, delay_after, steps
from holdfast.errors import InvalidInput


def test_the_default_curve_doubles_to_an_hour():
    """60 s, doubling, at most an hour, before jitter."""
    seconds = [delay_after(DEFAULT_CURVE, attempt, chance=0.5).total_seconds() for attempt in range(1, 9)]
    assert seconds == [60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_an_attempt_below_one_counts_as_one():
    """Odd numbers do no harm."""
    assert delay_after(DEFAULT_CURVE, 0, chance=0.5) == delay_after(DEFAULT_CURVE, 1, chance=0.5)
    assert delay_after(DEFAULT_CURVE, -7, chance=0.5) == timedelta(seconds=60)


def test_a_huge_attempt_number_overflows_nothing():
    """The millionth attempt waits an hour too."""
    assert delay_after(DEFAULT_CURVE, 1_000_000, chance=0.5) == timedelta(hours=1)


@given(attempt=st.integers(1, 100), chance=st.floats(0, 1))
def test_jitter_stays_within_a_fifth(attempt, chance):
    """Each delay lies within 20 % of the curve."""
    middle = delay_after(DEFAULT_CURVE, attempt, chance=0.5).total_seconds()
    assert (
        middle * 0.8 - 1e-5 <= delay_after(DEFAULT_CURVE, attempt, chance=chance).total_seconds() <= middle * 1.2 + 1e-5
    )


def test_a_list_is_used_as_it_is_and_its_last_delay_repeats():
    """1m/5m/15m waits exactly that, then 15m again and again."""
    curve = steps([timedelta(minutes=n) for n in (1, 5, 15)])
    minutes = [delay_after(curve, attempt, chance=0.0).total_seconds() / 60 for attempt in range(1, 6)]
    assert minutes == [1, 5, 15, 15, 15]


def test_a_curve_survives_the_store():
    """The default needs no text; every other curve reads back as it was."""
    assert DEFAULT_CURVE.dumps() is None
    for curve in (Curve(base=1, cap=9, jitter=0), steps([timedelta(seconds=3)])):
        assert Curve.loads(curve.dumps()) == curve


def test_a_senseless_curve_is_refused():
    """Negative delays and an empty list cannot be meant."""
    for make in (lambda: Curve(base=-1), lambda: Curve(jitter=2), lambda: steps([])):
        with pytest.raises(InvalidInput):
            make()
