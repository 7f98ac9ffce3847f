"""The progress bar of long commands, on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.domain.quantities import format_rate
from holdfast.output.printer import Format, Output

#: Called with the numbers of done and failed items.
ProgressCallback = Callable[[int, int], None]


def has_bar(output: Output) -> bool:
    """Whether the output is a terminal that shows a bar."""
    is_plain = output.quiet or output.format is not Format.TEXT
    return not is_plain and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


@contextmanager
def progress(output: Output, label: str, total: int | None) -> Iterator[ProgressCallback]:
    """Show a bar with rate and remaining time; the caller reports progress to the callback."""
    if not has_bar(output):
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        """Items per second, and the number of failed ones."""

        def render(self, shown: Any) -> Text:
            rate = shown.finished_speed or shown.speed
            failed = shown.fields["failed"]
            return Text(("" if rate is None else format_rate(rate)) + (f", {failed:,} failed" if failed else ""))

    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn(), TextColumn("left"))
    console = Console(stderr=True, no_color=not output.color)
    with Progress(*columns, console=console, transient=True) as bar:
        line = bar.add_task(label, total=total, failed=0)
        yield lambda done, failed: bar.update(line, completed=done, failed=failed)
