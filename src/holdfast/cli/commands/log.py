"""``log``: show the output of commands."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

import click
from msgspec import Struct

from holdfast.admin.views.logs import JobLogs
from holdfast.cli.command import command
from holdfast.cli.session import CliSession
from holdfast.cli.text import parse_when
from holdfast.domain.commands.log_stream import TerminalFilter
from holdfast.domain.jobs.history import Attempt
from holdfast.domain.jobs.job import JobId
from holdfast.errors import InvalidInput, NotFound
from holdfast.output.printer import Format
from holdfast.settings import log_folder

POLL_INTERVAL_S = 0.1
READ_BYTES = 64 * 1024


class LogAnswer(Struct, frozen=True):
    """The output of one attempt of a command."""

    id: JobId
    attempt: int
    path: str
    text: str


class LogOptions(Struct, frozen=True):
    """Which part of the logs to show."""

    follow: bool
    lines: int | None
    attempt: int | None
    since: datetime | None


@command("log", answers=LogAnswer)
@click.argument("job_ids", metavar="ID...", nargs=-1, required=True, type=click.IntRange(0))
@click.option("-f", "--follow", is_flag=True, help="Follow until the jobs have finished, over all attempts.")
@click.option("-n", "--lines", type=click.IntRange(0), help="Show only the last N lines. [all]")
@click.option("--attempt", type=click.IntRange(1), help="Attempt number. [the last]")
@click.option("--since", metavar="WHEN", help="Attempts that ran since then: 6h, or a time (RFC 3339).")
def log(
    session: CliSession,
    *,
    job_ids: tuple[int, ...],
    follow: bool,
    lines: int | None,
    attempt: int | None,
    since: str | None,
) -> None:
    """Show the output of commands. Each attempt has a log, on the host where it ran.

    A pipe gets the bytes that were written. A terminal gets text, colours and carriage returns; other control
    characters are escaped. Secrets in the job's variables are masked in both.

    Examples:
      holdfast log -f 17
      holdfast log 17 --attempt 1 > first.log
      holdfast log --since 1h 17 18 19
    """
    if attempt is not None and since is not None:
        raise InvalidInput("--attempt and --since cannot be combined")
    options = LogOptions(follow, lines, attempt, None if since is None else parse_when(since))
    logs = [LogStream(logs_of(session, job_id), options) for job_id in dict.fromkeys(job_ids)]
    for each in logs:
        each.logs.refuse_handler()
    if session.output.format is Format.TEXT:
        _print(session, logs)
    else:
        _answer(session, logs)


class LogStream:
    """The output of one job, attempt by attempt."""

    def __init__(self, logs: JobLogs, options: LogOptions) -> None:
        self.logs, self.job = logs, logs.job
        self._options = options
        #: Whether the last attempt has written no output.
        self.silent = False

    def output(self) -> Iterator[tuple[Attempt, bytes] | None]:
        """Yield the output of the selected attempts; None while there is nothing new to follow."""
        shown, missing = False, None
        for attempt in self._selected():
            if attempt is None:
                yield None
                continue
            path, secrets, exists = self.logs.path(attempt.token), self.logs.secret_filter(), False
            for data in self._read(path, attempt):
                exists = True
                yield (attempt, secrets.feed(data)) if data else None
            self.silent = not exists and not path.exists()
            if not self.silent or self.logs.ran_here(attempt.token):
                shown = True
                yield attempt, secrets.feed(b"", last=True)
            else:
                missing = f"the log {path} is missing", f"Worker {attempt.worker} ran it: search for it on its host."
        if missing and not shown:
            raise NotFound(missing[0], hint=missing[1])

    def _selected(self) -> Iterator[Attempt | None]:
        """The attempts to show, oldest first; None while the next one has not begun."""
        last = 0
        while True:
            finished = self.logs.is_finished()  # before the attempts: none is added after it
            attempts = self.logs.attempts()
            later = [each for each in self._chosen(attempts, begun=last > 0) if each.number > last]
            for attempt in later:
                last = attempt.number
                yield attempt
            if finished or not self._options.follow or (last and self._options.attempt):
                break
            if not later:
                yield None
        if not attempts:
            raise NotFound(f"job {self.job.id} has not begun", hint="Follow it with -f, or see holdfast why.")

    def _chosen(self, attempts: list[Attempt], *, begun: bool) -> list[Attempt]:
        options = self._options
        if options.attempt is not None:
            if attempts and options.attempt > len(attempts) and not options.follow:
                raise NotFound(f"job {self.job.id} has run {len(attempts)} times", hint="See holdfast show.")
            return attempts[options.attempt - 1 : options.attempt]
        if options.since is not None:
            since = options.since
            return [each for each in attempts if each.finished_at is None or each.finished_at >= since]
        return attempts if begun else attempts[-1:]

    def _read(self, path: Path, attempt: Attempt) -> Iterator[bytes]:
        """Yield the output of an attempt; nothing while it runs and writes nothing. A truncated file starts over."""
        position: int | None = None
        while True:
            # The state before the read, so that no output between the two is lost.
            runs = self._options.follow and self._runs(attempt)
            while True:
                data, position = _read_from(path, position, self._options.lines)
                if not data:
                    break
                yield data
            if not runs:
                return
            yield b""

    def _runs(self, attempt: Attempt) -> bool:
        attempts = self.logs.attempts()
        return any(each.number == attempt.number and each.finished_at is None for each in attempts)


def logs_of(session: CliSession, job_id: int) -> JobLogs:
    """The logs of one job on this host."""
    return JobLogs(session.store, log_folder(session.url), job_id)


def _read_from(path: Path, position: int | None, lines: int | None) -> tuple[bytes, int | None]:
    """Read a piece and return it with the next position. None is the beginning: that of the last *lines*."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return b"", None
    with file:
        size = file.seek(0, 2)
        begin = _last_lines(file, size, lines) if position is None else position if position <= size else 0
        file.seek(begin)
        data = file.read(READ_BYTES)
        return data, begin + len(data)


def _last_lines(file: BinaryIO, size: int, lines: int | None) -> int:
    """The position at which the last lines begin. Only a newline ends a line: programs draw bars with ``\\r``."""
    if lines is None or lines == 0:
        return size if lines == 0 else 0
    end, count = size, 0
    while end > 0:
        begin = max(0, end - READ_BYTES)
        file.seek(begin)
        block = file.read(end - begin)
        cut = len(block) - (end == size and block.endswith(b"\n"))
        while (cut := block.rfind(b"\n", 0, cut)) >= 0:
            count += 1
            if count == lines:
                return begin + cut + 1
        end = begin
    return 0


def _print(session: CliSession, logs: list[LogStream]) -> None:
    """Print logs one after the other, or as they grow; with several, a line names the job whose output follows."""
    pause, last = threading.Event(), None
    streams = {log: (log.output(), _writer(session)) for log in logs}
    while streams:
        idle = True
        for log, (stream, write) in list(streams.items()):
            for piece in stream:
                if piece is None:
                    break
                idle = False
                attempt, data = piece
                if data and last != (log, attempt):
                    _announce(session, log, attempt, last, several=len(logs) > 1)
                    last = (log, attempt)
                write(data, False)
            else:
                write(b"", True)
                if log.silent:
                    session.output.note(f"job {log.job.id} has written no output")
                del streams[log]
        if streams and idle:
            pause.wait(POLL_INTERVAL_S)


def _announce(
    session: CliSession, log: LogStream, attempt: Attempt, last: tuple[LogStream, Attempt] | None, *, several: bool
) -> None:
    if several and (last is None or last[0] is not log):
        session.output.lines([*([""] if last else []), f"==> job {log.job.id}: {log.job.label} <=="])
    if last is not None and last[0] is log:
        session.output.note(f"job {log.job.id}, attempt {attempt.number}:")


def _writer(session: CliSession) -> Callable[[bytes, bool], None]:
    """Writes the output of one job: bytes as they are, or made safe for a terminal."""
    output = session.output
    if not sys.stdout.isatty():
        return lambda data, _: output.raw(data)
    safe = TerminalFilter(color=output.color)
    return lambda data, last: output.raw(safe.feed(data, last=last).encode())


def _answer(session: CliSession, logs: list[LogStream]) -> None:
    answers: list[LogAnswer] = []
    for log in logs:
        texts: dict[Attempt, bytes] = {}
        for piece in log.output():
            if piece is None:
                threading.Event().wait(POLL_INTERVAL_S)
            else:
                texts[piece[0]] = texts.get(piece[0], b"") + piece[1]
        for attempt, data in texts.items():
            path = str(log.logs.path(attempt.token))
            answers.append(LogAnswer(log.job.id, attempt.number, path, data.decode(errors="replace")))
    if len(answers) == 1:
        session.output.value(answers[0], lambda: ())
    elif session.output.format is Format.NDJSON:
        session.output.items("logs", answers, lambda _: ())
    else:
        hint = "Name one job and its --attempt, or write -o ndjson."
        raise InvalidInput(f"a JSON document has one log, and {len(answers)} match", hint=hint)
