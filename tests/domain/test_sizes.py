"""Sizes in bytes."""

from __future__ import annotations

import pytest

from holdfast.domain.sizes import as_bytes
from holdfast.errors import InvalidInput


@pytest.mark.parametrize(
    ("size", "expected"), [(5, 5), ("5", 5), ("2K", 2048), ("1.5m", 1572864), ("8GiB", 8 << 30), ("1 TB", 1 << 40)]
)
def test_sizes_as_people_write_them(size, expected):
    assert as_bytes(size) == expected


@pytest.mark.parametrize("size", ["", "much", "5X", "-1", 0, -1])
def test_invalid_sizes_are_refused(size):
    with pytest.raises(InvalidInput):
        as_bytes(size)
