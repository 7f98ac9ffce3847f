"""``set``: edit jobs before they finish, and commands before they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import UNSET

from holdfast.admin.actions.actions import Changed
from holdfast.cli.command import command, with_options
from holdfast.cli.commands.options import parse_variables
from holdfast.cli.job_filter import with_job_filter
from holdfast.cli.jobs.actions import print_changed
from holdfast.cli.session import CliSession
from holdfast.domain.commands.command import COMMAND, Edit, checked_variable, checked_word
from holdfast.domain.jobs.job import State
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.quantities import as_bytes, as_duration
from holdfast.errors import Conflict, InvalidInput

#: The value of an option that clears a cap.
NONE = "none"
OPTIONS = "--priority, --to-queue, --run-at, --env, --unset, --memory, --cpus, --timeout, --log-cap or --cwd"


@command("set", answers=Changed, changes=True)
@with_job_filter
@with_options(
    click.option("--priority", type=int, help="The new priority: higher is sooner."),
    click.option("--to-queue", metavar="QUEUE", help="Move to this queue."),
    click.option("--run-at", metavar="WHEN", help="A moment (RFC 3339), a time from now (3h), or now."),
    click.option("--env", "variables", multiple=True, metavar="NAME[=VALUE]", help="A variable of a program."),
    click.option("--unset", multiple=True, metavar="NAME", help="Take a variable away."),
    click.option("--memory", metavar="SIZE", help="The memory of a program: 8G; none: without a cap."),
    click.option("--cpus", metavar="NUMBER", help="Its processors: 0.5; none: without a cap."),
    click.option("--timeout", metavar="TIME", help="End it after so long; none: never."),
    click.option("--log-cap", metavar="SIZE", help="Keep so much of what it writes."),
    click.option("--cwd", metavar="DIR", help="Where it runs."),
    click.option("--dry-run", is_flag=True, help="Say how many jobs match; change nothing."),
)
def edit(
    session: CliSession,
    selector: Selector,
    *,
    dry_run: bool,
    priority: int | None,
    to_queue: str | None,
    run_at: str | None,
    **edits: Any,
) -> None:
    """Change priority, queue or time of jobs that have not ended; and programs, until they run.

    A program that runs or has ended keeps what it was given: exit 9. holdfast show tells what was set, and by whom.

    \b
    Examples:
      holdfast set 17 --env RATE=0.2 --memory 16G
      holdfast set --label 'train*' --priority 5 --to-queue slow
    """
    edit = _parse_edit(**edits)
    if not edit and priority is None and to_queue is None and run_at is None:
        raise InvalidInput("nothing to change", hint=f"Give {OPTIONS}.")
    matched = session.actions.jobs.count_matches("set", selector)
    if edit:
        _refuse_started(session, selector)
    changes = {"priority": priority, "to_queue": to_queue, "run_at": run_at, "edit": edit or None}
    print_changed(session, session.actions.jobs.perform("set", selector, dry_run=dry_run, matched=matched, **changes))


def _refuse_started(session: CliSession, selector: Selector) -> None:
    """Refuse to edit a selected command that runs or is finished.

    Ids are checked one by one; for other selectors it is enough that one command is still idle.
    """
    idle = [state for state in State if not state.finished and state is not State.RUNNING]
    narrowed = selector.only(*idle)
    if selector.ids is None:
        if narrowed.empty or not session.store.views.count(narrowed, cap=1).count:
            raise Conflict("all that match run or have ended", hint=_ADD_AGAIN)
        return
    for job in session.store.views.all(selector):
        if job.kind != COMMAND:
            raise InvalidInput(f"job {job.id} is no program", hint="Only priority, queue and time can be set.")
        if job.state not in idle:
            state = "runs" if job.state is State.RUNNING else f"is {job.state}"
            raise Conflict(f"job {job.id} {state}: it keeps what it was given", hint=_ADD_AGAIN, job_id=job.id)


_ADD_AGAIN = "Add it anew with other options."


def _parse_edit(
    *,
    variables: Sequence[str],
    unset: Sequence[str],
    memory: str | None,
    cpus: str | None,
    timeout: str | None,
    log_cap: str | None,
    cwd: str | None,
) -> Edit:
    return Edit(
        env={name: checked_word(value, label=f"the variable {name}") for name, value in parse_variables(variables)},
        without=tuple(checked_variable(name) for name in unset),
        memory=_parse_cap(memory, as_bytes),
        cpus=_parse_cap(cpus, _parse_cpus),
        timeout=_parse_cap(timeout, as_duration),
        log_cap=_parse_cap(log_cap, as_bytes),
        cwd=UNSET if cwd is None else str(Path(cwd).absolute()),
    )


def _parse_cap(text: str | None, parse: Callable[[str], Any]) -> Any:
    return UNSET if text is None else None if text == NONE else parse(text)


def _parse_cpus(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"{text!r} is no number of processors", hint="Write 0.5, 4 or none.") from None
