"""``top``: a live view of the fleet in the terminal."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import click

from holdfast.admin.views.fleet import TERMINAL_CAP
from holdfast.admin.views.masking import Masks
from holdfast.admin.views.overview import Overview, overview
from holdfast.cli.command import Items, command
from holdfast.cli.fleet.queues import queue_table, stop_lines
from holdfast.cli.session import CliSession
from holdfast.cli.text import age, cut, progress_text, table
from holdfast.domain.access.masking import mask_store_url
from holdfast.domain.jobs.job import State
from holdfast.output.printer import Line

JOB_HEADS = ("ID", "KIND", "QUEUE", "SINCE", "WORKER", "PROGRESS")


@command("top", answers=Items("overviews", Overview))
@click.option(
    "--every", default=1.0, show_default=True, type=click.FloatRange(0.1, 3600), help="Seconds between looks."
)
@click.option(
    "-n", "--looks", "count", type=click.IntRange(1), help="End after so many looks; without a terminal after one."
)
def top(session: CliSession, *, every: float, count: int | None) -> None:
    """Watch states, queues, workers and running jobs. Leave with Ctrl-C.

    \b
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
    pause, masks = threading.Event(), Masks(session.store)
    for number in range(count):
        if number:
            pause.wait(interval_s)
        yield overview(session.store, masks, cap=TERMINAL_CAP)


def _watch(session: CliSession, interval_s: float) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console, pause = Console(no_color=not session.output.color, highlight=False), threading.Event()
    masks = Masks(session.store)

    def screen() -> Any:
        lines = _lines(overview(session.store, masks, cap=TERMINAL_CAP), session.url)
        painted = [line.painted() if session.output.color else line.text for line in lines]
        return Text.from_ansi("\n".join(painted[: max(1, console.height - 1)]), no_wrap=True, overflow="crop")

    try:
        with Live(screen(), console=console, screen=True, auto_refresh=False) as live:
            while not pause.wait(interval_s):
                live.update(screen(), refresh=True)
    except KeyboardInterrupt:
        return


def _lines(view: Overview, url: str) -> Iterator[Line]:
    yield cut(f"store {mask_store_url(url)}")
    yield from stop_lines(view.stopped)
    yield Line("")
    totals = [f"{each.count:,}{'+' if each.capped else ''}" for each in (view.counts[state] for state in State)]
    yield from table([state.upper() for state in State], [totals])
    yield Line("")
    yield from queue_table(view.queues)
    yield Line("")
    workers = ((each.id, each.host, each.heartbeat, age(each.seen_at), ",".join(each.queues)) for each in view.workers)
    yield from table(("WORKER", "HOST", "HEARTBEAT", "SEEN", "QUEUES"), workers)
    yield Line("")
    jobs = (
        [str(job.id), job.kind, job.queue, age(job.started_at or job.claimed_at), job.worker or "", progress_text(job)]
        for job in view.running
    )
    yield from table(JOB_HEADS, jobs)
