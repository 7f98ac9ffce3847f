"""The actions on batches: ``pause``, ``resume`` and ``retry-failed`` on one; ``cancel`` and ``rm`` on many, too."""

from __future__ import annotations

import click

from holdfast.admin.actions.actions import BatchChanged
from holdfast.admin.actions.batches import BatchesChanged
from holdfast.cli.batches.filter_options import with_batch_filter
from holdfast.cli.command import HoldfastCommand, command
from holdfast.cli.session import CliSession
from holdfast.domain.batches.batch import BatchId
from holdfast.domain.batches.batch_filter import BatchFilter
from holdfast.output.progress_bar import progress


def _action_on_one(name: str, text: str) -> HoldfastCommand:
    @command(name, answers=BatchChanged, changes=True)
    @click.argument("batch_id", type=click.IntRange(1))
    def action(session: CliSession, *, batch_id: int) -> None:
        with progress(session.output, f"{name} {batch_id}", None) as update:
            answer = session.actions.batches.perform(name, BatchId(batch_id), on_step=lambda count: update(count, 0))
        units = "" if answer.units is None else f", {answer.units:,} units"
        text = f"{name} {batch_id}{units}" if answer.changed else f"{name} {batch_id}: nothing to do"
        text += "" if answer.note is None else f"; {answer.note}"
        session.output.value(answer, lambda: [text])

    action.help = text
    return action


def _action_on_many(name: str, text: str) -> HoldfastCommand:
    @command(name, answers=BatchesChanged, changes=True)
    @click.argument("ids", nargs=-1, type=click.IntRange(1))
    @with_batch_filter(
        click.option("--older-than", metavar="AGE", help="Batches that ended, or began, longer ago than this: 7d."),
        click.option("--dry-run", is_flag=True, help="Say which batches would change; change nothing."),
        click.option("--yes", is_flag=True, help="Do not ask."),
    )
    def action(session: CliSession, *, ids: tuple[int, ...], chosen: BatchFilter, dry_run: bool, yes: bool) -> None:
        batches = session.actions.dry_run(dry_run).batches
        matches = batches.select(name, chosen, ids=ids)
        if not dry_run:
            hint = "Add --yes, or look first with --dry-run."
            session.confirm(f"{name} {len(matches)} batches", yes=yes or len(matches) == 1, hint=hint)
        with progress(session.output, f"{name} {len(matches)} batches", None) as update:
            answer = batches.perform_on_many(name, matches, on_step=lambda count: update(count, 0))
        session.output.value(answer, lambda: [_describe(answer)])

    action.help = text
    return action


def _describe(answer: BatchesChanged) -> str:
    batches = "1 batch" if answer.matched == 1 else f"{answer.matched:,} batches"
    units = f", {answer.units:,} units" if answer.units else ""
    left = f" (left: {', '.join(map(str, answer.left[:10]))})" if answer.left else ""
    start = "would change" if answer.dry_run else answer.action
    return f"{start}: {len(answer.batches):,} of {batches}{units}{left}"


pause = _action_on_one("pause", "Start no more units; what runs may end.")
resume = _action_on_one(
    "resume", "Let a paused or stopped batch go on: the workers do, a run here when it is started again."
)
retry_failed = _action_on_one("retry-failed", "Let failed units run again: on workers at once, here in the next run.")
cancel = _action_on_many(
    "cancel",
    """Cancel batches: every unit that has not finished.

    Select them by id or by filter; without --state the filter takes unfinished batches.
    """,
)
rm = _action_on_many(
    "rm",
    """Delete batches with their ledgers and their history. A batch that runs is left.

    Select them by id or by filter; without --state the filter takes finished batches.

    \b
    Example:
      holdfast batch rm --state done --older-than 30d
    """,
)
