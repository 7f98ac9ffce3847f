"""``up``, ``down`` and ``status``: all services of a store in one process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from typing import Any

import click
import msgspec
from msgspec import Struct

from holdfast.cli.command import Items, command
from holdfast.cli.ops.pid_file import PidFile, UpStatus, all_up, elsewhere
from holdfast.cli.ops.web import build_server, print_link
from holdfast.cli.ops.worker import build_worker, print_notice, run_worker, start_log, worker_options
from holdfast.cli.session import CliSession, load_app
from holdfast.domain.access.masking import mask_store_url
from holdfast.domain.quantities import as_duration
from holdfast.errors import Conflict, NotStarted, WaitTimeout
from holdfast.worker.worker import Worker

POLL_INTERVAL_S = 0.05
START_TIMEOUT_S = 30.0
#: Number of log lines in the error when a detached process does not start.
SHOWN_LOG_LINES = 5


class DownAnswer(Struct, frozen=True):
    """A process that ``down`` stopped."""

    pid: int
    url: str


@command("up", answers=UpStatus)
@worker_options
@click.option(
    "--web", "with_web", is_flag=True, help="Serve the dashboard and the API too, at the address of the setting web."
)
@click.option("--detach", is_flag=True, help="Run in the background, with a log. Returns when it is up.")
def up(session: CliSession, *, detach: bool, with_web: bool, **flags: Any) -> None:
    """Run worker, scheduler and, with --web, the dashboard in one process.

    A second one on the same store is refused (exit 9). Stop it with Ctrl-C, or with holdfast down.

    Examples:
      holdfast up --app shop.jobs:app
      holdfast up --app shop.jobs:app --web --detach
    """
    app = load_app(session.setting("app", flags["app"]), url=session.url_flag)
    pid_file = PidFile.of(app.url)
    if detach:
        started = _detach(pid_file, session, flags, with_web=with_web)
        dashboard = f", dashboard {started.web}" if started.web else ""
        text = f"up: pid {started.pid}, store {started.url}{dashboard}, log {started.log}"
        session.output.value(started, lambda: [text])
        return
    settings = start_log(session, flags)
    pid_file.lock()
    web = None
    if with_web:
        server = build_server(session, app, session.setting("web"))
        server.start()
        web = server.url
        print_notice(f"the dashboard is at {web}")
        print_link(session, server)
    worker = build_worker(session, app, settings)

    def on_start() -> None:
        pid_file.write(_status(pid_file, worker, app.url, web))
        print_notice("up; stop it with Ctrl-C, watch it with holdfast top")

    run_worker(session, app, worker, settings, on_start=on_start)


def _status(pid_file: PidFile, worker: Worker, url: str, web: str | None) -> UpStatus:
    try:
        detached = os.path.samestat(os.fstat(2), pid_file.log.stat())
    except OSError:
        detached = False
    return UpStatus(
        pid=os.getpid(),
        url=mask_store_url(url),
        worker=worker.id,
        queues=[*worker.queues],
        kinds=[*worker.kinds],
        started_at=datetime.now(UTC),
        log=str(pid_file.log) if detached else None,
        web=web,
    )


def _detach(pid_file: PidFile, session: CliSession, flags: dict[str, Any], *, with_web: bool) -> UpStatus:
    """Start ``up`` in a process of its own and wait until it has written its status."""
    if (running := pid_file.read()) is not None:
        raise running.conflict()
    pid_file.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(pid_file.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    log_start = os.fstat(descriptor).st_size
    line = up_command(session, flags, "-o", "json", *(["--web"] if with_web else []))
    answer = tempfile.TemporaryFile()  # noqa: SIM115 - the process that inherits it may outlive us
    process = subprocess.Popen(  # noqa: S603 - starts Holdfast itself
        line, stdin=subprocess.DEVNULL, stdout=answer, stderr=descriptor, start_new_session=True
    )
    os.close(descriptor)
    pause, began = threading.Event(), time.monotonic()
    while process.poll() is None and time.monotonic() - began < START_TIMEOUT_S:
        running = pid_file.read()
        if running is not None and running.pid == process.pid:
            return running
        pause.wait(POLL_INTERVAL_S)
    answer.seek(0)
    log_lines = pid_file.log.read_bytes()[log_start:].decode(errors="replace").splitlines()[-SHOWN_LOG_LINES:]
    raise _start_error(answer.read(), log_lines, process.returncode, pid_file)


def _start_error(answer: bytes, log_lines: list[str], code: int | None, pid_file: PidFile) -> NotStarted:
    """The error in the process's own answer, with its codes; without an answer, the end of its log."""
    try:
        failure = msgspec.json.decode(answer)["error"]
    except (msgspec.DecodeError, KeyError):
        failure = None
    if failure is None:
        return NotStarted(f"it did not start: {'; '.join(log_lines)}", hint=f"See {pid_file.log}.")
    error = NotStarted(f"it did not start: {failure['message']}", hint=failure["hint"])
    error.code, error.exit_code, error.retryable = failure["code"], code or 1, failure["retryable"]  # type: ignore[misc]
    return error


def up_command(session: CliSession, flags: dict[str, Any], *more: str) -> list[str]:
    """The command line of ``up`` with these flags, on the store that this command line selects."""
    line = [sys.executable, "-m", "holdfast", "up", *more]
    store = {name: session.flags[name] for name in ("url", "config") if name in session.flags}
    for name, value in (flags | store).items():
        option = {"queues": "--queue", "kinds": "--kind"}.get(name, f"--{name.replace('_', '-')}")
        for each in value if isinstance(value, tuple) else [value]:
            line += [] if each is None else [option, str(each)]
    return line


@command("down", answers=Items("stopped", DownAnswer))
@click.option("--all", "everything", is_flag=True, help="Stop all your processes, on every store.")
@click.option("--now", is_flag=True, help="Do not wait for running jobs. They are released and run again later.")
@click.option("--timeout", default="60s", show_default=True, metavar="TIME", help="Maximum wait; exit 10 after it.")
def down(session: CliSession, *, everything: bool, now: bool, timeout: str) -> None:
    """Stop the processes that holdfast up started, and wait until they have exited.

    Exit 0 if nothing is up. To stop a worker on another host, use holdfast ask; to keep workers and start no more jobs,
    holdfast drain.

    Examples:
      holdfast down
      holdfast down --all --now
    """
    running = list(all_up(None if everything else session.named_url))
    if len(running) > 1 and not everything:
        stores = ", ".join(status.url for _, status in running)
        raise Conflict(f"more than one is up: {stores}", hint="Name the store with --url, or take --all.")
    for pid_file, _ in running:
        pid_file.terminate()
    _wait_until_down(running, as_duration(timeout).total_seconds(), again=now)
    stopped = [DownAnswer(status.pid, status.url) for _, status in running]
    lines = [f"down: pid {answer.pid}" for answer in stopped] or [f"nothing was up{elsewhere(session)}"]
    session.output.items("stopped", stopped, lambda _: lines)


def _wait_until_down(running: list[tuple[PidFile, UpStatus]], timeout_s: float, *, again: bool) -> None:
    """Wait until the processes have exited; with *again*, keep sending the signal that makes them leave at once."""
    pause, began = threading.Event(), time.monotonic()
    while left := [(pid_file, status) for pid_file, status in running if pid_file.read() == status]:
        if time.monotonic() - began > timeout_s:
            raise WaitTimeout(
                f"pid {left[0][1].pid} did not exit in time", hint="holdfast down --now does not wait for jobs."
            )
        pause.wait(POLL_INTERVAL_S)
        for pid_file, _ in left if again else []:
            pid_file.terminate()
