"""``run`` and ``log``: a program here and now, and what programs have written."""

from __future__ import annotations

import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from holdfast.cli.command import command, with_options
from holdfast.cli.commands.options import ELSEWHERE, OPTIONS, JobBuilder, words_argument
from holdfast.cli.jobs.wait import CODES
from holdfast.cli.ops.worker import SECOND_SIGNAL
from holdfast.cli.session import Session
from holdfast.domain.commands.command import COMMAND, load_command
from holdfast.domain.jobs.history import Attempt
from holdfast.domain.jobs.job import Job, JobId, State
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import ConfigurationError, HoldfastError, InvalidInput, NotFound
from holdfast.settings import log_folder
from holdfast.worker.commands.executor import log_path
from holdfast.worker.commands.process_tree import CHILD_VARIABLE
from holdfast.worker.signals import Signals
from holdfast.worker.worker import Worker

#: How often a log that is followed is looked at, in seconds; and how much is read at once.
LOOK_EVERY, CHUNK = 0.1, 64 * 1024
#: A program that is cancelled is told within a heartbeat and killed after seconds: it is waited for so long at most.
LONGEST_END = 15.0


class RunAnswer(Struct, frozen=True):
    """How a program ended, and where its log is."""

    id: JobId
    state: State
    reason: str | None
    exit_code: int | None
    log: str


class LogText(Struct, frozen=True):
    """What a program has written in one attempt."""

    id: JobId
    attempt: int
    path: str
    text: str


@command("run", answers=RunAnswer, changes=True)
@words_argument
@click.option("--shell", is_flag=True, help="Give the words to /bin/sh, as one line.")
@with_options(*(option for option in OPTIONS if option not in ELSEWHERE))
def run(session: Session, *, words: tuple[str, ...], shell: bool, **options: Any) -> int:
    """Add a program and run it here, now, with its output on this terminal; it is a job like any other.

    Exit 0 when it is done, 1 when it failed, 12 when it was cancelled. Ctrl-C ends it. What it writes to stderr comes
    on stdout too, in the order in which it was written, as in its log.

    \b
    Example:
      holdfast run --memory 2G --timeout 1h -- python train.py
    """
    if os.environ.get(CHILD_VARIABLE):
        raise ConfigurationError("a job cannot run programs in its own place", hint="Let it add them: holdfast add.")
    argv = ("/bin/sh", "-c", " ".join(words)) if shell else words
    later = {
        "queue": _private_queue(),
        "priority": 0,
        "delay": None,
        "dependencies": (),
        "hold": False,
        "callback": None,
    }
    request = JobBuilder(session, {**options, **later, "pause_queue": False}).request(argv)
    app = session.app
    job_id = app.store.jobs.enqueue(request).id
    stopped = threading.Event()
    echo = _to_terminal(stopped) if session.output.format == "text" else None
    worker = app.worker(
        queues=[request.queue], slots=1, plans=False, grace="2s", poll="100ms", heartbeat="1s", echo=echo
    )
    Signals(stopped.set, lambda: _leave(worker)).start()
    worker.start()
    _see_through(session, job_id, worker, stopped)
    return _tell_end(session, app.views.get(job_id))


def _see_through(session: Session, job_id: JobId, worker: Worker, stopped: threading.Event) -> None:
    """Wait for the end of a program that is run here; who leaves before cancels it, while its worker can end it."""
    views = session.app.views
    try:
        while worker.working and not views.state(job_id).finished and not stopped.wait(LOOK_EVERY):
            pass
    finally:  # also when the store cannot be asked any more: what was begun here goes on nowhere else
        with suppress(HoldfastError):
            session.app.control.cancel(Selector(ids=(job_id,)), actor=session.actor)
        pause, until = threading.Event(), time.monotonic() + LONGEST_END
        while worker.working and worker.running and time.monotonic() < until:
            pause.wait(LOOK_EVERY)
        worker.stop()
        worker.join()


def _leave(worker: Worker) -> None:
    """The second signal: the program is killed, and nothing is waited for."""
    worker.abandon()
    os._exit(SECOND_SIGNAL)


def _private_queue() -> str:
    """A queue that no other worker serves."""
    return f"run-{secrets.token_hex(8)}"


def _to_terminal(stopped: threading.Event) -> Callable[[bytes], None]:
    """Writes what the program writes; a reader who is gone ends it."""

    def echo(data: bytes) -> None:
        try:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except OSError:
            stopped.set()

    return echo


def _tell_end(session: Session, job: Job) -> int:
    attempts = session.store.views.attempts(job.id)
    last = attempts[-1] if attempts else None
    code = 0 if job.state is State.DONE else None if last is None else last.exit_code
    path = _path(session, job, 1 if last is None else last.token)
    session.output.value(RunAnswer(job.id, job.state, job.reason, code, str(path)), lambda: ())
    return CODES.get(job.state, 1)


@command("log", answers=LogText)
@click.argument("job_id", type=click.IntRange(0))
@click.option("-f", "--follow", is_flag=True, help="Go on until the program has ended.")
@click.option("-n", "--lines", type=click.IntRange(0), help="Only the last so many lines.")
@click.option("--attempt", type=click.IntRange(1), help="Of the nth run. [the last]")
def show_log(session: Session, *, job_id: int, follow: bool, lines: int | None, attempt: int | None) -> None:
    """Show what a program has written. Logs are kept by attempt, on the host where it ran."""
    job = session.store.views.get(JobId(job_id))
    if job.kind != COMMAND:
        raise InvalidInput(f"job {job_id} is no program, and has no log", hint="See holdfast show.")
    found = _attempt(session, job, attempt, patient=follow)
    path = _path(session, job, found.token)
    if not path.exists():
        host = f" by {found.worker}" if found.worker else ""
        raise NotFound(f"there is no log {path}", hint=f"It was run{host}: look on that host.")
    text = path.read_bytes().decode(errors="replace")
    if lines is not None:
        text = "".join(text.splitlines(keepends=True)[-lines:] if lines else [])
    session.output.value(LogText(job.id, found.number, str(path), text), text.splitlines)
    if follow and session.output.format == "text":
        begun = path.stat().st_size
        for data in _followed(path, begin=begun, finished=lambda: _is_over(session, job.id)):
            session.output.lines(data.decode(errors="replace").splitlines())


def _attempt(session: Session, job: Job, number: int | None, *, patient: bool) -> Attempt:
    """The nth run of a program, or its last; who is *patient* waits for the first."""
    pause = threading.Event()
    while not (attempts := session.store.views.attempts(job.id)):
        if not patient or session.store.views.get(job.id).state.finished:
            raise NotFound(f"job {job.id} has not begun", hint="Follow it with -f, or see holdfast why.")
        pause.wait(LOOK_EVERY)
    if number is not None and number > len(attempts):
        raise NotFound(f"job {job.id} has run {len(attempts)} times", hint="See holdfast show.")
    return attempts[-1 if number is None else number - 1]


def _path(session: Session, job: Job, token: int) -> Path:
    return log_path(log_folder(session.url), job.id, token, load_command(job.payload).parameters)


def _is_over(session: Session, job_id: JobId) -> bool:
    return session.store.views.get(job_id).state is not State.RUNNING


def _followed(path: Path, *, begin: int, finished: Callable[[], bool]) -> Iterator[bytes]:
    """What comes to a log, until the program has ended."""
    pause, place = threading.Event(), begin
    while True:
        over = finished()
        data, place = _read(path, place)
        if data:
            yield data
        elif over:
            return
        else:
            pause.wait(LOOK_EVERY)


def _read(path: Path, place: int) -> tuple[bytes, int]:
    """What a file holds from a place on, and where that ends; a file that was cut is read from its beginning."""
    with path.open("rb") as file:
        begin = place if place <= file.seek(0, 2) else 0
        file.seek(begin)
        data = file.read(CHUNK)
        return data, begin + len(data)
