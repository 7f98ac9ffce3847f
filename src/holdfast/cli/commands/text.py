"""A command for people: what it runs, where, under which caps, and where each value came from."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import msgspec

from holdfast.domain.commands.command import COMMAND, Command, load_command, mask_variables
from holdfast.domain.durations import format_duration
from holdfast.domain.jobs.job import Job
from holdfast.errors import HoldfastError

DEFAULT = "default"


def command_of(job: Job) -> Command | None:
    """The command of a job; None: it has none, or one that cannot be read."""
    try:
        return load_command(job.payload) if job.kind == COMMAND else None
    except (msgspec.DecodeError, HoldfastError):
        return None


def directory(job: Job) -> str:
    """Where a job runs, if it is a program."""
    command = command_of(job)
    return "" if command is None else command.cwd


def described(job: Job, command: Command) -> Iterator[tuple[str, str]]:
    """Names and values, each value with its origin."""
    yield "program", shlex.join(command.argv)
    values = {
        "cwd": command.cwd,
        "queue": job.queue,
        "priority": str(job.priority),
        "retry": "for ever" if job.max_attempts is None else str(job.max_attempts - 1),
        "timeout": "none" if command.timeout is None else format_duration(command.timeout),
        "memory": _bytes(command.memory),
        "cpus": "none" if command.cpus is None else f"{command.cpus:g}",
        "log_cap": "32 MB" if command.log_cap is None else _bytes(command.log_cap),
    }
    for name, value in values.items():
        yield name, f"{value}  ({command.origins.get(name, DEFAULT)})"
    for name, value in mask_variables(command.env).items():
        yield "env", f"{name}={value}  ({command.origins.get(f'env.{name}', DEFAULT)})"


def _bytes(size: int | None) -> str:
    if size is None:
        return "none"
    for unit, factor in (("GB", 2**30), ("MB", 2**20), ("kB", 2**10)):
        if size >= factor:
            return f"{size / factor:.4g} {unit}"
    return f"{size} bytes"
