"""Commands of the table of actions: their flags, confirmations, dry runs, answers and exit codes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import click
from msgspec import Struct

from holdfast.admin.actions.changed import Changed, count_objects
from holdfast.admin.actions.table import Action, Confirm, Target
from holdfast.cli.command import HoldfastCommand, command, keep_blocks, with_options
from holdfast.cli.flags import flags_of, read_flags
from holdfast.cli.session import CliSession
from holdfast.domain.quantities import local_times
from holdfast.errors import NothingChanged

Decorator = Callable[..., Any]
#: Performs an action on the object that the command line names; ``dry_run`` is one of the arguments.
Perform = Callable[..., Changed]


def action_flags(action: Action, options: type[Struct] | None) -> tuple[Decorator, ...]:
    """The flags of an action: its options, ``--dry-run`` and ``--yes``."""
    own = () if options is None else flags_of(options, only=action.options)
    dry_run = click.option(
        "--dry-run", is_flag=True, help="Show what would change, and what would not and why. Changes nothing."
    )
    when = " Only actions on several jobs ask." if action.confirm is Confirm.MANY else ""
    yes = click.option("--yes", is_flag=True, help=f"Do not ask for confirmation.{when}")
    return (*own, dry_run, *([yes] if action.confirm in (Confirm.MANY, Confirm.ALWAYS) else []))


def action_help(action: Action) -> str:
    """The help of an action's command: its text and its examples."""
    examples = "\n".join(f"  {line}" for line in action.examples)
    return keep_blocks(f"{inspect.cleandoc(action.help)}\n\nExamples:\n{examples}")


def action_command(
    action: Action,
    perform: Perform,
    *arguments: Decorator,
    options: type[Struct] | None = None,
    group: click.Group | None = None,
) -> HoldfastCommand:
    """Build the command of an action on one object, which *arguments* name."""

    def run(session: CliSession, *, dry_run: bool, yes: bool = True, **values: Any) -> int:
        if options is not None:
            values |= read_action_flags(action, options, values)
        return perform_confirmed(session, action, perform, dry_run=dry_run, yes=yes, **values)

    run.__doc__ = action_help(action)
    decorate = command(action.name, answers=Changed, changes=True, group=group)
    return decorate(with_options(*arguments, *action_flags(action, options))(run))


def read_action_flags(action: Action, options: type[Struct], values: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of the action from *values* and return those that the command line has."""
    return read_flags(options, {name: values.pop(name) for name in action.options if name in values})


def perform_confirmed(
    session: CliSession, action: Action, perform: Perform, *, dry_run: bool, yes: bool, **values: Any
) -> int:
    """Perform an action and print its answer; one that needs a confirmation gets it by the answer of a dry run."""
    if action.confirm is Confirm.ALWAYS and not (yes or dry_run):
        preview = perform(session, dry_run=True, **values)
        if preview.failed:
            return print_changed(session, preview)
        session.confirm(_describe(action, preview), yes=False, hint="Add --yes, or see the effect with --dry-run.")
    return print_changed(session, perform(session, dry_run=dry_run, **values))


def _describe(action: Action, preview: Changed) -> str:
    names = (
        " the whole store"
        if action.target is Target.STORE
        else " ".join(["", action.target, *map(str, preview.ids + preview.requested)])
    )
    units = "" if preview.units is None else f" ({count_objects(preview.units, 'unit')})"
    return f"{action.label.lower()}{names}{units}"


def print_changed(
    session: CliSession, changed: Changed, *, quiet: str | None = None, lines: Sequence[str] | None = None
) -> int:
    """Print the answer of an action and return the exit code: 9 if nothing could be changed.

    *quiet* is the text with ``--quiet``; *lines* replace the one line of the answer.
    """
    if not changed.failed:
        text = changed.text if quiet is None or not session.output.quiet else quiet
        session.output.value(changed, lambda: [local_times(line) for line in lines or [text]])
        return 0
    from holdfast.output.envelope import failure_of

    error = NothingChanged(changed.text)
    session.output.error(failure_of(error), data=changed)
    return error.exit_code
