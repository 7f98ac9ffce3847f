"""``run``: run a command here and now, as a job."""

from __future__ import annotations

import os
import secrets
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec import Struct

from holdfast.admin.actions.actions import Actions
from holdfast.cli.command import command, with_options
from holdfast.cli.commands.command_words import WordsCommand, argv_argument, command_words, shell_option
from holdfast.cli.commands.log import logs_of
from holdfast.cli.commands.options import OPTIONS, QUEUE_OPTIONS, JobBuilder
from holdfast.cli.jobs.wait import EXIT_CODES
from holdfast.cli.ops.worker import SECOND_SIGNAL_EXIT, print_notice
from holdfast.cli.session import CliSession
from holdfast.client.fleet.workers import WorkerArguments
from holdfast.domain.access.audit import Via
from holdfast.domain.commands.command import load_command
from holdfast.domain.fleet.queue import PRIVATE_PREFIX
from holdfast.domain.jobs.job import EndReason, Job, JobId, State
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import CommandFailed, ConfigurationError, HoldfastError, JobCancelled
from holdfast.output.envelope import failure_of
from holdfast.output.printer import Format
from holdfast.worker.commands.identity import CHILD_VARIABLE
from holdfast.worker.executors.channel import CANNOT_START
from holdfast.worker.exit import exit_process
from holdfast.worker.stop_signals import Signals
from holdfast.worker.worker import Worker

POLL_INTERVAL_S = 0.1
#: Longest wait for the end of a cancelled command besides its stop delay: a heartbeat brings the signal.
CANCEL_TIMEOUT_S = 10.0
#: Exit codes as shells, timeout(1) and env(1) have them: of a signal (plus its number), and of a timeout.
SIGNAL_EXIT, TIMEOUT_EXIT = 128, 124


class CommandRunAnswer(Struct, frozen=True):
    """How a command ended, and where its log is."""

    id: JobId
    state: State
    reason: str | None
    exit_code: int | None
    log: str


@command("run", answers=CommandRunAnswer, changes=True, cls=WordsCommand)
@argv_argument
@shell_option
@with_options(*(option for option in OPTIONS if option not in QUEUE_OPTIONS))
def run(session: CliSession, *, argv: tuple[str, ...], shell: bool | None, **options: Any) -> int:
    """Run a command here and now, recorded as a job, with its output on this terminal.

    To run it later or on a worker, use holdfast add. Ctrl-C cancels it. It reads your stdin; its stdout and stderr both
    come on stdout. With --retry the last attempt counts, and later attempts read the rest of stdin.

    Exit codes:
      that of your command; 128 + N for signal N
      124  timeout
      127  it cannot be started
      12   cancelled
      11   the store is stopped

    Examples:
      holdfast run -- make test
      holdfast run --memory 2G --timeout 1h -- python train.py
      gzip -dc data.gz | holdfast run sort -u
    """
    if os.environ.get(CHILD_VARIABLE):
        raise ConfigurationError("a job cannot call holdfast run", hint="Add a new job instead: holdfast add.")
    session.store.stop_switch.check()
    options |= {"priority": 0, "delay": None, "dependencies": (), "hold": False, "pause_queue": False}
    options["queue"] = f"{PRIVATE_PREFIX}run-{secrets.token_hex(8)}"  # a queue that no other worker serves
    request = JobBuilder(session, options).build(command_words(argv, shell=shell))
    app = session.app
    actions = Actions(app.store, actor=session.actor, via=Via.CLI)
    stopped = threading.Event()
    echo = _echo(stopped) if session.output.format == "text" else None
    stop_delay_s = load_command(request.payload).stop_delay_s
    quick: WorkerArguments = {"grace": max(2.0, stop_delay_s), "poll": "100ms", "heartbeat": "1s"}
    quick |= {"queues": [request.queue], "slots": 1, "plans": False, "echo": echo, "stdin": _stdin()}
    worker = app.worker(commands=True, **quick)  # first: if the store refuses workers, no job may be left behind
    job_id = actions.jobs.enqueue_all("run", [request], note=request.label)[0].id
    Signals(stopped.set, lambda: _leave(worker)).start()
    worker.start()
    _wait_until_finished(session, job_id, worker, stopped, CANCEL_TIMEOUT_S + stop_delay_s)
    return _print_result(session, job_id)


def _wait_until_finished(
    session: CliSession, job_id: JobId, worker: Worker, stopped: threading.Event, timeout: float
) -> None:
    """Wait for the command; cancel it on the way out, while its worker can still end it."""
    views = session.app.views
    try:
        while worker.working and not views.state(job_id).finished and not stopped.wait(POLL_INTERVAL_S):
            pass
    finally:  # also if the store fails: no other worker may run this job
        with suppress(HoldfastError):
            session.app.control.cancel(Selector(ids=(job_id,)), actor=session.actor)
        pause, until = threading.Event(), time.monotonic() + timeout
        while worker.working and worker.running and time.monotonic() < until:
            pause.wait(POLL_INTERVAL_S)
        worker.stop()
        worker.join()


def _leave(worker: Worker) -> None:
    """Handle the second signal: kill the command and exit at once."""
    worker.abandon()
    exit_process(SECOND_SIGNAL_EXIT, "exiting at once; the command was killed", report=print_notice)


def _echo(stopped: threading.Event) -> Callable[[bytes], None]:
    """A function that copies the command's output to stdout; a closed pipe stops the command."""

    def echo(data: bytes) -> None:
        try:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except OSError:
            stopped.set()

    return echo


def _print_result(session: CliSession, job_id: JobId) -> int:
    logs = logs_of(session, job_id)
    job, last = logs.job, next(reversed(logs.attempts()), None)
    code = 0 if job.state is State.DONE else None if last is None else last.exit_code
    path = logs.path(1 if last is None else last.token)
    answer = CommandRunAnswer(job.id, job.state, job.reason, code, str(path))
    if job.state is State.DONE or session.output.format is Format.TEXT:  # a terminal shows what the command printed
        session.output.value(answer, lambda: ())
    else:
        failure = JobCancelled if job.state is State.CANCELLED else CommandFailed
        hint = f"Its output: holdfast log {job.id}."
        session.output.error(failure_of(failure(f"job {job.id} is {job.state}: {job.reason}", hint=hint)), data=answer)
    return _exit_code(job, code)


def _exit_code(job: Job, code: int | None) -> int:
    """The exit code of the program, as a shell would report it; that of the job if the program has none."""
    if job.state is not State.DEAD:
        return EXIT_CODES.get(job.state, 1)
    if code is not None:
        return code if code >= 0 else SIGNAL_EXIT - code
    without_code: dict[str | None, int] = {EndReason.RUN_TIMEOUT: TIMEOUT_EXIT, EndReason.CANNOT_START: CANNOT_START}
    return without_code.get(job.reason, 1)


def _stdin() -> int | None:
    """The stdin that the program reads; None for a terminal whose input another process group has."""
    try:
        descriptor = sys.stdin.fileno()
        in_background = os.isatty(descriptor) and os.tcgetpgrp(descriptor) != os.getpgrp()
    except (OSError, ValueError):
        return None
    return None if in_background else descriptor
