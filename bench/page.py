"""docs/performance.md: each benchmark writes a section of its own between two marks."""

from __future__ import annotations

import os
import platform

from bench.peers import HOME

PAGE = HOME / "docs" / "performance.md"


def write_section(name: str, text: str) -> None:
    begin, end = f"<!-- {name}: written by python -m bench.{name} --write -->\n", f"<!-- end of {name} -->"
    before, mark, rest = PAGE.read_text().partition(begin)
    if not mark:
        raise RuntimeError(f"{PAGE} has no mark {begin!r}")
    PAGE.write_text(f"{before}{begin}{text}{end}{rest.partition(end)[2]}")


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def machine() -> str:
    return f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
