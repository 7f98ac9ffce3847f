"""The actions on jobs: ``cancel``, ``pause``, ``retry``, ``kill``, ``restart``, ``hold``, ``rm``, ``set`` and more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from msgspec import UNSET

from holdfast.admin.actions.actions import Changed
from holdfast.admin.actions.jobs import JOB_ACTIONS, restartable
from holdfast.cli.command import HoldfastCommand, command, with_options
from holdfast.cli.commands.options import parse_variables
from holdfast.cli.job_filter import selects_all, with_job_filter
from holdfast.cli.session import CliSession
from holdfast.domain.commands.command import COMMAND, Edit, checked_variable, checked_word
from holdfast.domain.jobs.job import State
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.quantities import as_bytes, as_duration
from holdfast.errors import Conflict, InvalidInput, NoSuchJob

note = click.option("--note", metavar="TEXT", help="Why, for those who look later.")


def action(name: str, text: str, *options: Callable[..., Any]) -> HoldfastCommand:
    """Build the command of one action on jobs; some require confirmation for more than one job."""

    def run(session: CliSession, selector: Selector, *, dry_run: bool, yes: bool = True, **arguments: Any) -> None:
        if name == "restart":
            selector = _restartable(session, selector, done=arguments["done"])
        matched = session.actions.jobs.count_matches(name, selector)
        if not dry_run:
            hint = "Add --yes, or look first with --dry-run."
            session.confirm(f"{name} {matched} jobs", yes=yes or matched == 1, hint=hint)
        changed = session.actions.jobs.perform(name, selector, dry_run=dry_run, matched=matched, **arguments)
        _print_changed(session, changed)

    run.__doc__ = text
    confirms = JOB_ACTIONS[name].destructive or JOB_ACTIONS[name].confirms
    yes = [click.option("--yes", is_flag=True, help="Do not ask.")] if confirms else []
    dry_run = click.option("--dry-run", is_flag=True, help="Say how many jobs match; change nothing.")
    return command(name, answers=Changed, changes=True)(with_job_filter(with_options(*options, dry_run, *yes)(run)))


cancel = action(
    "cancel", "Cancel jobs: at once where nobody runs them; a running one is told at its worker's next heartbeat."
)
pause = action(
    "pause",
    """Hold jobs, running ones too.

    A running one is told to stop at its worker's next heartbeat; it loses no attempt, and its checkpoint
    waits for the run after resume.
    """,
    note,
)
with_dependents = click.option(
    "--with-dependents", is_flag=True, help="Also run jobs again that were cancelled because one of these failed."
)
retry = action(
    "retry",
    """Run dead and cancelled jobs again, with all their attempts; those that wait for a retry run now.

    A job whose dependency has failed stays as it is, unless that one runs again, too.
    """,
    with_dependents,
)
kill = action(
    "kill", "End jobs that run: they are asked to, and killed if they do not within seconds. What waits stays."
)
restart = action(
    "restart",
    """Run programs again that have failed or were cancelled: the same jobs, with a new attempt and a log of its own.

    Done ones run again if you name them by id, with --state done, or with --done. One that was killed for its memory
    (oom) can be given more: holdfast restart 17 --memory 4G.
    """,
    click.option("--memory", metavar="SIZE", help="With this memory cap from now on: 512M, 8G."),
    click.option("--done", is_flag=True, help="Also run done programs again."),
    with_dependents,
)
hold = action("hold", "Keep jobs that nobody runs from starting until somebody lets them go.", note)
unhold = action("unhold", "Let held jobs go.")
rm = action(
    "rm", "Remove jobs with their whole history. A running job, or one that a live job needs, is refused (exit 9)."
)


@command("resume", answers=Changed, changes=True)
@with_job_filter
@with_options(
    click.option("--all", "everything", is_flag=True, help="End a drain or an emergency stop of the whole store."),
    click.option("--dry-run", is_flag=True, help="Say how many jobs match; change nothing."),
)
def resume(session: CliSession, selector: Selector, *, everything: bool, dry_run: bool) -> None:
    """Let paused and held jobs go on.

    With --all, let a stopped store go on, with the jobs that an emergency stop holds. Queues that were paused one by
    one, and jobs that were held one by one, stay so.
    """
    if everything and not selects_all(selector):
        raise InvalidInput("--all takes no other condition", hint="Leave it out to resume the jobs that you name.")
    if everything:
        ids = session.actions.dry_run(dry_run).fleet.resume_all().jobs
        changed = Changed("resume --all", len(ids), 0 if dry_run else len(ids), dry_run, ids)
        going = "would go on" if dry_run else "goes on"
        session.output.value(changed, lambda: [f"the store {going}, with {len(ids):,} jobs that were stopped"])
        return
    matched = session.actions.jobs.count_matches("resume", selector)
    _print_changed(session, session.actions.jobs.perform("resume", selector, dry_run=dry_run, matched=matched))


def _restartable(session: CliSession, selector: Selector, *, done: bool) -> Selector:
    """The jobs that a restart takes; if all that match are done, say how to take them."""
    narrowed = restartable(selector, done=done)
    if narrowed != selector and not selects_all(selector) and not session.store.views.count(narrowed, cap=1).count:
        matched = session.actions.jobs.count_matches("restart", selector)
        hint = "Add --done to run done programs again."
        raise NoSuchJob(f"none of the {matched} jobs that match is dead or cancelled", hint=hint)
    return selector if selects_all(selector) else narrowed


def _print_changed(session: CliSession, answer: Changed) -> None:
    jobs = "1 job" if answer.matched == 1 else f"{answer.matched:,} jobs"
    left = f" (left: {answer.why})" if answer.why else ""
    text = f"{answer.action}: {answer.changed} of {jobs}{left}"
    if answer.left_behind:
        text += f"; {len(answer.left_behind):,} that depend on them stay cancelled (add --with-dependents)"
    session.output.value(answer, lambda: [f"{jobs} would be asked; nothing was changed" if answer.dry_run else text])


_OPTIONS = "--priority, --to-queue, --run-at, --env, --unset, --memory, --cpus, --timeout, --log-cap or --cwd"
_ADD_AGAIN = "Add it anew with other options."


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
def edit(session: CliSession, selector: Selector, *, dry_run: bool, **options: Any) -> None:
    """Change priority, queue or time of jobs that have not ended; and programs, until they run.

    A program that runs or has ended keeps what it was given: exit 9. holdfast show tells what was set, and by whom.

    \b
    Examples:
      holdfast set 17 --env RATE=0.2 --memory 16G
      holdfast set --label 'train*' --priority 5 --to-queue slow
    """
    edit = _parse_edit(options)
    changes = {name: options[name] for name in ("priority", "to_queue", "run_at")} | {"edit": edit or None}
    if all(change is None for change in changes.values()):
        raise InvalidInput("nothing to change", hint=f"Give {_OPTIONS}.")
    matched = session.actions.jobs.count_matches("set", selector)
    if edit:
        _refuse_started(session, selector)
    _print_changed(session, session.actions.jobs.perform("set", selector, dry_run=dry_run, matched=matched, **changes))


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


def _parse_edit(options: dict[str, Any]) -> Edit:
    def cap(name: str, parse: Callable[[str], Any]) -> Any:
        return UNSET if options[name] is None else None if options[name] == "none" else parse(options[name])

    variables = parse_variables(options["variables"])
    return Edit(
        env={name: checked_word(value, label=f"the variable {name}") for name, value in variables},
        without=tuple(checked_variable(name) for name in options["unset"]),
        memory=cap("memory", as_bytes),
        cpus=cap("cpus", _parse_cpus),
        timeout=cap("timeout", as_duration),
        log_cap=cap("log_cap", as_bytes),
        cwd=UNSET if options["cwd"] is None else str(Path(options["cwd"]).absolute()),
    )


def _parse_cpus(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"{text!r} is no number of processors", hint="Write 0.5, 4 or none.") from None
