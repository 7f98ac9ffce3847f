"""``inbox`` with its sub-commands: take the results of units, accept and refuse them."""

from __future__ import annotations

from functools import partial

import click
import msgspec

from holdfast.admin.actions.changed import Changed
from holdfast.admin.actions.inboxes import MAX_RESULTS, TakenResult
from holdfast.admin.actions.options import NoteOptions
from holdfast.admin.actions.table import Target, actions_on
from holdfast.admin.views.inboxes import InboxResultView, list_inboxes, list_results
from holdfast.cli.action import action_command
from holdfast.cli.command import CommandGroup, Items, command, limit_option
from holdfast.cli.session import CliSession
from holdfast.cli.text import Column, Table, age, age_column, count_column, sortable_key, with_table
from holdfast.domain.batches.unit import InboxDepth
from holdfast.domain.quantities import as_duration


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


INBOXES: Table[InboxDepth] = Table(
    (
        Column("INBOX", lambda inbox: inbox.inbox),
        count_column("RESULTS", lambda inbox: inbox.results),
        count_column("TAKEN", lambda inbox: inbox.taken),
        age_column("FREE SINCE", lambda inbox: inbox.free_since),
    )
)
RESULTS: Table[InboxResultView] = Table(
    (
        Column("BATCH", lambda result: result.batch),
        Column("KEY", lambda result: result.key, lambda result: sortable_key(result.key)),
        Column("STATE", lambda result: "taken" if result.taken else "free"),
        Column("EXPIRES", lambda result: age(result.expires_at), lambda result: result.expires_at),
        Column("RECEIPT", lambda result: result.receipt, wide=True),
        Column("VALUE", lambda result: _json(result.value)),
    )
)
TAKEN: Table[TakenResult] = Table(
    (
        Column("RECEIPT", lambda result: result.receipt),
        Column("BATCH", lambda result: result.batch),
        Column("KEY", lambda result: result.key, lambda result: sortable_key(result.key)),
        Column("VALUE", lambda result: _json(result.value)),
    )
)
_LIMIT = click.IntRange(1, MAX_RESULTS)


@click.group("inbox", cls=CommandGroup)
def inbox() -> None:
    """Consume the results that units hand over: take them, then accept or refuse each.

    Each result has one consumer at a time. It is kept for 24 hours; then its unit fails.
    """


@command("ls", group=inbox, answers=Items("inboxes", InboxDepth))
@with_table(INBOXES)
def ls(session: CliSession, *, table: Table[InboxDepth]) -> None:
    """List the inboxes that hold results.

    Examples:
      holdfast inbox ls
    """
    session.output.items("inboxes", list_inboxes(session.store), table.lines)


@command("show", group=inbox, answers=Items("results", InboxResultView))
@click.argument("name")
@limit_option(50, 1000)
@with_table(RESULTS)
def show(session: CliSession, *, name: str, limit: int, table: Table[InboxResultView]) -> None:
    """List the results in an inbox without taking them. Secrets are masked.

    Examples:
      holdfast inbox show articles -n 10
    """
    session.output.items("results", list_results(session.store, name, limit=limit), table.lines)


@command("take", group=inbox, answers=Items("results", TakenResult), changes=True, creates=False)
@click.argument("name")
@click.option("-n", "--limit", default=1, show_default=True, type=_LIMIT, help="Maximum number of rows.")
@click.option(
    "--lease", default="60s", show_default=True, metavar="TIME", help="How long to keep them from other consumers."
)
@with_table(TAKEN)
def take(session: CliSession, *, name: str, limit: int, lease: str, table: Table[TakenResult]) -> None:
    """Take results from an inbox, oldest first. Their values are printed unmasked.

    Other consumers do not get them during the lease. Then accept or refuse each, by its receipt.

    Examples:
      holdfast inbox take articles -o ndjson | while read -r result; do …; done
    """
    results = session.actions.inboxes.take(name, limit=limit, lease=as_duration(lease))
    session.output.items("results", results, table.lines)


def _settle(name: str, session: CliSession, *, receipts: tuple[str, ...], dry_run: bool, **options: str) -> Changed:
    return session.actions.inboxes.perform(name, receipts, dry_run=dry_run, **options)


for _action in actions_on(Target.RESULT).values():
    _receipts = click.argument("receipts", nargs=-1, required=True, metavar="RECEIPT…")
    action_command(_action, partial(_settle, _action.name), _receipts, options=NoteOptions, group=inbox)
