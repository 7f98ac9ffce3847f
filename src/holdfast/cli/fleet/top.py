"""``top``: a live view of the fleet in the terminal."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NoReturn

import click

from holdfast.admin.views.fleet import TERMINAL_CAP
from holdfast.admin.views.overview import Overview, overview
from holdfast.cli.command import Items, command
from holdfast.cli.fleet.queues import QUEUES, stop_lines
from holdfast.cli.session import CliSession
from holdfast.cli.text import age, cut, progress_text, table
from holdfast.domain.access.masking import mask_store_url
from holdfast.domain.jobs.job import State
from holdfast.output.printer import Line

#: An empty read: the terminal is gone.
LEAVING_KEYS = (b"q", b"Q", b"")
JOB_HEADS = ("ID", "KIND", "QUEUE", "SINCE", "WORKER", "PROGRESS")


@command("top", answers=Items("overviews", Overview))
@click.option(
    "--every", default=1.0, show_default=True, type=click.FloatRange(0.1, 3600), help="Seconds between updates."
)
@click.option(
    "-n",
    "--updates",
    "count",
    type=click.IntRange(1),
    help="Exit after N updates. [never; 1 if the output is not a terminal]",
)
def top(session: CliSession, *, every: float, count: int | None) -> None:
    """Watch states, queues, workers and running jobs. Leave with q or Ctrl-C.

    Examples:
      holdfast top
      holdfast top -n 60 --every 60 -o ndjson >> load.ndjson
    """
    on_screen = session.output.format == "text" and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    if on_screen and count is None:
        _watch(session, every)
        return
    overviews = _overviews(session, every, count or 1)
    session.output.items(
        "overviews", overviews, lambda views: (line for view in views for line in _lines(view, session.url))
    )


def _overviews(session: CliSession, interval_s: float, count: int) -> Iterator[Overview]:
    pause = threading.Event()
    for number in range(count):
        if number:
            pause.wait(interval_s)
        yield overview(session.store, cap=TERMINAL_CAP)


def _watch(session: CliSession, interval_s: float) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(no_color=not session.output.color, highlight=False)

    def screen() -> Any:
        lines = _lines(overview(session.store, cap=TERMINAL_CAP), session.url)
        painted = [line.painted() if session.output.color else line.text for line in lines]
        return Text.from_ansi("\n".join(painted[: max(1, console.height - 1)]), no_wrap=True, overflow="crop")

    with suppress(KeyboardInterrupt), _key_reader() as read_key, ExitStack() as stack:
        live = Live(screen(), console=console, screen=True, auto_refresh=False)
        stack.callback(_undisturbed(live.stop))
        _undisturbed(live.start)()
        live.refresh()
        while read_key(interval_s) not in LEAVING_KEYS:
            live.update(screen(), refresh=True)


def _undisturbed(change: Callable[[], None]) -> Callable[[], None]:
    """The same change of the terminal, as a whole: signals wait for its end."""

    def whole() -> None:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        try:
            change()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    return whole


@contextmanager
def _key_reader() -> Iterator[Callable[[float], bytes | None]]:
    """A function that waits some seconds for a key, without Enter; None: no key came. Empty: the terminal is gone.

    The terminal is restored however the command ends, also by SIGTERM. Without a terminal as input no key ever comes.
    """
    keyboard = [sys.stdin.fileno()] if sys.stdin.isatty() else []

    def read_key(seconds: float) -> bytes | None:
        ready, _, _ = select.select(keyboard, [], [], seconds)
        return os.read(ready[0], 1) if ready else None

    if not keyboard:
        yield read_key
        return
    attributes = termios.tcgetattr(keyboard[0])
    handler = signal.signal(signal.SIGTERM, _exit_on_signal)
    try:
        tty.setcbreak(keyboard[0])
        yield read_key
    finally:
        termios.tcsetattr(keyboard[0], termios.TCSADRAIN, attributes)
        signal.signal(signal.SIGTERM, handler)


def _exit_on_signal(number: int, _frame: object) -> NoReturn:
    sys.exit(128 + number)


def _lines(view: Overview, url: str) -> Iterator[Line]:
    yield cut(f"store {mask_store_url(url)}")
    yield from stop_lines(view.stopped)
    yield Line("")
    totals = [f"{each.count:,}{'+' if each.capped else ''}" for each in (view.counts[state] for state in State)]
    yield from table([state.upper() for state in State], [totals])
    yield Line("")
    yield from QUEUES.lines(view.queues)
    yield Line("")
    workers = ((each.id, each.host, each.heartbeat, age(each.seen_at), ",".join(each.queues)) for each in view.workers)
    yield from table(("WORKER", "HOST", "HEARTBEAT", "SEEN", "QUEUES"), workers)
    yield Line("")
    jobs = (
        [str(job.id), job.kind, job.queue, age(job.started_at or job.claimed_at), job.worker or "", progress]
        for job in view.running
        for progress in [job.note or progress_text(job)]
    )
    yield from table(JOB_HEADS, jobs)
