"""Sizes: integers within the range of the stores, bytes, rates."""

from __future__ import annotations

import re

from holdfast.errors import InvalidInput


def checked_number(number: int, *, label: str) -> int:
    """Return *number* if it is an integer of 32 bits."""
    if not isinstance(number, int) or not -(2**31) <= number < 2**31:
        raise InvalidInput(f"{label} is a whole number of 32 bits, not {number!r}")
    return number


def checked_count(count: int) -> int:
    """Return *count*, a number of progress, if it is an integer of 64 bits."""
    if isinstance(count, bool) or not isinstance(count, int) or not -(2**63) <= count < 2**63:
        raise InvalidInput(f"progress is counted in whole numbers, not {count!r}")
    return count


def as_bytes(size: int | str) -> int:
    """A size in bytes; ``"512M"`` and the like count in powers of 1024."""
    if isinstance(size, str):
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", size.strip(), re.IGNORECASE)
        if not match:
            raise InvalidInput(f"{size!r} is no size", hint='Write a number of bytes, or "512M", "8G".')
        size = int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))
    if size <= 0:
        raise InvalidInput(f"a size is more than nothing, not {size}")
    return size


def format_size(size: float) -> str:
    """Write bytes for people, in powers of 1024: ``512 MiB``, ``1.5 GiB``."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift:
            return f"{size / (1 << shift):.3g} {unit}" if size < 1000 << shift else f"{size / (1 << shift):,.0f} {unit}"
    return f"{size:.0f} bytes"


def format_rate(per_second: float) -> str:
    """Write a rate for people: ``1,234/s``, ``0.5/s``."""
    return f"{per_second:,.0f}/s" if per_second >= 100 else f"{per_second:.3g}/s"
