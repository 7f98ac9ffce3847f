"""The checks of commands: their files, and the invariants of those that are live."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.admin.views.overview import Overview, overview
from holdfast.admin.views.payload_secrets import values_of
from holdfast.domain.access.masking import mask_cut
from holdfast.domain.commands import invariants
from holdfast.domain.commands.command import COMMAND, load_command
from holdfast.domain.commands.invariants import HostSize, LiveCommand, steps, written
from holdfast.domain.health_check import HealthCheck, Level, ok, warn
from holdfast.domain.jobs.job import State
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.quantities import count_of
from holdfast.errors import HoldfastError
from holdfast.settings import FILES, current_directory, read_settings
from holdfast.worker.commands.resource_caps import ROOT

if TYPE_CHECKING:
    from holdfast.store import Store

MAX_COMMANDS = 2_000
#: Logs that take more bytes, or this many files, are reported.
MAX_LOG_BYTES, MAX_LOG_FILES = 10 * 2**30, 100_000
#: States of commands that may run at the same time; waiting ones run later.
CONCURRENT_STATES = (State.RUNNING, State.READY, State.SCHEDULED, State.HELD)


def check_commands(store: Store, logs: Path | None = None) -> Iterator[HealthCheck]:
    """Check the files around commands, and the invariants of live commands. Their secrets are masked."""
    live = list(live_commands(store))
    if logs is not None:
        yield from command_logs(logs)
    secrets = {secret for each in live for secret in values_of(COMMAND, each.command.dumps())}
    longest_first = sorted(secrets, key=len, reverse=True)
    for check in _check_live(store, live):
        yield msgspec.structs.replace(check, message=mask_cut(check.message, longest_first))


def _check_live(store: Store, live: Sequence[LiveCommand]) -> Iterator[HealthCheck]:
    yield from places(live)
    yield from stale_locks(live)
    yield examined(store, live)
    results = list(invariants.examine(live, host_size(overview(store)), config_files(current_directory())))
    kept = [result.name for result in results if result.level is Level.OK]
    yield ok("rules", f"nothing is against {', '.join(kept)}")
    yield from (result for result in results if result.level is not Level.OK)


def examined(store: Store, live: Sequence[LiveCommand]) -> HealthCheck:
    """Report which commands the invariants cover, and which they do not."""
    all_live = store.views.count(Selector(kinds=(COMMAND,), states=CONCURRENT_STATES), cap=10 * MAX_COMMANDS)
    waiting = store.views.count(Selector(kinds=(COMMAND,), states=(State.WAITING,)), cap=MAX_COMMANDS)
    counts = {
        "more of them": all_live.count - len(live),
        "that wait for others": waiting.count,
        "with shell code that cannot be read": sum(not steps(each.command) for each in live),
    }
    rest = ", ".join(f"{count:,} {label}" for label, count in counts.items() if count)
    many = count_of(len(live), "live command", "live commands")
    text = f"examined the words and variables of {many}, but not their programs"
    return ok("commands", text + (f"; not examined: {rest}" if rest else ""))


def live_commands(store: Store) -> Iterator[LiveCommand]:
    """The commands that run, or may start at any time."""
    for job in islice(store.views.all(Selector(kinds=(COMMAND,), states=CONCURRENT_STATES)), MAX_COMMANDS):
        try:
            command = load_command(job.payload)
        except (msgspec.DecodeError, HoldfastError):
            continue
        running, label = job.state is State.RUNNING, job.label or ""
        yield LiveCommand(id=job.id, command=command, label=label, key=job.key, queue=job.queue, running=running)


def host_size(view: Overview) -> HostSize:
    """The memory, cores and swap of this host, and the jobs that its workers run."""
    import psutil

    here = {worker.id for worker in view.alive if worker.host == socket.gethostname()}
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


def command_logs(folder: Path) -> Iterator[HealthCheck]:
    if not folder.exists():
        return
    if not os.access(folder, os.W_OK):
        yield warn("logs", f"{folder} is not writable", f"Make the user who runs workers its owner: chown {folder}.")
        return
    files = [file for file in islice(folder.rglob("*.log"), MAX_LOG_FILES) if file.is_file()]
    size = sum(_size(file) for file in files)
    text = f"{count_of(len(files), 'log takes', 'logs take')} {size / 2**20:,.0f} MB in {folder}"
    if size > MAX_LOG_BYTES or len(files) == MAX_LOG_FILES:
        yield warn("logs", text, f"Delete old ones: find {folder} -name '*.log' -mtime +30 -delete; add --log-cap.")
    else:
        yield ok("logs", text)


def places(live: Sequence[LiveCommand]) -> Iterator[HealthCheck]:
    """Report working directories of live commands that do not exist on this host."""
    missing = sorted({each.command.cwd for each in live if not Path(each.command.cwd).is_dir()})
    if missing:
        more = f" (and in {len(missing) - 1:,} more)" if len(missing) > 1 else ""
        text = f"the directory {missing[0]!r} of a live command does not exist on this host{more}"
        yield warn("directories", text, "Create it, or change it: holdfast set JOB --cwd DIR.")


def stale_locks(live: Sequence[LiveCommand]) -> Iterator[HealthCheck]:
    """Report lock files of live commands whose process is dead."""
    for path in sorted({path for each in live for path in written(each.command) if path.endswith((".lock", ".pid"))}):
        try:
            text = Path(path).read_text(encoding="utf-8", errors="replace").split()[:1]
        except OSError:
            continue
        if text and text[0].isdecimal() and not Path(f"/proc/{text[0]}").exists() and Path("/proc/self").exists():
            problem = f"{path} names process {text[0]}, which is dead"
            yield warn("stale locks", problem, f"rm -f {path}; a flock lock disappears with its process.")


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
