"""Names that every store can keep."""

from __future__ import annotations

import pytest

from holdfast.domain.names import checked_name, checked_text, clean_text
from holdfast.errors import InvalidInput, InvalidText


@pytest.mark.parametrize("text", ["a\0b", "half \ud83d"])
def test_text_that_no_store_can_keep_is_refused(text):
    """NUL and half of a character are refused where a person wrote them ..."""
    with pytest.raises(InvalidText):
        checked_text(text, label="the label")


def test_text_of_commands_is_cleaned():
    """... and mended where a program did: an error text must never cost its job."""
    assert clean_text("a\0b \ud83d") == "a\ufffdb ?"
    assert clean_text("x" * 50, limit=10) == "x" * 9 + "…"


@pytest.mark.parametrize("name", ["", " a", "a ", "x" * 201])
def test_names_are_short_and_not_empty(name):
    """A name that could be mistaken is refused."""
    with pytest.raises(InvalidInput):
        checked_name(name, label="the queue")
