"""The host as the autoscaler sees it: memory, processors, and who waits for them.

Inside a container the limits of its control groups count: what the kernel says of the whole machine is not ours.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from holdfast.domain.fleet.autoscaler import HostLoad
from holdfast.worker.commands import kernel

PROC, GROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def read_host(proc: Path = PROC, groups: Path = GROUPS) -> HostLoad:
    """What this host, or the container around us, has and bears now."""
    total, available, swapped = _memory(proc)
    for limit, used in _group_memory(proc, groups):
        if limit < total:
            total, available = limit, min(available, max(0, limit - used))
    return HostLoad(
        total=total,
        used=total - min(total, available),
        cores=_cores(proc, groups),
        load=os.getloadavg()[0],
        cpu_pressure=_pressure(proc / "pressure/cpu", "some"),
        memory_pressure=_memory_pressure(proc, groups),
        swapped=swapped,
    )


def _memory(proc: Path) -> tuple[int, int, int]:
    """All memory, what of it is available, and the pages that were read back from swap."""
    facts = kernel.facts(proc / "meminfo")
    if "MemTotal:" in facts and "MemAvailable:" in facts:
        return facts["MemTotal:"] * 1024, facts["MemAvailable:"] * 1024, kernel.facts(proc / "vmstat").get("pswpin", 0)
    import psutil  # where there is no such file

    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    return memory.total, memory.available, swap.sin // os.sysconf("SC_PAGE_SIZE")


def _group_memory(proc: Path, groups: Path) -> Iterator[tuple[int, int]]:
    """The limit of each group that we are in, and what is used of it. The files of the disk that it caches can go."""
    for folder in _folders(proc, groups, ""):
        limit, used = kernel.number(folder / "memory.max"), kernel.number(folder / "memory.current")
        if limit is not None and used is not None:
            yield limit, max(0, used - kernel.facts(folder / "memory.stat").get("inactive_file", 0))
    for folder in _folders(proc, groups / "memory", "memory"):
        limit, used = kernel.number(folder / "memory.limit_in_bytes"), kernel.number(folder / "memory.usage_in_bytes")
        if limit is not None and used is not None:
            yield limit, max(0, used - kernel.facts(folder / "memory.stat").get("total_inactive_file", 0))


def _cores(proc: Path, groups: Path) -> float:
    """The processors that we may use: those given to this process, or what a group's quota amounts to."""
    try:
        cores = float(len(os.sched_getaffinity(0)))
    except AttributeError:
        cores = float(os.cpu_count() or 1)
    for folder in _folders(proc, groups, ""):
        quota = kernel.words(folder / "cpu.max")
        if len(quota) == 2 and quota[0].isdecimal():
            cores = min(cores, int(quota[0]) / int(quota[1]))
    for folder in _folders(proc, groups / "cpu", "cpu"):
        share, period = kernel.number(folder / "cpu.cfs_quota_us"), kernel.number(folder / "cpu.cfs_period_us")
        if share and period:
            cores = min(cores, share / period)
    return cores


def _memory_pressure(proc: Path, groups: Path) -> float | None:
    """How much of the time nobody gets on for want of memory, in percent: in our group, or on the host."""
    for folder in _folders(proc, groups, ""):
        found = _pressure(folder / "memory.pressure", "full")
        if found is not None:
            return found
    return _pressure(proc / "pressure/memory", "full")


def _pressure(file: Path, line: str) -> float | None:
    words = kernel.words(file)
    with suppress(ValueError, IndexError):
        return float(words[words.index(line) + 1].removeprefix("avg10="))
    return None


def _folders(proc: Path, home: Path, controller: str) -> list[Path]:
    """The group that this process is in, and those above it; an empty controller is version 2."""
    with suppress(OSError):
        for line in (proc / "self/cgroup").read_text().splitlines():
            _, names, path = line.split(":", 2)
            if controller in names.split(","):
                own = home / path.strip("/")
                return [folder for folder in (own, *own.parents) if folder == home or home in folder.parents]
    return []
