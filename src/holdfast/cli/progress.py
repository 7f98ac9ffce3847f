"""A bar on stderr for those who wait at a terminal; nothing anywhere else."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.output import Format, Output

Tell = Callable[[int], None]


@contextmanager
def progress(output: Output, what: str, total: int) -> Iterator[Tell]:
    """Gives a function that is told how much is done."""
    if output.quiet or output.format is not Format.TEXT or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True, no_color=not output.color)
    with Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=console, transient=True) as bar:
        line = bar.add_task(what, total=total)
        yield lambda done: bar.update(line, completed=done)
