"""``log``: show the output of a command."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import click
from msgspec import Struct

from holdfast.cli.command import command
from holdfast.cli.session import CliSession
from holdfast.domain.commands.command import COMMAND, load_command
from holdfast.domain.jobs.history import Attempt
from holdfast.domain.jobs.job import Job, JobId, State
from holdfast.errors import InvalidInput, NotFound
from holdfast.settings import log_folder
from holdfast.worker.commands.executor import log_path

POLL_INTERVAL_S = 0.1
READ_BYTES = 64 * 1024


class LogAnswer(Struct, frozen=True):
    """The output of one attempt of a command."""

    id: JobId
    attempt: int
    path: str
    text: str


@command("log", answers=LogAnswer)
@click.argument("job_id", type=click.IntRange(0))
@click.option("-f", "--follow", is_flag=True, help="Go on until the program has ended.")
@click.option("-n", "--lines", type=click.IntRange(0), help="Only the last so many lines.")
@click.option("--attempt", type=click.IntRange(1), help="Of the nth run. [the last]")
def log(session: CliSession, *, job_id: int, follow: bool, lines: int | None, attempt: int | None) -> None:
    """Show what a program has written. Logs are kept by attempt, on the host where it ran."""
    job = session.store.views.get(JobId(job_id))
    if job.kind != COMMAND:
        raise InvalidInput(f"job {job_id} is no program, and has no log", hint="See holdfast show.")
    shown = _attempt(session, job, attempt, wait=follow)
    path = log_path_of(session, job, shown.token)
    if not path.exists():
        host = f" by {shown.worker}" if shown.worker else ""
        raise NotFound(f"there is no log {path}", hint=f"It was run{host}: look on that host.")
    text = path.read_bytes().decode(errors="replace")
    if lines is not None:
        text = "".join(text.splitlines(keepends=True)[-lines:] if lines else [])
    session.output.value(LogAnswer(job.id, shown.number, str(path), text), text.splitlines)
    if follow and session.output.format == "text":
        for data in _follow(session, job.id, path):
            session.output.lines(data.decode(errors="replace").splitlines())


def _attempt(session: CliSession, job: Job, number: int | None, *, wait: bool) -> Attempt:
    """The attempt with this number, or the last; with *wait*, wait until the first one starts."""
    pause = threading.Event()
    while not (attempts := session.store.views.attempts(job.id)):
        if not wait or session.store.views.get(job.id).state.finished:
            raise NotFound(f"job {job.id} has not begun", hint="Follow it with -f, or see holdfast why.")
        pause.wait(POLL_INTERVAL_S)
    if number is not None and number > len(attempts):
        raise NotFound(f"job {job.id} has run {len(attempts)} times", hint="See holdfast show.")
    return attempts[-1 if number is None else number - 1]


def log_path_of(session: CliSession, job: Job, token: int) -> Path:
    """The log file of the attempt with this lease token."""
    return log_path(log_folder(session.url), job.id, token, load_command(job.payload).parameters)


def _follow(session: CliSession, job_id: JobId, path: Path) -> Iterator[bytes]:
    """Yield new output until the command is finished and the log is read to its end."""
    pause, position = threading.Event(), path.stat().st_size
    while True:
        # The state before the read, so that no output between the two is lost.
        finished = session.store.views.get(job_id).state is not State.RUNNING
        data, position = _read(path, position)
        if data:
            yield data
        elif finished:
            return
        else:
            pause.wait(POLL_INTERVAL_S)


def _read(path: Path, position: int) -> tuple[bytes, int]:
    """Read a chunk from *position* and return it with the next position; a truncated file starts over."""
    with path.open("rb") as file:
        begin = position if position <= file.seek(0, 2) else 0
        file.seek(begin)
        data = file.read(READ_BYTES)
        return data, begin + len(data)
