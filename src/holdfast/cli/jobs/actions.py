"""The actions on jobs: ``cancel``, ``pause``, ``retry``, ``kill``, ``restart``, ``hold``, ``rm``, ``set`` and more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from msgspec import UNSET

from holdfast.admin.actions.changed import Changed, count_objects
from holdfast.admin.actions.jobs import restartable
from holdfast.admin.actions.options import JobActionOptions
from holdfast.admin.actions.table import Action, Target, find_action
from holdfast.cli.action import action_flags, action_help, print_changed, read_action_flags
from holdfast.cli.command import HoldfastCommand, command, with_options
from holdfast.cli.commands.options import parse_variables
from holdfast.cli.flags import flags_of
from holdfast.cli.job_filter import selects_all, with_job_filter
from holdfast.cli.session import CliSession
from holdfast.domain.commands.command import COMMAND, Edit, checked_word
from holdfast.domain.jobs.job import State
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.names import checked_variable
from holdfast.domain.quantities import as_bytes, as_duration
from holdfast.errors import Conflict, InvalidInput, NoSuchJob
from holdfast.settings import absolute_path


def action(name: str, *extra: Callable[..., Any]) -> HoldfastCommand:
    """Build the command of one action on jobs; more than one job needs a confirmation."""
    row = find_action(Target.JOB, name)

    def run(session: CliSession, selector: Selector, **arguments: Any) -> int:
        return _perform(session, row, selector, **arguments)

    run.__doc__ = action_help(row)
    flags = with_options(*extra, *action_flags(row, JobActionOptions))
    return command(name, answers=Changed, changes=True, creates=False)(with_job_filter(flags(run)))


def _perform(
    session: CliSession, action: Action, selector: Selector, *, dry_run: bool, yes: bool, **arguments: Any
) -> int:
    options = arguments | read_action_flags(action, JobActionOptions, arguments)
    if action.name == "restart":
        selector = _restartable(session, selector, done=options.get("done", False))
    jobs = session.actions.jobs
    matched = jobs.count_matches(action.name, selector)
    if matched > 1 and not (dry_run or yes):
        preview = jobs.perform(action.name, selector, dry_run=True, matched=matched, **options)
        if preview.failed:
            return print_changed(session, preview)
        count = preview.changed + len(preview.requested)
        few = f"{count:,} of " if count != matched else ""
        change = f"{action.label.lower()} {few}{count_objects(matched, 'job')}"
        session.confirm(change, yes=False, hint="Add --yes, or see the effect with --dry-run.")
    return print_changed(session, jobs.perform(action.name, selector, dry_run=dry_run, matched=matched, **options))


cancel, pause, retry, kill = action("cancel"), action("pause"), action("retry"), action("kill")
restart, hold, unhold, rm = action("restart"), action("hold"), action("unhold"), action("rm")


@command("resume", answers=Changed, changes=True, creates=False)
@with_job_filter
@with_options(
    click.option("--all", "everything", is_flag=True, help="Resume the store after drain or emergency-stop."),
    *action_flags(find_action(Target.JOB, "resume"), None),
)
def resume(session: CliSession, selector: Selector, *, everything: bool, dry_run: bool, yes: bool) -> int:
    if not everything:
        return _perform(session, find_action(Target.JOB, "resume"), selector, dry_run=dry_run, yes=yes)
    if not selects_all(selector):
        raise InvalidInput("--all takes no other condition", hint="Leave it out to resume the jobs that you name.")
    return print_changed(session, session.actions.stop_switch.perform("resume", None, dry_run=dry_run))


resume.help = action_help(find_action(Target.JOB, "resume"))


def _restartable(session: CliSession, selector: Selector, *, done: bool) -> Selector:
    """The jobs that a restart takes; if all that match are done, say how to take them."""
    from holdfast.admin.views.jobs import count_jobs

    narrowed = restartable(selector, done=done)
    if narrowed != selector and not selects_all(selector) and not count_jobs(session.store, narrowed, cap=1).count:
        matched = session.actions.jobs.count_matches("restart", selector)
        hint = "Add --done to run done commands again."
        text = f"{count_objects(matched, 'job')} matched, but none failed, or later jobs replaced the failures"
        raise NoSuchJob(text, hint=hint)
    return selector if selects_all(selector) else narrowed


_OPTIONS = (
    "--priority, --to-queue, --run-at, --env, --unset, --memory, --cpus, --timeout, --stop-delay, --log-cap or --cwd"
)
_ADD_AGAIN = "Add a new job with other options."


@command("set", answers=Changed, changes=True, creates=False)
@with_job_filter
@with_options(
    *flags_of(JobActionOptions, only=find_action(Target.JOB, "set").options),
    click.option(
        "--env", "variables", multiple=True, metavar="NAME[=VALUE]", help="Environment variable of a command."
    ),
    click.option("--unset", multiple=True, metavar="NAME", help="Remove an environment variable."),
    click.option("--memory", metavar="SIZE", help="Memory limit of a command: 8G; none: no limit."),
    click.option("--cpus", metavar="NUMBER", help="Processor limit of a command: 0.5; none: no limit."),
    click.option("--timeout", metavar="TIME", help="Maximum run time of a command; none: no limit."),
    click.option(
        "--stop-delay", metavar="TIME", help="Time between SIGTERM and SIGKILL of a command; none: the default, 10s."
    ),
    click.option("--log-cap", metavar="SIZE", help="Maximum size of the log; the oldest output is deleted first."),
    click.option("-w", "--cwd", metavar="DIR", help="Working directory of a command."),
    *action_flags(find_action(Target.JOB, "set"), None),
)
def edit(session: CliSession, selector: Selector, *, dry_run: bool, yes: bool, **options: Any) -> int:
    action, edit = find_action(Target.JOB, "set"), _parse_edit(options)
    changes = {name: options[name] for name in action.options} | {"edit": edit or None}
    if all(change is None for change in changes.values()):
        raise InvalidInput("nothing to change", hint=f"Give {_OPTIONS}.")
    session.actions.jobs.count_matches("set", selector)
    if edit:
        _refuse_started(session, selector)
    return _perform(session, action, selector, dry_run=dry_run, yes=yes, **changes)


edit.help = action_help(find_action(Target.JOB, "set"))


def _refuse_started(session: CliSession, selector: Selector) -> None:
    """Refuse to edit a selected command that runs or is finished.

    Ids are checked one by one; for other selectors it is enough that one command is still idle.
    """
    from holdfast.admin.views.jobs import count_jobs, list_jobs

    idle = [state for state in State if not state.finished and state is not State.RUNNING]
    narrowed = selector.only(*idle)
    if selector.ids is None:
        if narrowed.empty or not count_jobs(session.store, narrowed, cap=1).count:
            raise Conflict("all matching jobs are running or finished", hint=_ADD_AGAIN)
        return
    for job in list_jobs(session.store, selector):
        if job.kind != COMMAND:
            raise InvalidInput(f"job {job.id} is not a command", hint="Only its priority, queue and time can be set.")
        if job.state not in idle:
            raise Conflict(f"job {job.id} is {job.state}: it keeps its settings", hint=_ADD_AGAIN, job_id=job.id)


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
        stop_delay=cap("stop_delay", as_duration),
        log_cap=cap("log_cap", as_bytes),
        cwd=UNSET if options["cwd"] is None else str(absolute_path(options["cwd"])),
    )


def _parse_cpus(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"{text!r} is not a number of processors", hint="Write 0.5, 4 or none.") from None
