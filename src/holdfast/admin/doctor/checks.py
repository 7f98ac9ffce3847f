"""The checks of the doctor: environment, settings, store and host, each with its fix."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.admin.doctor.commands import check_commands
from holdfast.admin.doctor.fleet import check_descriptors, check_lanes, check_queues, check_workers, live_workers
from holdfast.admin.views.fleet import TERMINAL_CAP, WorkerView, running_jobs, waiting_lanes
from holdfast.admin.views.overview import Attention, overview
from holdfast.admin.views.schedules import masked_schedule_text
from holdfast.domain.fleet.served_names import RESTART, SEPARATE
from holdfast.domain.health_check import HealthCheck, fail, ok, warn
from holdfast.domain.jobs.job import State
from holdfast.domain.jobs.kind_options import check_payload
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.names import quote_argument
from holdfast.errors import HoldfastError, InvalidPayload, PrivilegeMissing, StoreMoved, UnknownKind
from holdfast.settings import read_settings, setting_fields
from holdfast.worker.commands.resource_caps import enforcer_here

if TYPE_CHECKING:
    from holdfast.domain.schedules.definition import Schedule
    from holdfast.store import Store

#: The first SQLite with STRICT tables.
OLDEST_PYTHON, OLDEST_SQLITE = (3, 11), (3, 37, 0)
#: A due plan that waits for longer is late.
LATE_AFTER = timedelta(minutes=2)
MAX_SCHEDULES = 500
#: Held jobs of a kind whose payloads are checked.
MAX_HELD = 200
#: Variables of Holdfast that are not settings.
OTHER_VARIABLES = {"HOLDFAST_API_KEY", "HOLDFAST_METRICS_TOKEN", "HOLDFAST_WORKER", "HOLDFAST_CHILD", "HOLDFAST_CAPS"}
#: A larger difference of clocks makes leases and schedules appear wrong.
MAX_SKEW = timedelta(seconds=2)


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
        if store.database.tools.successor is None:
            yield from permitted("commands", check_commands(store, logs))
    except HoldfastError as error:
        yield fail("store", error.message, error.hint or "See holdfast db check.")


def permitted(name: str, checks: Iterator[HealthCheck]) -> Iterator[HealthCheck]:
    """The checks; those that this database user has no right to are marked as not checked."""
    try:
        yield from checks
    except PrivilegeMissing as error:
        yield warn(name, f"not checked: {error.message}", error.hint)


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
        text = f"{platform.system()}: workers run, but without memory limits and subreaper"
        yield warn("system", text, "Run workers that need them on Linux.")


def caps() -> Iterator[HealthCheck]:
    """Check the mechanism that enforces memory caps of commands."""
    enforcer = enforcer_here()
    if enforcer == "watch":
        text = "memory limits of commands are only polled, every 0.1 s; processor limits are not enforced"
        yield warn("caps", text, "Run workers as root, or where systemd delegates a control group (Delegate=yes).")
    else:
        yield ok("caps", f"{enforcer} enforces the memory limits of commands")


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
        yield warn("configuration", f"unknown variable {name}", "See holdfast config show --origin.")


def check_store(store: Store) -> Iterator[HealthCheck]:
    tools = store.database.tools
    yield ok("store", f"{tools.server}, {tools.size() / 1e6:,.1f} MB")
    if tools.successor is not None:
        yield fail("store", f"it was copied to {tools.successor}, and refuses all changes", StoreMoved.hint)
    yield from tools.health()
    if tools.successor is None:
        yield from permitted("fleet", check_fleet(store))


def check_unreadable(store: Store, problems: Sequence[Attention]) -> Iterator[HealthCheck]:
    """Check the held jobs whose payload no live worker can read: it may fit other code, or none."""
    for problem in problems:
        misfit = _find_misfit(store, problem.name)
        if misfit is None:
            fix = "Start a worker of the code that enqueued them, or cancel them. See holdfast why JOB."
            yield warn("other code", problem.text, fix)
        else:
            fix = f"holdfast cancel --state held --kind {quote_argument(problem.name)}, then enqueue what fits."
            yield warn("payload", f"{problem.text}. {misfit}", fix)


def _find_misfit(store: Store, kind: str) -> str | None:
    """How one of the newest unreadable jobs of a kind differs from the published parameters of its kind and version."""
    with suppress(UnknownKind):
        published = store.kinds.get(kind)
        jobs = store.views.all(Selector(states=(State.HELD,), kinds=(kind,)))
        for job in islice(jobs, MAX_HELD):
            if job.unreadable and job.kind_version == published.version:
                try:
                    check_payload(published, msgspec.json.decode(job.payload, type=dict[str, Any]))
                except (InvalidPayload, msgspec.DecodeError) as error:
                    return f"Job {job.id} does not fit the published parameters either: {error}"
    return None


def check_fleet(store: Store) -> Iterator[HealthCheck]:
    """Check workers, queues, schedules and jobs."""
    view = overview(store, cap=TERMINAL_CAP)
    if view.stopped is not None:
        yield warn("stopped", view.stopped.text, "Resume it with holdfast resume --all.")
    lanes, now = waiting_lanes(store, cap=TERMINAL_CAP), store.schedules.now()
    alive = live_workers(view.workers, now)
    yield from check_workers(view.workers, lanes, running_jobs(store), now)
    yield from check_descriptors(alive)
    yield from check_lanes(lanes if alive else [], alive)
    yield from check_queues(view.queues)
    fix = 'Stop that worker: its jobs are released. Run the kind with executor="process": a process can be killed.'
    yield from (warn("timeout", each.text, fix) for each in view.attention if each.category == "overdue")
    yield from check_unreadable(store, [each for each in view.attention if each.category == "unreadable"])
    yield from (fail("names", each.text, SEPARATE) for each in view.attention if each.category == "shared_name")
    yield from (warn("names", each.text, RESTART) for each in view.attention if each.category == "moved_name")
    yield from schedules(store, alive, stopped=view.stopped is not None)
    if orphans := store.database.live_orphans():
        text = f"rows of the table live have no job: {', '.join(map(str, orphans))}"
        yield fail("jobs", text, "Workers delete those that take a place in a queue. See also holdfast db check.")
    fix = "See holdfast errors, then holdfast retry or rm."
    yield from (warn("dead jobs", each.text, fix) for each in view.attention if each.category == "dead")


def schedules(store: Store, alive: Sequence[WorkerView], *, stopped: bool) -> Iterator[HealthCheck]:
    """Report schedules that fail, are late or paused, or whose kind no worker runs."""
    for troubled in store.schedules.troubled(late=LATE_AFTER):
        if troubled.error is not None:
            text = f"{troubled.name!r} cannot be planned: {masked_schedule_text(store, troubled.name, troubled.error)}"
            fix = f"Holdfast tries again. See: holdfast schedule show {quote_argument(troubled.name)}"
            yield warn("schedule", text, fix)
        elif troubled.late and not stopped:
            text = f"{troubled.name!r} has been due since {troubled.next_at:%Y-%m-%d %H:%M:%S} UTC; no scheduler runs"
            fix = "Start a worker or a scheduler. If a function lists its scopes, name its application with --app."
            yield warn("schedule", text, fix)
    served, now = {kind for worker in alive for kind in worker.kinds}, store.schedules.now()
    for each in islice(store.schedules.all(), MAX_SCHEDULES):
        kind = _kind_of(each)
        if each.paused:
            note = f": {masked_schedule_text(store, each.name, each.note)}" if each.note else ""
            fix = f"holdfast schedule resume {quote_argument(each.name)}"
            yield warn("schedule", f"{each.name!r} is paused{note}", fix)
        elif each.cursor > now + LATE_AFTER:
            text = f"{each.name!r} fires nothing before {each.cursor:%Y-%m-%d %H:%M:%S} UTC: a clock was ahead"
            yield warn("schedule", text, "Pause the schedule and resume it.")
        elif alive and kind is not None and kind not in served:
            text = f"no worker runs kind {kind!r} of schedule {each.name!r}"
            yield warn("schedule", text, "Start a worker whose application has the kind.")


def _kind_of(schedule: Schedule) -> str | None:
    """The kind that a schedule fires; None if its definition is invalid, which the planner has reported."""
    try:
        return schedule.defined.kind
    except (msgspec.DecodeError, HoldfastError):
        return None


def clock(store: Store) -> Iterator[HealthCheck]:
    """Compare the clock of the store with two readings of this host's clock around it."""
    before = datetime.now(UTC)
    now = store.schedules.now()
    after = datetime.now(UTC)
    off = before - now if now < before else now - after if now > after else timedelta(0)
    if off > MAX_SKEW:
        text = f"this host's clock and the store's differ by {off.total_seconds():,.1f} s"
        yield warn("clock", text, "Synchronise both with NTP: timedatectl set-ntp true.")
    else:
        yield ok("clock", "this host and the store agree")


def privileges() -> Iterator[HealthCheck]:
    user, root = os.geteuid(), "root: limits can be enforced, and commands run as root"
    yield ok("user", f"user {user}: commands run as this user" if user else root)
