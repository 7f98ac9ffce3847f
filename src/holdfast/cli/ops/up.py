"""``up``, ``down`` and ``status``: everything in one process, in the foreground or behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import click
import msgspec
from msgspec import Struct

from holdfast.cli.app_loader import load_app
from holdfast.cli.command import Items, command
from holdfast.cli.ops.pid_file import PidFile, UpStatus, all_up
from holdfast.cli.ops.web import server_of
from holdfast.cli.ops.worker import say, serve, working, working_on
from holdfast.cli.session import Session
from holdfast.cli.text import age, table
from holdfast.domain.access.masking import mask_store_url
from holdfast.domain.durations import as_duration
from holdfast.errors import Conflict, NotFound, NotStarted, WaitTimeout
from holdfast.output import log_format
from holdfast.output.printer import Line
from holdfast.worker.worker import Worker

#: How often a process is asked for, in seconds, and how long it may take to come up.
LOOK_EVERY, COME_UP = 0.05, 30.0
#: Lines of its log that are shown when it does not come up.
TAIL = 5


class Down(Struct, frozen=True):
    """What was stopped."""

    pid: int
    url: str


@command("up", answers=UpStatus)
@working
@click.option("--web", "with_web", is_flag=True, help="Serve the dashboard and the API too, where web says.")
@click.option("--detach", is_flag=True, help="Run behind, with a log; come back when it is up.")
def up(session: Session, *, detach: bool, with_web: bool, **flags: Any) -> None:
    """Run everything for a store in one process: a worker for the jobs of your application, which plans as well.

    One per store: a second one is refused (exit 9). Leave with Ctrl-C, or with holdfast down.

    \b
    Examples:
      holdfast up --app shop.jobs:app
      holdfast up --app shop.jobs:app --web --detach
    """
    asked = {name: session.setting(name, flag) for name, flag in flags.items()}
    app = load_app(asked["app"], url=session.asked_url)
    standing = PidFile.of(app.url)
    if detach:
        found = _detach(standing, session, flags, ["--web"] if with_web else [])
        session.output.value(found, lambda: [f"up: pid {found.pid}, log {found.log}"])
        return
    session.output.keep_stdout()
    log_format.configure(style=asked["log_format"], level=asked["log_level"])
    standing.take()
    if with_web:
        server = server_of(session, app, session.setting("web"))
        server.start()
        say(f"the dashboard is at {server.url}")
    say("up; leave with Ctrl-C, look with holdfast top")
    log = str(standing.log) if _is_log(standing) else None
    serve(
        session,
        app,
        working_on(session, app, asked),
        asked,
        told=lambda worker: standing.tell(_told(worker, app.url, log)),
    )


def _told(worker: Worker, url: str, log: str | None) -> UpStatus:
    return UpStatus(
        pid=os.getpid(),
        url=mask_store_url(url),
        worker=worker.id,
        queues=[*worker.queues],
        kinds=[*worker.kinds],
        started_at=datetime.now(UTC),
        log=log,
    )


def _is_log(standing: PidFile) -> bool:
    """Whether stderr goes to the log of a detached process."""
    try:
        return os.path.samestat(os.fstat(2), standing.log.stat())
    except OSError:
        return False


def _detach(standing: PidFile, session: Session, flags: dict[str, Any], more: list[str]) -> UpStatus:
    if (found := standing.read()) is not None:
        raise Conflict(f"Holdfast is up on this store already, with pid {found.pid}", hint="See holdfast status.")
    standing.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(standing.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    begun = os.fstat(descriptor).st_size
    line = [sys.executable, "-m", "holdfast", "up", "-o", "json", *words(flags), *more, *shared_words(session)]
    answer = tempfile.TemporaryFile()  # noqa: SIM115 - the process that inherits it may outlive us
    process = subprocess.Popen(  # noqa: S603 - this very program
        line, stdin=subprocess.DEVNULL, stdout=answer, stderr=descriptor, start_new_session=True
    )
    os.close(descriptor)
    pause, began = threading.Event(), time.monotonic()
    while process.poll() is None and time.monotonic() - began < COME_UP:
        found = standing.read()
        if found is not None and found.pid == process.pid:
            return found
        pause.wait(LOOK_EVERY)
    answer.seek(0)
    said = standing.log.read_bytes()[begun:].decode(errors="replace").splitlines()[-TAIL:]
    raise _why_not(answer.read(), said, process.returncode, standing)


def _why_not(answer: bytes, said: list[str], code: int | None, standing: PidFile) -> NotStarted:
    """What the process itself says, with its own code; else the end of its log."""
    try:
        told = msgspec.json.decode(answer)["error"]
    except (msgspec.DecodeError, KeyError):
        told = None
    if told is None:
        return NotStarted(f"it did not come up: {'; '.join(said)}", hint=f"See {standing.log}.")
    error = NotStarted(f"it did not come up: {told['message']}", hint=told["hint"])
    error.code, error.exit_code, error.retryable = told["code"], code or 1, told["retryable"]  # type: ignore[misc]
    return error


def shared_words(session: Session) -> Iterator[str]:
    """The store that the line names, for another line."""
    return words({name: session.flags[name] for name in ("url", "config") if name in session.flags})


def words(flags: dict[str, Any]) -> Iterator[str]:
    """The options as they stand on a line."""
    for name, value in flags.items():
        option = "--queue" if name == "queues" else f"--{name.replace('_', '-')}"
        for one in value if isinstance(value, tuple) else [value]:
            if one is not None:
                yield from (option, str(one))


@command("down", answers=Items("stopped", Down))
@click.option("--all", "everything", is_flag=True, help="Whatever of yours is up, on every store.")
@click.option("--now", is_flag=True, help="Do not wait for jobs: they are given back, and run again later.")
@click.option(
    "--timeout", default="60s", show_default=True, metavar="TIME", help="Give up after so long, with exit 10."
)
def down(session: Session, *, everything: bool, now: bool, timeout: str) -> None:
    """Stop what holdfast up has started, and wait until it has ended. Nothing up is no failure."""
    found = list(all_up(None if everything else session.named_url))
    if len(found) > 1 and not everything:
        stores = ", ".join(each.url for _, each in found)
        raise Conflict(f"more than one is up: {stores}", hint="Name the store with --url, or take --all.")
    for _, each in found:
        _terminate(each)
    _wait_until_down(found, as_duration(timeout).total_seconds(), again=now)
    stopped = [Down(each.pid, each.url) for _, each in found]
    session.output.items(
        "stopped", stopped, lambda rows: [f"down: pid {row.pid}" for row in rows] or ["nothing was up"]
    )


def _wait_until_down(found: list[tuple[PidFile, UpStatus]], seconds: float, *, again: bool) -> None:
    pause, began = threading.Event(), time.monotonic()
    while left := [each for standing, each in found if standing.read() == each]:
        if time.monotonic() - began > seconds:
            raise WaitTimeout(f"pid {left[0].pid} has not ended in time", hint="holdfast down --now waits for no job.")
        pause.wait(LOOK_EVERY)
        for each in left if again else []:
            _terminate(each)


def _terminate(up: UpStatus) -> None:
    with suppress(ProcessLookupError):
        os.kill(up.pid, signal.SIGTERM)


@command("status", answers=Items("up", UpStatus))
@click.option("--all", "everything", is_flag=True, help="On every store, though one is named.")
def status(session: Session, *, everything: bool) -> None:
    """Show what is up: on the store that --url, HOLDFAST_URL or a file names, or yours on every store.

    Exit 3 when nothing is; --quiet prints pids.
    """
    found = [each for _, each in all_up(None if everything else session.named_url)]
    if not found:
        raise NotFound("nothing is up", hint="Start it with holdfast up; workers of other kinds: holdfast workers.")
    session.output.items("up", found, _pids if session.output.quiet else _table)


def _pids(found: Iterable[UpStatus]) -> Iterator[str]:
    return (str(each.pid) for each in found)


def _table(found: Iterable[UpStatus]) -> Iterator[Line]:
    rows = ([str(each.pid), age(each.started_at), each.url, ",".join(each.queues), each.log or ""] for each in found)
    return table(("PID", "SINCE", "STORE", "QUEUES", "LOG"), rows)
