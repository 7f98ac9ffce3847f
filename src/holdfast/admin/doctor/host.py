"""What the doctor looks at around a store: this host, its clock, logs, locks, files, and the programs that are live."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.domain.commands.command import COMMAND, load_command
from holdfast.domain.commands.invariants import HostSize, LiveCommand, written
from holdfast.domain.health_check import HealthCheck, ok, warn
from holdfast.domain.jobs.job import State
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import HoldfastError
from holdfast.settings import FILES, read_settings
from holdfast.store.fleet.overview import Overview
from holdfast.worker.commands.cgroups import ROOT

if TYPE_CHECKING:
    from holdfast.store import Store

#: So many live programs are looked at.
LOOKED_AT = 2_000
#: A clock that differs by more makes leases and schedules look wrong.
SKEW = timedelta(seconds=2)
#: Logs may take so many bytes, and so many files are counted.
LARGE_LOGS, COUNTED = 10 * 2**30, 100_000
#: States in which programs meet: what waits for others runs after them.
AT_ONCE = (State.RUNNING, State.READY, State.SCHEDULED)


def live_commands(store: Store) -> list[LiveCommand]:
    """The programs that run or may run at any moment."""
    found = []
    for job in islice(store.views.all(Selector(kinds=(COMMAND,), states=AT_ONCE)), LOOKED_AT):
        try:
            command = load_command(job.payload)
        except (msgspec.DecodeError, HoldfastError):
            continue
        running = job.state is State.RUNNING
        found.append(
            LiveCommand(
                id=job.id, command=command, label=job.label or "", key=job.key, queue=job.queue, running=running
            )
        )
    return found


def this_host(seen: Overview) -> HostSize:
    """What this host has; psutil is asked for swap alone, since the rest is cheaper."""
    import psutil

    here = {worker.id for worker in seen.workers if worker.host == socket.gethostname()}
    kernel_counts = not (ROOT / "memory").is_dir() or (ROOT / "memory" / "memory.memsw.limit_in_bytes").exists()
    return HostSize(
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        swap=psutil.swap_memory().total,
        swap_counts=kernel_counts,
        at_once=sum(job.worker in here for job in seen.running) if here else None,
    )


def config_files(directory: Path) -> list[str]:
    """Every file with settings of ours, here and above, whether it is read or not."""
    found = []
    for folder in (directory, *directory.parents):
        for file in (folder / name for name in FILES):
            try:
                if file.is_file() and any(
                    each.origin == str(file) for each in read_settings(environ={}, file=file).values.values()
                ):
                    found.append(str(file))
            except HoldfastError:
                found.append(str(file))
    return found


def clock(store: Store) -> Iterator[HealthCheck]:
    """The store's clock and this host's: a read of the one lies between two of the other."""
    before = datetime.now(UTC)
    told = store.schedules.now()
    after = datetime.now(UTC)
    off = before - told if told < before else told - after if told > after else timedelta(0)
    if off > SKEW:
        text = f"this host's clock and the store's differ by {off.total_seconds():,.1f} s"
        yield warn("clock", text, "Let both be set by NTP: timedatectl set-ntp true.")
    else:
        yield ok("clock", "this host and the store agree")


def privileges() -> Iterator[HealthCheck]:
    """As whom programs run."""
    if os.geteuid() == 0:
        yield ok("privileges", "root: caps can be enforced, and programs run as root")
    else:
        yield ok("privileges", f"user {os.geteuid()}: programs run as this user")


def logs(folder: Path) -> Iterator[HealthCheck]:
    """How much programs have left in their logs, and whether more can be written."""
    if not folder.exists():
        return
    if not os.access(folder, os.W_OK):
        yield warn("logs", f"{folder} cannot be written", f"Give it to the user who runs workers: chown {folder}.")
        return
    files = [file for file in islice(folder.rglob("*.log"), COUNTED) if file.is_file()]
    size = sum(_size(file) for file in files)
    text = f"{len(files):,} logs take {size / 2**20:,.0f} MB in {folder}"
    if size > LARGE_LOGS or len(files) == COUNTED:
        yield warn("logs", text, f"Delete old ones: find {folder} -name '*.log' -mtime +30 -delete; add --log-cap.")
    else:
        yield ok("logs", text)


def places(live: Sequence[LiveCommand]) -> Iterator[HealthCheck]:
    """Directories of live programs that are not on this host."""
    missing = sorted({each.command.cwd for each in live if not Path(each.command.cwd).is_dir()})
    if missing:
        text = f"live programs are to run in {missing[0]!r}, which is not on this host"
        more = f" (and in {len(missing) - 1:,} more)" if len(missing) > 1 else ""
        yield warn("directories", text + more, "Make it, or change it: holdfast set JOB --cwd DIR.")


def stale_locks(live: Sequence[LiveCommand]) -> Iterator[HealthCheck]:
    """Files of locks that live programs name, and whose owner is dead."""
    for path in sorted({path for each in live for path in written(each.command) if path.endswith((".lock", ".pid"))}):
        try:
            text = Path(path).read_text(encoding="utf-8", errors="replace").split()[:1]
        except OSError:
            continue
        if text and text[0].isdecimal() and not Path(f"/proc/{text[0]}").exists() and Path("/proc/self").exists():
            fix = f"rm -f {path}; a lock by flock is gone with its process."
            yield warn("stale locks", f"{path} names process {text[0]}, which is dead", fix)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
