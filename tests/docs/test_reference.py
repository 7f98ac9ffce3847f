"""The generated pages are current."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

HERE = Path(__file__).parents[2] / "docs" / "reference"

spec = importlib.util.spec_from_file_location("generate", HERE / "generate.py")
generate = importlib.util.module_from_spec(spec)
spec.loader.exec_module(generate)


@pytest.mark.parametrize("name", generate.PAGES)
def test_a_page_is_current(name):
    """Run ``make docs`` when this fails."""
    assert (HERE / name).read_text() == generate.PAGES[name]()
