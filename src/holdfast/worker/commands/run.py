"""A command that runs to its end under a supervisor. None of its processes outlives this one."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path

from msgspec import Struct

from holdfast.domain.commands.command import DEFAULT_STOP_DELAY
from holdfast.domain.names import clean_text
from holdfast.errors import CommandFailed, InvalidInput
from holdfast.worker import clock
from holdfast.worker.executors.channel import CANNOT_START, StartProcess
from holdfast.worker.executors.children import SupervisorClient

#: The end of the output that is kept.
OUTPUT_BYTES = 64 * 1024
#: The end of the output that an error message shows.
LAST_CHARACTERS = 500
POLL_INTERVAL_S = 0.05


class Completed(Struct, frozen=True):
    """The exit code of a command, and the end of its output to stdout and stderr."""

    exit_code: int
    output: str

    @property
    def last_output(self) -> str:
        text = self.output.strip()
        # The ellipsis marks the cut: masking hides the rest of a secret there.
        return clean_text(text if len(text) <= LAST_CHARACTERS else "…" + text[-LAST_CHARACTERS:]) or "no output"

    @property
    def status(self) -> str:
        """The exit code, or the name of the signal, as text."""
        return f"exit code {self.exit_code}" if self.exit_code >= 0 else signal.Signals(-self.exit_code).name


def run_command(
    argv: Sequence[str],
    *,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    is_late: Callable[[], bool] = lambda: False,
    stop_delay: timedelta = DEFAULT_STOP_DELAY,
) -> Completed:
    """Run *argv*. Once *is_late* holds, send SIGTERM; after *stop_delay*, kill the command with its descendants."""
    if isinstance(argv, str) or not argv:
        raise InvalidInput(f"a command is a list of words, not {argv!r}", hint='Write ["convert", "-resize", "50%"].')
    with tempfile.TemporaryFile() as output:
        supervisor = _supervisor()
        folder, variables = None if cwd is None else str(cwd), {**os.environ, **(env or {})}
        message = StartProcess([str(word) for word in argv], command=True, cwd=folder, env=variables)
        name = supervisor.start_process(message, output.fileno())
        status = _await_exit(supervisor, name, is_late, stop_delay.total_seconds())
        output.seek(max(0, output.seek(0, 2) - OUTPUT_BYTES))
        return Completed(status, output.read().decode(errors="replace"))


def _await_exit(supervisor: SupervisorClient, name: str, is_late: Callable[[], bool], stop_delay_s: float) -> int:
    kill_at: float | None = None
    while (exited := supervisor.exit_of(name, timeout=POLL_INTERVAL_S)) is None:
        if supervisor.has_lost(name):
            raise CommandFailed("the command was lost with its supervisor")
        if kill_at is None and is_late():
            supervisor.kill(name, gently=True)
            kill_at = clock.now() + stop_delay_s
        elif kill_at is not None and clock.now() >= kill_at:
            supervisor.kill(name)
    if exited.status == CANNOT_START and exited.error is not None:
        raise CommandFailed(f"the command cannot be started: {exited.error}")
    return exited.status


@cache
def _supervisor() -> SupervisorClient:
    return SupervisorClient()
