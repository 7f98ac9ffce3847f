"""A program, run to its end under the supervisor: nothing of it outlives this process."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from msgspec import Struct

from holdfast.domain.names import clean_text
from holdfast.errors import CommandFailed, InvalidInput
from holdfast.worker import clock
from holdfast.worker.commands.supervisor import CANNOT_START
from holdfast.worker.executors.children import SupervisorClient

#: What is kept of a program's output: its end, in bytes.
KEPT = 64 * 1024
LAST_WORDS = 500
LOOK_EVERY = 0.05
#: Between the request to end and the end, in seconds.
GRACE = 5.0


class Completed(Struct, frozen=True):
    """How a program ended, and the end of what it wrote to stdout and stderr."""

    exit_code: int
    output: str

    @property
    def last_words(self) -> str:
        said = self.output.strip()
        # Where it is cut is marked: what is left of a secret there is masked.
        return clean_text(said if len(said) <= LAST_WORDS else "…" + said[-LAST_WORDS:]) or "it said nothing"

    @property
    def said(self) -> str:
        """The exit code in words; a negative one is a signal."""
        return f"exit code {self.exit_code}" if self.exit_code >= 0 else signal.Signals(-self.exit_code).name


def run_command(
    argv: Sequence[str],
    *,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    is_late: Callable[[], bool] = lambda: False,
) -> Completed:
    """Run *argv*; when it *is late* it is asked to end, then killed, with all that it has started."""
    if isinstance(argv, str) or not argv:
        raise InvalidInput(f"a command is a list of words, not {argv!r}", hint='Write ["convert", "-resize", "50%"].')
    words = [str(word) for word in argv]
    with tempfile.TemporaryFile() as output:
        supervised = _supervised()
        where = None if cwd is None else str(cwd)
        name = supervised.command(words, output.fileno(), cwd=where, env={**os.environ, **(env or {})})
        status = _await_end(supervised, name, is_late)
        output.seek(max(0, output.seek(0, 2) - KEPT))
        return Completed(status, output.read().decode(errors="replace"))


def _await_end(supervised: SupervisorClient, name: str, is_late: Callable[[], bool]) -> int:
    kill_at: float | None = None
    while (exited := supervised.exit_of(name, patience=LOOK_EVERY)) is None:
        if supervised.gone:
            raise CommandFailed("the program was lost with its supervisor")
        if kill_at is None and is_late():
            supervised.kill(name, gently=True)
            kill_at = clock.now() + GRACE
        elif kill_at is not None and clock.now() >= kill_at:
            supervised.kill(name)
    if exited.status == CANNOT_START and exited.error is not None:
        raise CommandFailed(f"the program cannot be started: {exited.error}")
    return exited.status


@cache
def _supervised() -> SupervisorClient:
    return SupervisorClient()
