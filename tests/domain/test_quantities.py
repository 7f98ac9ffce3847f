"""Durations, sizes, rates and integers as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.domain.quantities import as_bytes, as_duration, format_duration, parse_duration, split_times
from holdfast.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("1.5h", 5400),
        ("1h30m", 5400),
        ("500ms", 0.5),
        ("2d", 172800),
        ("1w", 604800),
        (" 5 m".replace(" ", ""), 300),
    ],
)
def test_durations_are_read(text, seconds):
    """A number alone is seconds; units may be combined."""
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "abc", "5x", "-5", "5m?", "1h 30"])
def test_invalid_durations_are_refused(text):
    """The hint shows how to write one."""
    with pytest.raises(InvalidInput) as caught:
        parse_duration(text)
    assert "1h30m" in caught.value.hint


def test_durations_come_in_three_forms():
    """A timedelta, seconds, or a text; never negative."""
    assert as_duration(2) == as_duration("2s") == as_duration(timedelta(seconds=2))
    with pytest.raises(InvalidInput):
        as_duration(-1)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(5, "5 s"), (119, "119 s"), (600, "10 min"), (7500, "2 h 5 min"), (7200, "2 h"), (400000, "4 d")],
)
def test_durations_are_formatted(seconds, text):
    """People read the two largest units."""
    assert format_duration(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(
    ("size", "expected"), [(5, 5), ("5", 5), ("2K", 2048), ("1.5m", 1572864), ("8GiB", 8 << 30), ("1 TB", 1 << 40)]
)
def test_sizes_as_people_write_them(size, expected):
    assert as_bytes(size) == expected


@pytest.mark.parametrize("size", ["", "much", "5X", "-1", 0, -1])
def test_invalid_sizes_are_refused(size):
    with pytest.raises(InvalidInput):
        as_bytes(size)


def test_the_times_of_a_sentence_are_found():
    """With the spellings of views; what looks like a time and is none stays text."""
    noon = datetime(2030, 1, 2, 12, 0, tzinfo=UTC)
    assert list(split_times("since 2030-01-02 12:00:00 UTC, by ada")) == ["since ", noon, ", by ada"]
    assert list(split_times("2030-01-02T12:00:00.25Z")) == ["", noon + timedelta(seconds=0.25), ""]
    for text in ("", "no time", "2030-02-31 12:00:00 UTC", "0001-01-01 00:00:00 UTC", "2030-01-02 12:00:00 CET"):
        assert "".join(split_times(text)) == text
