"""Files of the kernel: words, a number, or lines of a name and a number. What is not there says nothing."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []


def number(file: Path) -> int | None:
    """The number that a file begins with."""
    found = words(file)
    return int(found[0]) if found and found[0].isdecimal() else None


def facts(file: Path) -> dict[str, int]:
    """Lines that begin with a name and a number."""
    found: dict[str, int] = {}
    with suppress(OSError):
        for line in file.read_text().splitlines():
            parts = line.split()
            if len(parts) > 1 and parts[1].isdecimal():
                found[parts[0]] = int(parts[1])
    return found
