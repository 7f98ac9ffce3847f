"""``show`` and ``why``: one job in detail."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterator

import click
import msgspec

from holdfast.admin.views.job_detail import JobDetail, Reasons, job_detail, job_record
from holdfast.cli.command import command
from holdfast.cli.session import CliSession
from holdfast.cli.text import progress_text
from holdfast.domain.commands.command import COMMAND, DEFAULT_STOP_DELAY, Command, load_command
from holdfast.domain.jobs.job import OVERDUE, Job, State
from holdfast.domain.jobs.why import WhyReason
from holdfast.domain.names import escape_controls
from holdfast.domain.quantities import format_duration, local_times, stamp
from holdfast.errors import HoldfastError


@command("show", answers=JobDetail)
@click.argument("job_id", type=click.IntRange(0))
def show(session: CliSession, *, job_id: int) -> None:
    """Show one job: its state and why, its attempts and its history. For the output of a command, use holdfast log.

    Examples:
      holdfast show 17
      holdfast show 17 -o json
    """
    record = job_record(session.store, job_id)
    detail = job_detail(record)
    session.output.value(detail, lambda: _job_lines(record.job, detail))


@command("why", answers=Reasons)
@click.argument("job_id", type=click.IntRange(0))
def why(session: CliSession, *, job_id: int) -> None:
    """Explain why a job is not running, the nearest reason first.

    Examples:
      holdfast why 17      # no live worker serves kind 'count' on queue 'default'
    """
    reasons = job_record(session.store, job_id).why
    session.output.value(Reasons(reasons), lambda: [_reason_line(reason) for reason in reasons])


def _reason_line(reason: WhyReason) -> str:
    return local_times(reason.text if reason.command is None else f"{reason.text} ({reason.command})")


def _job_lines(job: Job, detail: JobDetail) -> Iterator[str]:
    request = f", {job.requested} requested" if job.requested else ""
    yield f"job {job.id}  {'claimed, not started' if job.claimed else job.state}{request}  {job.kind}"
    command = command_of(job)
    for name, text in () if command is None else _command_fields(job, command):
        yield f"  {name:9} {escape_controls(text)}"
    for name, value in _job_fields(job, detail, is_command=command is not None).items():
        if value:
            first, *more = str(value).splitlines()
            yield f"  {name:9} {first}"
            yield from (f"            {line}" for line in more)
    if detail.attempts:
        yield "attempts"
        for attempt in detail.attempts:
            result, begun = attempt.reason or "running", stamp(attempt.started_at)
            code = f"version {attempt.version}" if attempt.version else ""
            fields = (attempt.number, begun, result, f"token {attempt.token}", attempt.worker, code)
            yield "  " + "  ".join(str(field) for field in fields if field not in (None, ""))
            if attempt.error:
                yield f"     {attempt.error.partition(chr(10))[0]}"
    yield "history"
    for event in detail.events:
        yield f"  {stamp(event.at)}  {event.name}  {event.actor}  {event.detail or ''}".rstrip()


def _job_fields(job: Job, detail: JobDetail, *, is_command: bool) -> dict[str, str | None]:
    mark = None if job.overdue is None else f"{OVERDUE}{job.overdue}"
    return {
        "queue": None if is_command else f"{job.queue}, priority {job.priority}",
        "label": job.label,
        "key": job.key,
        "enqueued": f"{stamp(job.created_at)} by {job.actor}",
        "due": stamp(job.due_at),
        "finished": stamp(job.finished_at),
        "worker": job.worker,
        "progress": progress_text(job),
        "payload": None if is_command else job.payload,
        "result": job.result or (job.error if job.state is State.DONE and job.error != mark else None),
        "overdue": job.overdue,
        "error": None if job.state is State.DONE else job.error,
        "note": job.note,
        "why": "\n".join(_reason_line(reason) for reason in detail.why),
    }


def command_of(job: Job) -> Command | None:
    """The command of a job; None if the job has no command or its payload cannot be read."""
    try:
        return load_command(job.payload) if job.kind == COMMAND else None
    except (msgspec.DecodeError, HoldfastError):
        return None


def _command_fields(job: Job, command: Command) -> Iterator[tuple[str, str]]:
    """Names and values of a command's fields, each value with its origin."""
    yield "command", shlex.join(command.argv)
    origins = defaultdict(lambda: "default", command.origins)
    values = {
        "cwd": command.cwd,
        "queue": job.queue,
        "priority": str(job.priority),
        "retry": "no limit" if job.max_attempts is None else str(job.max_attempts - 1),
        "timeout": "none" if command.timeout is None else format_duration(command.timeout),
        "stop_delay": format_duration(DEFAULT_STOP_DELAY if command.stop_delay is None else command.stop_delay),
        "memory": _format_size(command.memory),
        "cpus": "none" if command.cpus is None else f"{command.cpus:g}",
        "log_cap": "32 MB" if command.log_cap is None else _format_size(command.log_cap),
    }
    for name, value in values.items():
        yield name, f"{value}  ({origins[name]})"
    for name, value in command.env.items():
        yield "env", f"{name}={value}  ({origins[f'env.{name}']})"


def _format_size(size: int | None) -> str:
    if size is None:
        return "none"
    for unit, factor in (("GB", 2**30), ("MB", 2**20), ("kB", 2**10)):
        if size >= factor:
            return f"{size / factor:.4g} {unit}"
    return f"{size} bytes"
