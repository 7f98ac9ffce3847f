"""``top``: a live view in the terminal."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import click

from holdfast.cli.command import Items
from holdfast.cli.command import command as shared_command
from holdfast.cli.fleet.queues import queue_table
from holdfast.cli.session import Session
from holdfast.cli.text import age, cut, progress, table
from holdfast.domain.access.masking import mask_store_url
from holdfast.domain.jobs.job import State
from holdfast.output.printer import Line
from holdfast.store.fleet.overview import Overview, overview

HEADS = ("ID", "KIND", "QUEUE", "SINCE", "WORKER", "PROGRESS")


@shared_command("top", answers=Items("looks", Overview))
@click.option(
    "--every", default=1.0, show_default=True, type=click.FloatRange(0.1, 3600), help="Seconds between looks."
)
@click.option("-n", "--looks", type=click.IntRange(1), help="End after so many looks; without a terminal after one.")
def command(session: Session, *, every: float, looks: int | None) -> None:
    """Watch states, queues, workers and running jobs. Leave with Ctrl-C.

    \b
    Examples:
      holdfast top
      holdfast top -n 60 --every 60 -o ndjson >> load.ndjson
    """
    if _live(session) and looks is None:
        _watch(session, every)
    else:
        seen = _looks(session, every, looks or 1)
        session.output.items("looks", seen, lambda found: (line for each in found for line in lines(each, session.url)))


def _live(session: Session) -> bool:
    return session.output.format == "text" and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _looks(session: Session, every: float, count: int) -> Iterator[Overview]:
    pause = threading.Event()
    for place in range(count):
        if place:
            pause.wait(every)
        yield overview(session.store)


def _watch(session: Session, every: float) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console, pause = Console(no_color=not session.output.color, highlight=False), threading.Event()

    def shown() -> Any:
        found = lines(overview(session.store), session.url)
        painted = [line.painted() if session.output.color else line.text for line in found]
        return Text.from_ansi("\n".join(painted[: max(1, console.height - 1)]), no_wrap=True, overflow="crop")

    try:
        with Live(shown(), console=console, screen=True, auto_refresh=False) as live:
            while not pause.wait(every):
                live.update(shown(), refresh=True)
    except KeyboardInterrupt:
        return


def lines(seen: Overview, url: str) -> Iterator[Line]:
    """One look for people."""
    states = [f"{seen.counts[state].count:,}{'+' if seen.counts[state].capped else ''}" for state in State]
    yield from (cut(f"store {mask_store_url(url)}"), Line(""))
    yield from table([state.upper() for state in State], [states])
    yield Line("")
    yield from queue_table(seen.queues)
    yield Line("")
    kinds = ((each.id, each.host, age(each.seen_at), ",".join(each.queues)) for each in seen.workers)
    yield from table(("WORKER", "HOST", "SEEN", "QUEUES"), kinds)
    yield Line("")
    rows = (
        [str(job.id), job.kind, job.queue, age(job.started_at or job.claimed_at), job.worker or "", progress(job)]
        for job in seen.running
    )
    yield from table(HEADS, rows)
