"""``drain`` and ``emergency-stop``: they set the stop switch of the store."""

from __future__ import annotations

import threading
import time
from functools import partial

import click
from msgspec import structs

from holdfast.admin.actions.changed import Changed
from holdfast.admin.actions.options import NoteOptions
from holdfast.admin.actions.table import Target, find_action
from holdfast.admin.views.jobs import count_jobs
from holdfast.cli.action import action_command, action_flags, action_help, print_changed
from holdfast.cli.command import command, with_options
from holdfast.cli.session import CliSession
from holdfast.domain.jobs.job import State
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.quantities import as_duration
from holdfast.errors import WaitTimeout
from holdfast.output.progress_bar import progress

POLL_INTERVAL_S = 0.2
#: Largest number of running jobs that is counted exactly.
COUNT_CAP = 100_000

_drain = find_action(Target.STORE, "drain")


@command("drain", answers=Changed, changes=True)
@click.option("--timeout", default="10m", show_default=True, metavar="TIME", help="Maximum wait; exit 10 after it.")
@click.option("--end", is_flag=True, help="Resume the store, like holdfast resume --all.")
@with_options(*action_flags(_drain, NoteOptions))
def drain(session: CliSession, *, timeout: str, note: str | None, end: bool, dry_run: bool) -> int:
    if end:
        return print_changed(session, session.actions.stop_switch.perform("resume", None, dry_run=dry_run))
    changed = session.actions.stop_switch.perform("drain", None, note=note, dry_run=dry_run)
    if not dry_run:
        _wait_until_idle(session, timeout)
        text = "no job is running, and none starts until holdfast resume --all"
        changed = structs.replace(changed, note=text)
    return print_changed(session, changed)


drain.help = action_help(_drain)


def _wait_until_idle(session: CliSession, timeout: str) -> None:
    began, pause = time.monotonic(), threading.Event()
    running = partial(count_jobs, session.store, Selector(states=(State.RUNNING,)), cap=COUNT_CAP)
    total = running().count
    with progress(session.output, "waiting for jobs", total) as update:
        while left := running().count:
            if time.monotonic() - began > as_duration(timeout).total_seconds():
                hint = "The store stays stopped: holdfast resume --all."
                raise WaitTimeout(f"{left:,} jobs still run", hint=hint, left=left)
            update(total - min(left, total), 0)
            pause.wait(POLL_INTERVAL_S)


def _stop(session: CliSession, *, dry_run: bool, note: str | None = None) -> Changed:
    return session.actions.stop_switch.perform("emergency-stop", None, note=note, dry_run=dry_run)


emergency_stop = action_command(find_action(Target.STORE, "emergency-stop"), _stop, options=NoteOptions)
