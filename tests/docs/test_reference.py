"""The generated pages are current."""

from __future__ import annotations

import pytest

from tests.support.reference import HERE, generate

PAGES = generate.pages()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_current(name):
    """Run ``make docs`` when this fails."""
    assert (HERE / name).read_text() == PAGES[name]


def test_no_page_is_left_over():
    assert {f"schemas/{file.name}" for file in (HERE / "schemas").iterdir()} <= set(PAGES)
