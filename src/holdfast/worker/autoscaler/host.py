"""The load of this host: memory, processors and pressure.

Inside a container the limits of its control groups count, not those of the whole machine.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import structs

from holdfast.domain.fleet.admission import MemoryRoom, RunningCommand, forecast, host_limit_text, room
from holdfast.domain.fleet.autoscaler import (
    AutoscalerStatus,
    HostLoad,
    QueueStatus,
    Strain,
    load_autoscaler_status,
    strain,
)
from holdfast.domain.jobs.job import JobId, WorkerId
from holdfast.domain.quantities import host_limit
from holdfast.store import Store
from holdfast.worker import clock
from holdfast.worker.commands import kernel

#: More pages than this coming back from swap between two readings mean that the host is swapping.
SWAPPING_PAGES = 256
#: Interval at which an unchanged status is published again.
PUBLISH_INTERVAL_S = 10.0


class HostMonitor:
    """The load of this host at the last reading. Workers on one host exchange their status through the store."""

    def __init__(
        self, store: Store, worker: WorkerId, limits: Mapping[str, str], *, read: Callable[[], HostLoad]
    ) -> None:
        self.read = read
        self.name = socket.gethostname()
        self.load = HostLoad(total=1, used=0, cores=1)
        self.swapping = False
        self.strain = Strain.EASY
        self._store = store
        self._worker = worker
        self._limit = host_limit_text(self.name, limits)
        #: Memory in bytes that the other workers of this host have promised to commands that still grow.
        self._promised = 0
        self._published_at = float("-inf")
        self._published: AutoscalerStatus | None = None

    @property
    def limit(self) -> int:
        """Memory that commands may take, in bytes."""
        return host_limit(self._limit, self.load.total)

    def update(self) -> bool:
        """Read the load; returns whether the strain has changed."""
        before, self.load = self.load, self.read()
        self.swapping = before.total > 1 and self.load.swapped - before.swapped > SWAPPING_PAGES
        strain_before, self.strain = self.strain, strain(self.load, self.limit)
        return self.strain is not strain_before

    def room(self, running: Sequence[RunningCommand]) -> MemoryRoom:
        """The memory that is left beside *running* commands and the promises of other workers."""
        own = sum(command.resident for command in running)
        return room(self.limit, self.load.total, self.load.used, own=own, promised=self._promised)

    def status(
        self, running: Sequence[RunningCommand], *, frozen: list[JobId], queues: list[QueueStatus]
    ) -> AutoscalerStatus:
        load = structs.asdict(self.load)
        del load["swapped"]
        return AutoscalerStatus(
            **load,
            limit=self.limit,
            room=self.room(running).now,
            resident=sum(command.resident for command in running),
            forecast=round(forecast(running)),
            strain=self.strain.name.lower(),
            frozen=frozen,
            lanes=queues,
        )

    def publish(self, status: AutoscalerStatus | None, *, force: bool) -> None:
        """Publish a status that is new or old enough, and read the promises of the other workers."""
        if force or status != self._published or clock.now() - self._published_at > PUBLISH_INTERVAL_S:
            self._published_at, self._published = clock.now(), status
            self._store.autoscaler.report_status(self._worker, None if status is None else status.dumps())
            workers = [worker for worker in self._store.workers.list() if worker.host == self.name]
            others = [load_autoscaler_status(worker.autoscaler) for worker in workers if worker.id != self._worker]
            self._promised = sum(max(0, other.forecast - other.resident) for other in others if other is not None)


def read_host(proc: Path = kernel.PROC, groups: Path = kernel.CGROUPS) -> HostLoad:
    """Read the load of this host, or of the container around this process."""
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
    """Total and available memory in bytes, and the number of pages read back from swap."""
    memory = kernel.fields(proc / "meminfo")
    if "MemTotal:" in memory and "MemAvailable:" in memory:
        swapped = kernel.fields(proc / "vmstat").get("pswpin", 0)
        return memory["MemTotal:"] * 1024, memory["MemAvailable:"] * 1024, swapped
    import psutil  # only where /proc is missing

    virtual, swap = psutil.virtual_memory(), psutil.swap_memory()
    return virtual.total, virtual.available, swap.sin // os.sysconf("SC_PAGE_SIZE")


def _group_memory(proc: Path, groups: Path) -> Iterator[tuple[int, int]]:
    """Limit and use of each group around this process. Cached files do not count: the kernel can drop them."""
    for folder in _folders(proc, groups, ""):
        limit, used = kernel.integer(folder / "memory.max"), kernel.integer(folder / "memory.current")
        if limit is not None and used is not None:
            yield limit, max(0, used - kernel.fields(folder / "memory.stat").get("inactive_file", 0))
    for folder in _folders(proc, groups / "memory", "memory"):
        limit, used = kernel.integer(folder / "memory.limit_in_bytes"), kernel.integer(folder / "memory.usage_in_bytes")
        if limit is not None and used is not None:
            yield limit, max(0, used - kernel.fields(folder / "memory.stat").get("total_inactive_file", 0))


def _cores(proc: Path, groups: Path) -> float:
    """The number of processors by the affinity of this process and the quotas of its groups."""
    try:
        cores = float(len(os.sched_getaffinity(0)))
    except AttributeError:
        cores = float(os.cpu_count() or 1)
    for folder in _folders(proc, groups, ""):
        quota = kernel.words(folder / "cpu.max")
        if len(quota) == 2 and quota[0].isdecimal():
            cores = min(cores, int(quota[0]) / int(quota[1]))
    for folder in _folders(proc, groups / "cpu", "cpu"):
        share, period = kernel.integer(folder / "cpu.cfs_quota_us"), kernel.integer(folder / "cpu.cfs_period_us")
        if share and period:
            cores = min(cores, share / period)
    return cores


def _memory_pressure(proc: Path, groups: Path) -> float | None:
    """Percentage of time in which all processes wait for memory, in our group or else on the host."""
    files = [*(folder / "memory.pressure" for folder in _folders(proc, groups, "")), proc / "pressure/memory"]
    return next((pressure for file in files if (pressure := _pressure(file, "full")) is not None), None)


def _pressure(file: Path, line: str) -> float | None:
    words = kernel.words(file)
    with suppress(ValueError, IndexError):
        return float(words[words.index(line) + 1].removeprefix("avg10="))
    return None


def _folders(proc: Path, home: Path, controller: str) -> list[Path]:
    """The control group of this process and the groups above it. An empty controller means version 2."""
    path = kernel.own_cgroup(controller, proc)
    if path is None:
        return []
    own = home / path
    return [folder for folder in (own, *own.parents) if folder == home or home in folder.parents]
