"""A bar on stderr for those who wait at a terminal; nothing anywhere else."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.domain.sizes import format_rate
from holdfast.output.printer import Format, Output

#: Told how much is done, and how much of that failed.
ReportProgress = Callable[[int, int], None]


def has_bar(output: Output) -> bool:
    """Whether somebody would see a bar."""
    is_plain = output.quiet or output.format is not Format.TEXT
    return not is_plain and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


@contextmanager
def progress(output: Output, what: str, total: int | None) -> Iterator[ReportProgress]:
    """Gives a function that is told how much is done; the bar shows the rate and how long it will take."""
    if not has_bar(output):
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        """Units in a second, and how many failed."""

        def render(self, shown: Any) -> Text:
            rate = shown.finished_speed or shown.speed
            failed = shown.fields["failed"]
            return Text(("" if rate is None else format_rate(rate)) + (f", {failed:,} failed" if failed else ""))

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn(), TextColumn("left"))
    console = Console(stderr=True, no_color=not output.color)
    with Progress(*columns, console=console, transient=True) as bar:
        line = bar.add_task(what, total=total, failed=0)
        yield lambda done, failed: bar.update(line, completed=done, failed=failed)
