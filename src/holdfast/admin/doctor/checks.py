"""The doctor: looks at the environment and the store, and says what to mend and how."""

from __future__ import annotations

import os
import platform
import shlex
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.admin.doctor import host
from holdfast.domain.access.masking import mask_text
from holdfast.domain.commands import invariants
from holdfast.domain.fleet.health import HealthCheck, fail, ok, warn
from holdfast.domain.jobs.job import State
from holdfast.domain.text import as_argument
from holdfast.errors import HoldfastError
from holdfast.settings import SETTINGS, settings
from holdfast.store.fleet.overview import Overview, overview
from holdfast.worker.commands.caps import enforcer_here

if TYPE_CHECKING:
    from holdfast.domain.schedules.definition import Schedule
    from holdfast.store import Store

OLDEST_PYTHON = (3, 11)
#: STRICT tables need it.
OLDEST_SQLITE = (3, 37, 0)
#: A due plan has waited too long for a planner; and so many schedules are looked at one by one.
LATE, LOOKED_AT = timedelta(minutes=2), 500
#: Variables that are no settings, but ours all the same.
OTHER_VARIABLES = {"HOLDFAST_API_KEY", "HOLDFAST_METRICS_TOKEN", "HOLDFAST_WORKER", "HOLDFAST_CHILD", "HOLDFAST_CAPS"}


def examine(open_store: Callable[[], Store], *, logs: Path | None = None) -> Iterator[HealthCheck]:
    """Every check that applies here, the environment first. A store that cannot be opened ends the list.

    *logs* is the folder of what programs have written.
    """
    yield from environment()
    yield from caps()
    yield from host.privileges()
    yield from configuration(os.environ)
    try:
        store = open_store()
    except HoldfastError as error:
        yield fail("store", error.message, error.hint)
        return
    try:
        yield from of_store(store)
        yield from host.clock(store)
        yield from of_programs(store, logs)
    except HoldfastError as error:
        yield fail("store", error.message, error.hint or "See holdfast db check.")


def environment() -> Iterator[HealthCheck]:
    """Python, SQLite and the system."""
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
    """Who would see to the memory of programs."""
    enforcer = enforcer_here()
    if enforcer == "watch":
        text = "memory caps of programs are only watched, every tenth of a second, and shares of processors not at all"
        yield warn("caps", text, "Run workers as root, or where systemd delegates a control group (Delegate=yes).")
    else:
        yield ok("caps", f"memory caps of programs by {enforcer}")


def configuration(environ: Mapping[str, str]) -> Iterator[HealthCheck]:
    """The files and variables. One that looks like ours but is not is a mistake, or of another program."""
    try:
        found = settings(environ=environ)
    except HoldfastError as error:
        yield fail("configuration", error.message, error.hint)
    else:
        origins = sorted({each.origin for each in found.values()} - {"default"})
        yield ok("configuration", f"from {', '.join(origins)}" if origins else "all defaults")
    known = {setting.variable or "" for setting in SETTINGS.values()} | OTHER_VARIABLES
    for name in sorted(name for name in environ if name.startswith("HOLDFAST_") and name not in known):
        yield warn("configuration", f"the variable {name} means nothing", "See holdfast config show --origin.")


def of_store(store: Store) -> Iterator[HealthCheck]:
    """The database and what is in it."""
    tools = store.database.tools
    yield ok("store", f"{tools.server}, {tools.size() / 1e6:,.1f} MB")
    yield from tools.health()
    seen = overview(store)
    yield from workers(seen)
    yield from queues(seen)
    yield from schedules(store, seen)
    if dead := seen.counts[State.DEAD].count:
        yield warn("dead jobs", f"{dead:,} jobs are dead", "See holdfast ls --state dead, then holdfast retry or rm.")


def of_programs(store: Store, logs: Path | None = None) -> Iterator[HealthCheck]:
    """What is around programs, and the eight invariants of those that are live."""
    live = host.live_commands(store)
    if logs is not None:
        yield from host.logs(logs)
    yield from host.places(live)
    yield from host.stale_locks(live)
    this_host = host.this_host(overview(store))
    yield from invariants.examine(live, this_host, host.config_files(Path.cwd()))


def workers(seen: Overview) -> Iterator[HealthCheck]:
    """Whether somebody works, and whether all work with the same code."""
    if not seen.workers:
        waits = sum(queue.ready for queue in seen.queues)
        if waits:
            yield warn("workers", f"no worker is alive, and {waits:,} jobs are ready", "Start one: holdfast up.")
        else:
            yield ok("workers", "none is alive, and nothing waits for one")
        return
    yield ok("workers", f"{len(seen.workers)} alive")
    versions = sorted({worker.version or "none" for worker in seen.workers})
    if len(versions) > 1:
        yield warn("versions", f"workers run different code: {', '.join(versions)}", "Restart the older ones.")


def queues(seen: Overview) -> Iterator[HealthCheck]:
    """Queues that nobody serves, that are paused, or whose jobs have lost their holders."""
    served = {name for worker in seen.workers for name in worker.queues}
    for queue in seen.queues:
        if queue.ready and seen.workers and queue.name not in served:
            text = f"{queue.ready:,} jobs wait in {queue.name!r}, which no worker serves"
            fix = f"Start one with --queue={shlex.quote(queue.name)}, or move them with holdfast set --to-queue."
            yield warn("queue", text, fix)
        if queue.paused:
            note = f": {mask_text(queue.note)}" if queue.note else ""
            yield warn("queue", f"{queue.name!r} is paused{note}", f"holdfast queue resume {as_argument(queue.name)}")
        if queue.expired:
            text = f"{queue.expired:,} leases of {queue.name!r} have lapsed and nobody has taken them over"
            yield warn("leases", text, "Any worker of this store does it within seconds: start one.")


def schedules(store: Store, seen: Overview) -> Iterator[HealthCheck]:
    """Schedules that cannot be planned, that nobody plans, that are paused, or whose jobs nobody would run."""
    for troubled in store.schedules.troubled(late=LATE):
        if troubled.error is not None:
            text = f"{troubled.name!r} cannot be planned: {troubled.error}"
            fix = f"It is tried again by itself. See: holdfast schedule show {as_argument(troubled.name)}"
            yield warn("schedule", text, fix)
        elif troubled.late:
            text = f"{troubled.name!r} is due since {troubled.next_at:%Y-%m-%d %H:%M:%S} UTC, and nobody plans it"
            fix = "Start a worker or a scheduler; if its scopes come from a function, with the --app that has it."
            yield warn("schedule", text, fix)
    served, now = {kind for worker in seen.workers for kind in worker.kinds}, store.schedules.now()
    for each in islice(store.schedules.all(), LOOKED_AT):
        kind = _kind_of(each)
        if each.paused:
            note = f": {mask_text(each.note)}" if each.note else ""
            yield warn(
                "schedule", f"{each.name!r} is paused{note}", f"holdfast schedule resume {as_argument(each.name)}"
            )
        elif each.cursor is not None and each.cursor > now + LATE:
            text = f"{each.name!r} is decided until {each.cursor:%Y-%m-%d %H:%M:%S} UTC, which is yet to come"
            yield warn("schedule", text, "The clock was ahead: pause it, and resume it.")
        elif seen.workers and kind is not None and kind not in served:
            yield warn("schedule", f"no worker runs {kind!r}, which {each.name!r} fires", "Start one that has it.")


def _kind_of(schedule: Schedule) -> str | None:
    """The kind that it fires; None: its definition cannot be read, which the planner has told."""
    try:
        return schedule.defined.kind
    except (msgspec.DecodeError, HoldfastError):
        return None
