"""The checks of the doctor: environment, settings, store and host, each with its fix."""

from __future__ import annotations

import os
import platform
import shlex
import socket
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.admin.doctor.descriptors import descriptors
from holdfast.admin.views.overview import Overview, live_overview
from holdfast.admin.views.schedules import masked_schedule_text
from holdfast.domain.commands import invariants
from holdfast.domain.commands.command import COMMAND, load_command
from holdfast.domain.commands.invariants import HostSize, LiveCommand, written
from holdfast.domain.fleet.queue import serves_queue
from holdfast.domain.health_check import HealthCheck, fail, ok, warn
from holdfast.domain.jobs.job import State
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.names import quote_argument
from holdfast.errors import HoldfastError
from holdfast.settings import FILES, read_settings, setting_fields
from holdfast.worker.commands.caps import ROOT, enforcer_here

if TYPE_CHECKING:
    from holdfast.domain.schedules.definition import Schedule
    from holdfast.store import Store

#: The first SQLite with STRICT tables.
OLDEST_PYTHON, OLDEST_SQLITE = (3, 11), (3, 37, 0)
#: A due plan that waits for longer is late.
LATE_AFTER = timedelta(minutes=2)
MAX_SCHEDULES = 500
#: Variables of Holdfast that are not settings.
OTHER_VARIABLES = {"HOLDFAST_API_KEY", "HOLDFAST_METRICS_TOKEN", "HOLDFAST_WORKER", "HOLDFAST_CHILD", "HOLDFAST_CAPS"}
MAX_COMMANDS = 2_000
#: A larger difference of clocks makes leases and schedules look wrong.
MAX_SKEW = timedelta(seconds=2)
#: Logs that take more bytes, or this many files, are reported.
MAX_LOG_BYTES, MAX_LOG_FILES = 10 * 2**30, 100_000
#: States of commands that may run at the same time; waiting ones run later.
CONCURRENT_STATES = (State.RUNNING, State.READY, State.SCHEDULED)


def examine(open_store: Callable[[], Store], *, logs: Path | None = None) -> Iterator[HealthCheck]:
    """Run all checks, the environment first. *logs* is the folder of command logs."""
    yield from environment()
    yield from caps()
    yield from privileges()
    yield from configuration(os.environ)
    try:
        store = open_store()
    except HoldfastError as error:
        yield fail("store", error.message, error.hint)
        return
    try:
        yield from check_store(store)
        yield from clock(store)
        yield from check_commands(store, logs)
    except HoldfastError as error:
        yield fail("store", error.message, error.hint or "See holdfast db check.")


def environment() -> Iterator[HealthCheck]:
    """Check Python, SQLite and the operating system."""
    version = platform.python_version()
    if sys.version_info < OLDEST_PYTHON:
        yield fail("python", f"Python {version} is too old", "Install Python 3.11 or later.")
    else:
        yield ok("python", f"Python {version}")
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        yield fail("sqlite", f"SQLite {sqlite3.sqlite_version} is too old", "Use a Python with SQLite 3.37 or later.")
    else:
        yield ok("sqlite", f"SQLite {sqlite3.sqlite_version}")
    if not sys.platform.startswith("linux"):
        text = f"{platform.system()}: workers run, but without memory caps and subreaper"
        yield warn("system", text, "Run workers that need them on Linux.")


def caps() -> Iterator[HealthCheck]:
    """Check the mechanism that enforces memory caps of commands."""
    enforcer = enforcer_here()
    if enforcer == "watch":
        text = "memory caps of programs are only watched, every tenth of a second, and shares of processors not at all"
        yield warn("caps", text, "Run workers as root, or where systemd delegates a control group (Delegate=yes).")
    else:
        yield ok("caps", f"memory caps of programs by {enforcer}")


def configuration(environ: Mapping[str, str]) -> Iterator[HealthCheck]:
    """Check settings files and variables. An unknown ``HOLDFAST_`` variable is probably a typo."""
    try:
        values = read_settings(environ=environ).values
    except HoldfastError as error:
        yield fail("configuration", error.message, error.hint)
    else:
        origins = sorted({value.origin for value in values.values()} - {"default"})
        yield ok("configuration", f"from {', '.join(origins)}" if origins else "all defaults")
    known = {setting.variable or "" for setting in setting_fields().values()} | OTHER_VARIABLES
    for name in sorted(name for name in environ if name.startswith("HOLDFAST_") and name not in known):
        yield warn("configuration", f"the variable {name} means nothing", "See holdfast config show --origin.")


def check_store(store: Store) -> Iterator[HealthCheck]:
    tools = store.database.tools
    yield ok("store", f"{tools.server}, {tools.size() / 1e6:,.1f} MB")
    yield from tools.health()
    view = live_overview(store)
    if view.stopped is not None:
        yield warn("stopped", view.stopped.text, "Let it go on with holdfast resume --all.")
    yield from workers(view)
    yield from descriptors(view.workers)
    yield from queues(view)
    yield from schedules(store, view)
    if dead := view.counts[State.DEAD].count:
        yield warn("dead jobs", f"{dead:,} jobs are dead", "See holdfast ls --state dead, then holdfast retry or rm.")


def check_commands(store: Store, logs: Path | None = None) -> Iterator[HealthCheck]:
    """Check the files around commands, and the invariants of live commands."""
    live = list(live_commands(store))
    if logs is not None:
        yield from command_logs(logs)
    yield from places(live)
    yield from stale_locks(live)
    yield from invariants.examine(live, host_size(live_overview(store)), config_files(Path.cwd()))


def workers(view: Overview) -> Iterator[HealthCheck]:
    if not view.workers:
        ready = sum(queue.ready for queue in view.queues)
        if ready:
            yield warn("workers", f"no worker is alive, and {ready:,} jobs are ready", "Start one: holdfast up.")
        else:
            yield ok("workers", "none is alive, and nothing waits for one")
        return
    yield ok("workers", f"{len(view.workers)} alive")
    versions = sorted({worker.version or "none" for worker in view.workers})
    if len(versions) > 1:
        yield warn("versions", f"workers run different code: {', '.join(versions)}", "Restart the older ones.")


def queues(view: Overview) -> Iterator[HealthCheck]:
    served = {name for worker in view.workers for name in worker.queues}
    for queue in view.queues:
        if queue.ready and view.workers and not serves_queue(served, queue.name):
            text = f"{queue.ready:,} jobs wait in {queue.name!r}, which no worker serves"
            fix = f"Start one with --queue={shlex.quote(queue.name)}, or move them with holdfast set --to-queue."
            yield warn("queue", text, fix)
        if queue.paused:
            note = f": {queue.note}" if queue.note else ""
            fix = f"holdfast queue resume {quote_argument(queue.name)}"
            yield warn("queue", f"{queue.name!r} is paused{note}", fix)
        if queue.expired:
            text = f"{queue.expired:,} leases of {queue.name!r} have lapsed and nobody has taken them over"
            yield warn("leases", text, "Any worker of this store does it within seconds: start one.")


def schedules(store: Store, view: Overview) -> Iterator[HealthCheck]:
    """Report schedules that fail, are late or paused, or whose kind no worker runs."""
    for troubled in store.schedules.troubled(late=LATE_AFTER):
        if troubled.error is not None:
            text = f"{troubled.name!r} cannot be planned: {masked_schedule_text(store, troubled.name, troubled.error)}"
            fix = f"It is tried again by itself. See: holdfast schedule show {quote_argument(troubled.name)}"
            yield warn("schedule", text, fix)
        elif troubled.late and view.stopped is None:
            text = f"{troubled.name!r} is due since {troubled.next_at:%Y-%m-%d %H:%M:%S} UTC, and nobody plans it"
            fix = "Start a worker or a scheduler; if its scopes come from a function, with the --app that has it."
            yield warn("schedule", text, fix)
    served, now = {kind for worker in view.workers for kind in worker.kinds}, store.schedules.now()
    for each in islice(store.schedules.all(), MAX_SCHEDULES):
        kind = _kind_of(each)
        if each.paused:
            note = f": {masked_schedule_text(store, each.name, each.note)}" if each.note else ""
            fix = f"holdfast schedule resume {quote_argument(each.name)}"
            yield warn("schedule", f"{each.name!r} is paused{note}", fix)
        elif each.cursor > now + LATE_AFTER:
            text = f"{each.name!r} is decided until {each.cursor:%Y-%m-%d %H:%M:%S} UTC, which is yet to come"
            yield warn("schedule", text, "The clock was ahead: pause it, and resume it.")
        elif view.workers and kind is not None and kind not in served:
            yield warn("schedule", f"no worker runs {kind!r}, which {each.name!r} fires", "Start one that has it.")


def _kind_of(schedule: Schedule) -> str | None:
    """The kind that a schedule fires; None if its definition is invalid, which the planner has reported."""
    try:
        return schedule.defined.kind
    except (msgspec.DecodeError, HoldfastError):
        return None


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
    user, root = os.geteuid(), "root: caps can be enforced, and programs run as root"
    yield ok("privileges", f"user {user}: programs run as this user" if user else root)


def command_logs(folder: Path) -> Iterator[HealthCheck]:
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
        more = f" (and in {len(missing) - 1:,} more)" if len(missing) > 1 else ""
        text = f"live programs are to run in {missing[0]!r}, which is not on this host{more}"
        yield warn("directories", text, "Make it, or change it: holdfast set JOB --cwd DIR.")


def stale_locks(live: Sequence[LiveCommand]) -> Iterator[HealthCheck]:
    """Report lock files of live commands whose process is dead."""
    for path in sorted({path for each in live for path in written(each.command) if path.endswith((".lock", ".pid"))}):
        try:
            text = Path(path).read_text(encoding="utf-8", errors="replace").split()[:1]
        except OSError:
            continue
        if text and text[0].isdecimal() and not Path(f"/proc/{text[0]}").exists() and Path("/proc/self").exists():
            problem = f"{path} names process {text[0]}, which is dead"
            yield warn("stale locks", problem, f"rm -f {path}; a lock by flock is gone with its process.")


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
