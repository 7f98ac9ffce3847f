"""The checks of the doctor on this host: clock, user, logs, folders and locks of live commands."""

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
from holdfast.worker.commands.caps import ROOT

if TYPE_CHECKING:
    from holdfast.store import Store

MAX_COMMANDS = 2_000
#: A larger difference of clocks makes leases and schedules look wrong.
MAX_SKEW = timedelta(seconds=2)
#: Logs that take more bytes, or this many files, are reported.
MAX_LOG_BYTES, MAX_LOG_FILES = 10 * 2**30, 100_000
#: States of commands that may run at the same time; waiting ones run later.
CONCURRENT_STATES = (State.RUNNING, State.READY, State.SCHEDULED)


def live_commands(store: Store) -> list[LiveCommand]:
    """The commands that run, or may start at any time."""
    commands = []
    for job in islice(store.views.all(Selector(kinds=(COMMAND,), states=CONCURRENT_STATES)), MAX_COMMANDS):
        try:
            command = load_command(job.payload)
        except (msgspec.DecodeError, HoldfastError):
            continue
        running = job.state is State.RUNNING
        commands.append(
            LiveCommand(
                id=job.id, command=command, label=job.label or "", key=job.key, queue=job.queue, running=running
            )
        )
    return commands


def this_host(view: Overview) -> HostSize:
    """The memory, cores and swap of this host, and the jobs that its workers run."""
    import psutil

    here = {worker.id for worker in view.workers if worker.host == socket.gethostname()}
    counts_swap = not (ROOT / "memory").is_dir() or (ROOT / "memory" / "memory.memsw.limit_in_bytes").exists()
    return HostSize(
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        swap=psutil.swap_memory().total,
        swap_counts=counts_swap,
        at_once=sum(job.worker in here for job in view.running) if here else None,
    )


def config_files(directory: Path) -> list[str]:
    """All files with settings in a directory and its parents, in use or not."""
    files = []
    for folder in (directory, *directory.parents):
        for file in (folder / name for name in FILES):
            try:
                if file.is_file() and any(
                    each.origin == str(file) for each in read_settings(environ={}, file=file).values.values()
                ):
                    files.append(str(file))
            except HoldfastError:
                files.append(str(file))
    return files


def clock(store: Store) -> Iterator[HealthCheck]:
    """Compare the clock of the store with two readings of this host's clock around it."""
    before = datetime.now(UTC)
    now = store.schedules.now()
    after = datetime.now(UTC)
    off = before - now if now < before else now - after if now > after else timedelta(0)
    if off > MAX_SKEW:
        text = f"this host's clock and the store's differ by {off.total_seconds():,.1f} s"
        yield warn("clock", text, "Let both be set by NTP: timedatectl set-ntp true.")
    else:
        yield ok("clock", "this host and the store agree")


def privileges() -> Iterator[HealthCheck]:
    """Report the user that commands run as."""
    if os.geteuid() == 0:
        yield ok("privileges", "root: caps can be enforced, and programs run as root")
    else:
        yield ok("privileges", f"user {os.geteuid()}: programs run as this user")


def logs(folder: Path) -> Iterator[HealthCheck]:
    """Check the size of command logs, and that their folder is writable."""
    if not folder.exists():
        return
    if not os.access(folder, os.W_OK):
        yield warn("logs", f"{folder} cannot be written", f"Give it to the user who runs workers: chown {folder}.")
        return
    files = [file for file in islice(folder.rglob("*.log"), MAX_LOG_FILES) if file.is_file()]
    size = sum(_size(file) for file in files)
    text = f"{len(files):,} logs take {size / 2**20:,.0f} MB in {folder}"
    if size > MAX_LOG_BYTES or len(files) == MAX_LOG_FILES:
        yield warn("logs", text, f"Delete old ones: find {folder} -name '*.log' -mtime +30 -delete; add --log-cap.")
    else:
        yield ok("logs", text)


def places(live: Sequence[LiveCommand]) -> Iterator[HealthCheck]:
    """Report working directories of live commands that do not exist on this host."""
    missing = sorted({each.command.cwd for each in live if not Path(each.command.cwd).is_dir()})
    if missing:
        text = f"live programs are to run in {missing[0]!r}, which is not on this host"
        more = f" (and in {len(missing) - 1:,} more)" if len(missing) > 1 else ""
        yield warn("directories", text + more, "Make it, or change it: holdfast set JOB --cwd DIR.")


def stale_locks(live: Sequence[LiveCommand]) -> Iterator[HealthCheck]:
    """Report lock files of live commands whose process is dead."""
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
