"""Texts and durations as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.domain.jobs.selector import Glob
from holdfast.domain.text import (
    as_bytes,
    as_duration,
    checked_name,
    checked_text,
    clean_text,
    parse_duration,
    say_duration,
)
from holdfast.errors import InvalidInput, InvalidText


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
def test_what_is_no_duration_is_refused(text):
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
def test_durations_are_said(seconds, text):
    """People read the two largest units."""
    assert say_duration(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize("text", ["a\0b", "half \ud83d"])
def test_text_that_no_store_can_keep_is_refused(text):
    """NUL and half of a character are refused where a person wrote them ..."""
    with pytest.raises(InvalidText):
        checked_text(text, what="the label")


def test_text_of_programs_is_mended():
    """... and mended where a program did: an error text must never cost its job."""
    assert clean_text("a\0b \ud83d") == "a\ufffdb ?"
    assert clean_text("x" * 50, limit=10) == "x" * 9 + "…"


@pytest.mark.parametrize("name", ["", " a", "a ", "x" * 201])
def test_names_are_short_and_not_empty(name):
    """A name that could be mistaken is refused."""
    with pytest.raises(InvalidInput):
        checked_name(name, what="the queue")


def test_only_the_star_is_special_in_a_pattern():
    """Percent, underscore, question mark and bracket mean themselves."""
    assert Glob("50%_*").as_like() == r"50\%\_%"
    assert Glob("a[b]?*").as_glob() == "a[[]b][?]*"
    assert not Glob("a*").exact


@pytest.mark.parametrize(
    ("size", "found"), [(5, 5), ("5", 5), ("2K", 2048), ("1.5m", 1572864), ("8GiB", 8 << 30), ("1 TB", 1 << 40)]
)
def test_sizes_as_people_write_them(size, found):
    assert as_bytes(size) == found


@pytest.mark.parametrize("size", ["", "much", "5X", "-1", 0, -1])
def test_what_is_no_size_is_refused(size):
    with pytest.raises(InvalidInput):
        as_bytes(size)
