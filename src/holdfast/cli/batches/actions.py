"""The actions on batches: ``pause``, ``resume`` and ``retry-failed`` on one; ``cancel`` and ``rm`` on many, too."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import partial

import click

from holdfast.admin.actions.batches import DEFAULT_STATES
from holdfast.admin.actions.changed import Changed
from holdfast.admin.actions.table import Action, Target, actions_on
from holdfast.cli.action import action_command, action_flags, perform_confirmed
from holdfast.cli.batches.filter_options import with_batch_filter
from holdfast.cli.command import HoldfastCommand, command
from holdfast.cli.session import CliSession
from holdfast.domain.batches.batch import BatchId
from holdfast.domain.batches.batch_filter import BatchFilter
from holdfast.output.progress_bar import progress

OLDER_THAN = click.option(
    "--older-than", metavar="AGE", help="Batches that finished, or began, longer ago than this: 7d."
)


def add_actions(group: click.Group) -> None:
    """Add the command of each action on batches to *group*."""
    one = click.argument("batch_id", type=click.IntRange(1))
    for action in actions_on(Target.BATCH).values():
        if action.name in DEFAULT_STATES:
            group.add_command(_command_on_many(action))
        else:
            action_command(action, partial(_perform, action.name), one, group=group)


def _perform(name: str, session: CliSession, *, batch_id: int, dry_run: bool) -> Changed:
    with progress(session.output, f"{name} {batch_id}", None) as update:
        return session.actions.batches.perform(
            name, BatchId(batch_id), dry_run=dry_run, on_step=lambda count: update(count, 0)
        )


def _command_on_many(action: Action) -> HoldfastCommand:
    @command(action.name, answers=Changed, changes=True)
    @click.argument("ids", nargs=-1, type=click.IntRange(1))
    @with_batch_filter(OLDER_THAN, *action_flags(action, None))
    def change(session: CliSession, *, ids: tuple[int, ...], chosen: BatchFilter, dry_run: bool, yes: bool) -> int:
        matches = session.actions.batches.select(action.name, chosen, ids=ids)
        perform = partial(_perform_on_many, action.name)
        return perform_confirmed(session, action, perform, dry_run=dry_run, yes=yes, ids=matches)

    change.help = inspect.cleandoc(action.help)
    return change


def _perform_on_many(name: str, session: CliSession, *, ids: Sequence[BatchId], dry_run: bool) -> Changed:
    with progress(session.output, f"{name} {len(ids)} batches", None) as update:
        return session.actions.batches.perform_on_many(
            name, ids, dry_run=dry_run, on_step=lambda count: update(count, 0)
        )
