"""``batch ls``, ``batch show``, ``batch units`` and ``batch history``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import click
import msgspec

from holdfast.admin.views.batches import (
    BatchEventView,
    BatchView,
    all_units,
    batch_history,
    batch_views,
    list_batches,
)
from holdfast.cli.batches.filter_options import with_batch_filter
from holdfast.cli.command import Items, command
from holdfast.cli.session import CliSession
from holdfast.cli.text import age, stamp, table
from holdfast.client.batches.report import UnitLine, failure_lines
from holdfast.domain.batches.batch import BatchId
from holdfast.domain.batches.batch_filter import BatchFilter
from holdfast.domain.batches.unit import UnitState
from holdfast.output.printer import Line
from holdfast.store import Store
from holdfast.worker.batches.conflicts import describe_owner


@command("ls", answers=Items("batches", BatchView))
@with_batch_filter(
    click.option(
        "-n", "--limit", default=20, show_default=True, type=click.IntRange(1, 1000), help="Maximum number of rows."
    ),
    click.option("--before", type=click.IntRange(1), metavar="ID", help="Batches before this one: the next page."),
)
def ls(session: CliSession, *, chosen: BatchFilter, limit: int, before: int | None) -> None:
    """List batches, the newest first.

    \b
    Examples:
      holdfast batch ls --state stopped --function 'resync*'
      holdfast batch ls --owner ada --since 2d
    """
    session.output.items("batches", _matches(session.store, chosen, before, limit), _batch_table)


def _matches(store: Store, chosen: BatchFilter, before: int | None, limit: int) -> Iterator[BatchView]:
    """The first *limit* batches that match, from as many pages as needed."""
    while limit > 0:
        page = list_batches(store, chosen, before=before, limit=limit)
        yield from page.batches
        limit -= len(page.batches)
        before = page.next
        if before is None:
            return


@command("show", answers=BatchView)
@click.argument("batch_id", type=click.IntRange(1))
def show(session: CliSession, *, batch_id: int) -> None:
    """Show one batch: its counts, who works on it, what stopped it."""
    view = view_of(session.store, batch_id)
    session.output.value(view, lambda: batch_lines(view))


@command("history", answers=Items("events", BatchEventView))
@click.argument("batch_id", type=click.IntRange(1))
@click.option(
    "-n", "--limit", default=50, show_default=True, type=click.IntRange(1, 1000), help="Maximum number of rows."
)
def history(session: CliSession, *, batch_id: int, limit: int) -> None:
    """Show the history of a batch, the newest first: its runs, requests of people, why it stopped."""
    batch = session.store.batches.get(BatchId(batch_id))
    session.output.items("events", batch_history(session.store, batch, limit=limit), _event_table)


@command("units", answers=Items("units", UnitLine))
@click.argument("batch_id", type=click.IntRange(1))
@click.option("-s", "--state", type=click.Choice([state.value for state in UnitState]), help="Only these.")
def units(session: CliSession, *, batch_id: int, state: str | None) -> None:
    """List the units of a batch's ledger, by key."""
    session.store.batches.get(BatchId(batch_id))
    only = None if state is None else UnitState(state)
    session.output.items("units", all_units(session.store, BatchId(batch_id), state=only), _unit_table)


def view_of(store: Store, batch_id: int) -> BatchView:
    return batch_views(store, [store.batches.get(BatchId(batch_id))])[0]


def batch_lines(view: BatchView) -> Iterator[str]:
    yield f"batch {view.id}  {view.state}  {view.kind} over {view.name or view.source}"
    yield f"  generation {view.generation}, {view.runs} runs"
    if view.arguments:
        yield f"  arguments {msgspec.json.encode(view.arguments).decode()}"
    for name, value in msgspec.to_builtins(view.summary).items():
        if value and name != "labels":
            yield f"  {name.replace('_', ' '):9} {value}"
    yield from (f"  {label:9} {count}" for label, count in view.summary.labels.items())
    yield from (f"  stopped by {line}" for line in failure_lines(view.failures))
    yield from (f"  held by   {describe_owner(holder)}" for holder in view.holders)


def _batch_table(views: Iterable[BatchView]) -> Iterator[Line]:
    def row(view: BatchView) -> list[str]:
        counts = [view.summary.succeeded, view.summary.failed, view.summary.pending, view.runs]
        names = [str(view.id), view.state, view.kind, view.name or view.source]
        return [*names, *(f"{n:,}" for n in counts), age(view.created_at), view.actor or ""]

    heads = ("ID", "STATE", "FUNCTION", "OVER", "DONE", "FAILED", "PENDING", "RUNS", "AGE", "OWNER")
    return table(heads, (row(view) for view in views))


def _event_table(events: Iterable[BatchEventView]) -> Iterator[Line]:
    def row(event: BatchEventView) -> list[str]:
        return [stamp(event.at), str(event.run), event.event.replace("_", " "), event.actor or "", event.text]

    return table(("AT", "RUN", "EVENT", "BY", "NOTE"), (row(event) for event in events))


def _unit_table(lines: Iterable[UnitLine]) -> Iterator[Line]:
    def row(unit: UnitLine) -> list[str]:
        note = (unit.error or unit.warning or "").partition("\n")[0]
        if unit.earlier_errors:
            newest = unit.earlier_errors[-1].partition("\n")[0]
            note = "; ".join(filter(None, [note, f"{len(unit.earlier_errors)} earlier, the last: {newest}"]))
        place = [age(unit.attempted_at), unit.worker or ""]
        return [str(unit.key), unit.status, str(unit.attempts), *place, unit.label or "", note]

    return table(("KEY", "STATE", "TRIES", "TRIED", "WORKER", "LABEL", "NOTE"), (row(unit) for unit in lines))
