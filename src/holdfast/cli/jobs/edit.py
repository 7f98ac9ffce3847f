"""``set``: change jobs that have not ended, and what programs are asked to do before they run."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import UNSET

from holdfast.admin.actions.results import Changed
from holdfast.cli.command import command, with_options
from holdfast.cli.job_filter import selecting
from holdfast.cli.jobs.actions import tell_changed
from holdfast.cli.session import Session
from holdfast.domain.commands.command import COMMAND, checked_variable, checked_word
from holdfast.domain.commands.edit import Edit
from holdfast.domain.jobs.job import Job, State
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.text import as_bytes, as_duration
from holdfast.errors import Conflict, InvalidInput

#: The word that takes a cap away.
NONE = "none"
ONE_OF = "--priority, --to-queue, --run-at, --env, --unset, --memory, --cpus, --timeout, --log-cap or --cwd"


@command("set", answers=Changed, changes=True)
@selecting
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
def change(
    session: Session,
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
    edit = _edit(**edits)
    if not edit and priority is None and to_queue is None and run_at is None:
        raise InvalidInput("nothing to change", hint=f"Give {ONE_OF}.")
    matched = session.actions.jobs.count_matches("set", selector)
    if edit:
        _refuse_begun(session, selector)
    given = {"priority": priority, "to_queue": to_queue, "run_at": run_at, "edit": edit or None}
    tell_changed(session, session.actions.jobs.perform("set", selector, dry_run=dry_run, matched=matched, **given))


def _refuse_begun(session: Session, selector: Selector) -> None:
    """A program that was named keeps what it was given once it runs; so do all that match, if none is left to change.

    Raises:
        Conflict: It tells which.
        InvalidInput: A job that was named is no program.
    """
    idle = [state for state in State if not state.finished and state is not State.RUNNING]
    narrowed = selector.only(*idle)
    if selector.ids is None:
        if narrowed.empty or not session.store.views.count(narrowed, cap=1).count:
            raise Conflict("all that match run or have ended", hint=_AGAIN)
        return
    for job in session.store.views.all(selector):
        if job.kind != COMMAND:
            raise InvalidInput(f"job {job.id} is no program", hint="Only priority, queue and time can be set.")
        if job.state not in idle:
            raise Conflict(f"job {job.id} {_stands(job)}: it keeps what it was given", hint=_AGAIN, job_id=job.id)


_AGAIN = "Add it anew with other options."


def _stands(job: Job) -> str:
    return "runs" if job.state is State.RUNNING else f"is {job.state}"


def _edit(
    *,
    variables: Sequence[str],
    unset: Sequence[str],
    memory: str | None,
    cpus: str | None,
    timeout: str | None,
    log_cap: str | None,
    cwd: str | None,
) -> Edit:
    env = {}
    for text in variables:
        name, given, value = text.partition("=")
        checked_variable(name)
        if not given and name not in os.environ:
            raise InvalidInput(f"there is no variable {name!r} here", hint=f"Write --env {name}=VALUE.")
        env[name] = checked_word(value if given else os.environ[name], what=f"the variable {name}")
    return Edit(
        env=env,
        without=tuple(checked_variable(name) for name in unset),
        memory=_given(memory, as_bytes),
        cpus=_given(cpus, _number),
        timeout=_given(timeout, as_duration),
        log_cap=_given(log_cap, as_bytes),
        cwd=UNSET if cwd is None else str(Path(cwd).absolute()),
    )


def _given(text: str | None, read: Callable[[str], Any]) -> Any:
    return UNSET if text is None else None if text == NONE else read(text)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"{text!r} is no number of processors", hint="Write 0.5, 4 or none.") from None
