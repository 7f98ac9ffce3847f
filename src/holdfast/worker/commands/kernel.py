"""Readers for files of the Linux kernel. A missing file reads as empty."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []


def integer(file: Path) -> int | None:
    """The number that a file begins with."""
    first = words(file)[:1]
    return int(first[0]) if first and first[0].isdecimal() else None


def fields(file: Path) -> dict[str, int]:
    """The lines that begin with a name and a number."""
    values: dict[str, int] = {}
    with suppress(OSError):
        for line in file.read_text().splitlines():
            columns = line.split()
            if len(columns) > 1 and columns[1].isdecimal():
                values[columns[0]] = int(columns[1])
    return values


def own_cgroup(controller: str, proc: Path = PROC) -> str | None:
    """The path of this process's control group, without its slash. An empty controller means version 2."""
    with suppress(OSError):
        for line in (proc / "self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controller in controllers.split(","):
                return path.lstrip("/")
    return None
