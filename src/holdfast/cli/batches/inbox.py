"""``inbox`` with its sub-commands: take the results of units, accept and refuse them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import click
import msgspec

from holdfast.admin.actions.inboxes import MAX_RESULTS, SettledResults, TakenResult
from holdfast.admin.views.inboxes import InboxResultView, list_inboxes, list_results
from holdfast.cli.command import CommandGroup, Items, command
from holdfast.cli.session import CliSession
from holdfast.cli.text import age, table
from holdfast.domain.quantities import as_duration
from holdfast.output.printer import Line
from holdfast.store.batches.inbox import InboxDepth

_LIMIT = click.IntRange(1, MAX_RESULTS)


@click.group("inbox", cls=CommandGroup)
def inbox() -> None:
    """Consume the results that units hand over: take them, then accept or refuse each.

    Each result has one consumer at a time. It is kept for 24 hours; then its unit fails.
    """


@command("ls", group=inbox, answers=Items("inboxes", InboxDepth))
def ls(session: CliSession) -> None:
    """List the inboxes that hold results."""
    session.output.items("inboxes", list_inboxes(session.store), _inbox_table)


@command("show", group=inbox, answers=Items("results", InboxResultView))
@click.argument("name")
@click.option(
    "-n", "--limit", default=50, show_default=True, type=click.IntRange(1, 1000), help="Maximum number of rows."
)
def show(session: CliSession, *, name: str, limit: int) -> None:
    """List the results in an inbox, and take none of them. Secrets are masked."""
    session.output.items("results", list_results(session.store, name, limit=limit), _result_table)


@command("take", group=inbox, answers=Items("results", TakenResult), changes=True)
@click.argument("name")
@click.option("-n", "--limit", default=1, show_default=True, type=_LIMIT, help="Maximum number of rows.")
@click.option("--lease", default="60s", show_default=True, metavar="TIME", help="Keep them from other consumers.")
def take(session: CliSession, *, name: str, limit: int, lease: str) -> None:
    """Take results, the longest free first. Their values are printed as the units handed them over.

    \b
    Example:
      holdfast inbox take articles -o ndjson | while read -r result; do …; done
    """
    results = session.actions.inboxes.take(name, limit=limit, lease=as_duration(lease))
    session.output.items("results", results, _taken_table)


@command("accept", group=inbox, answers=SettledResults, changes=True)
@click.argument("receipts", nargs=-1, required=True, metavar="RECEIPT…")
def accept(session: CliSession, *, receipts: tuple[str, ...]) -> None:
    """Accept results that you have taken: their units are done. Exit 9: you have lost all of them."""
    _print_settled(session, session.actions.inboxes.accept(receipts))


@command("refuse", group=inbox, answers=SettledResults, changes=True)
@click.argument("receipts", nargs=-1, required=True, metavar="RECEIPT…")
@click.option("--error", default="refused by its consumer", show_default=True, metavar="TEXT", help="Why.")
def refuse(session: CliSession, *, receipts: tuple[str, ...], error: str) -> None:
    """Refuse results that you have taken: their units fail, and run again with the next run of their batches."""
    _print_settled(session, session.actions.inboxes.refuse(receipts, error))


def _print_settled(session: CliSession, answer: SettledResults) -> None:
    lost = f" (lost: {', '.join(answer.lost)})" if answer.lost else ""
    total = len(answer.settled) + len(answer.lost)
    session.output.value(answer, lambda: [f"{answer.action}: {len(answer.settled)} of {total} results{lost}"])


def _inbox_table(inboxes: Iterable[InboxDepth]) -> Iterator[Line]:
    rows = ([each.inbox, f"{each.results:,}", f"{each.taken:,}", age(each.free_since)] for each in inboxes)
    return table(("INBOX", "RESULTS", "TAKEN", "FREE SINCE"), rows)


def _result_table(results: Iterable[InboxResultView]) -> Iterator[Line]:
    def row(result: InboxResultView) -> list[str]:
        state = "taken" if result.taken else "free"
        return [str(result.batch), str(result.key), state, age(result.expires_at), _json(result.value)]

    return table(("BATCH", "KEY", "STATE", "EXPIRES", "VALUE"), map(row, results))


def _taken_table(results: Iterable[TakenResult]) -> Iterator[Line]:
    rows = ([each.receipt, str(each.batch), str(each.key), _json(each.value)] for each in results)
    return table(("RECEIPT", "BATCH", "KEY", "VALUE"), rows)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
