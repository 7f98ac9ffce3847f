"""Epochs: ranges cut into spans."""

from __future__ import annotations

from datetime import date, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast import options
from holdfast.client.batches.keys import epochs
from holdfast.errors import InvalidInput


def test_numbers_are_cut_by_count():
    assert epochs(1, 10, 4) == [(1, 4), (5, 8), (9, 10)]


def test_days_are_cut_by_the_calendar():
    assert epochs(date(2023, 11, 15), date(2024, 2, 3), by="month") == [
        (date(2023, 11, 15), date(2023, 11, 30)),
        (date(2023, 12, 1), date(2023, 12, 31)),
        (date(2024, 1, 1), date(2024, 1, 31)),
        (date(2024, 2, 1), date(2024, 2, 3)),
    ]
    end = date(9999, 12, 31)
    for by in ("year", "month", 40, 10**9):
        assert epochs(date(9999, 12, 30), end, by) == [(date(9999, 12, 30), end)]
    assert epochs(date(2023, 11, 15), date(2024, 2, 3), by="year")[0] == (date(2023, 11, 15), date(2023, 12, 31))


@given(
    st.dates(date(1990, 1, 1), date(2050, 1, 1)), st.integers(0, 2000), st.sampled_from(["year", "month", 1, 7, 400])
)
def test_every_day_is_in_exactly_one_epoch(first, days, by):
    last = first + timedelta(days=days)
    cut = epochs(first, last, by)
    assert (cut[0][0], cut[-1][1]) == (first, last)
    for (_, end), (begin, _) in pairwise(cut):
        assert begin == end + timedelta(days=1)
    assert all(low <= high for low, high in cut)


@pytest.mark.parametrize(
    ("first", "last", "by"),
    [(5, 1, 2), (1, 5, 0), (1, 5, "year"), (date(2024, 1, 2), date(2024, 1, 1), 1), ("a", "b", 1), (1, 5, "x")],
)
def test_an_invalid_cut_is_refused(first, last, by):
    with pytest.raises(InvalidInput):
        epochs(first, last, by)


def arguments(**values):
    return options.BatchArguments(values, exits=False)


def test_a_command_line_cuts_a_range():
    """Each epoch is a unit, and the cut is part of the identity."""
    app = holdfast.Holdfast("sqlite://")

    @app.unit()
    def replay(span: tuple[date, date]) -> None: ...

    years = arguments(range="2022-06-01..2024-01-31", epochs="year")
    assert len(years.keys(replay)) == 3
    assert years.source == "range 2022-06-01..2024-01-31 by year"
    with pytest.raises(InvalidInput, match="is not a span for 'replay'"):
        arguments(range="1-10", epochs="5").keys(replay)

    @app.unit()
    def count(span: tuple[int, int]) -> None: ...

    assert list(arguments(range="1-10", epochs="5").keys(count)) == [(1, 5), (6, 10)]

    @app.unit()
    def day(day: date) -> None: ...

    assert arguments(range="2024-02-28..2024-03-01").keys(day) == [
        date(2024, 2, 28),
        date(2024, 2, 29),
        date(2024, 3, 1),
    ]


@pytest.mark.parametrize(
    "values", [{"ids": "1,2", "epochs": "2"}, {"range": "2024-13-01..2024-12-31"}, {"range": "1-9", "epochs": "month"}]
)
def test_a_command_line_with_an_invalid_cut_is_refused(values):
    @holdfast.Holdfast("sqlite://").unit()
    def replay(span: int) -> None: ...

    with pytest.raises(InvalidInput):
        arguments(**values).keys(replay)


def test_epochs_run_side_by_side(tmp_path):
    seen = []
    app = holdfast.Holdfast(f"sqlite:///{tmp_path}/h.db")

    @app.unit()
    def replay(span: tuple[date, date]) -> None:
        seen.append(span)

    cut = epochs(date(2020, 1, 1), date(2022, 12, 31), by="year")
    assert app.run(replay, cut, jobs=3, output="none").exit_code == 0
    assert sorted(seen) == cut
    app.close()
