"""``batch ls``, ``batch show``, ``batch units``, ``batch history``, and the options that select batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import click
import msgspec

from holdfast.admin.views.batches import BatchEventView, BatchReader, BatchView, list_batches
from holdfast.cli.command import Items, command, limit_option, with_options
from holdfast.cli.session import CliSession
from holdfast.cli.text import Column, Table, age_column, count_column, local_day, sortable_key, time_column, with_table
from holdfast.client.batches.report import UnitLine, failure_lines
from holdfast.domain.batches.batch import BatchState
from holdfast.domain.batches.batch_filter import BatchFilter, batch_filter
from holdfast.domain.batches.unit import UnitState
from holdfast.store import Store
from holdfast.worker.batches.conflicts import describe_owner


def _unit_note(unit: UnitLine) -> str:
    note = (unit.error or unit.warning or "").partition("\n")[0]
    if not unit.earlier_errors:
        return note
    newest = unit.earlier_errors[-1].partition("\n")[0]
    return "; ".join(filter(None, [note, f"{len(unit.earlier_errors)} earlier, the last: {newest}"]))


BATCHES: Table[BatchView] = Table(
    (
        Column("ID", lambda view: view.id),
        Column("STATE", lambda view: view.shown_state),
        Column("FUNCTION", lambda view: view.kind),
        Column("OVER", lambda view: view.name or view.source),
        count_column("DONE", lambda view: view.summary.succeeded),
        count_column("FAILED", lambda view: view.summary.failed),
        count_column("PENDING", lambda view: view.summary.pending),
        count_column("RUNS", lambda view: view.runs),
        age_column("AGE", lambda view: view.created_at),
        time_column("STARTED", lambda view: view.started_at, wide=True),
        time_column("FINISHED", lambda view: view.finished_at, wide=True),
        Column("ABORTED BY", lambda view: view.aborted_by, wide=True),
        Column("REQUEST", lambda view: view.requested, wide=True),
        Column("OWNER", lambda view: view.actor),
    ),
    key="id",
)
EVENTS: Table[BatchEventView] = Table(
    (
        time_column("AT", lambda event: event.at),
        Column("RUN", lambda event: event.run),
        Column("EVENT", lambda event: event.event.replace("_", " ")),
        Column("BY", lambda event: event.actor),
        Column("NOTE", lambda event: event.text),
    )
)
UNITS: Table[UnitLine] = Table(
    (
        Column("KEY", lambda unit: unit.key, lambda unit: sortable_key(unit.key)),
        Column("STATE", lambda unit: unit.status),
        Column("TRIES", lambda unit: unit.attempts),
        age_column("TRIED", lambda unit: unit.attempted_at),
        Column("MS", lambda unit: unit.duration_ms, wide=True),
        Column("WORKER", lambda unit: unit.worker),
        Column("LABEL", lambda unit: unit.label),
        Column("NOTE", _unit_note),
    ),
    key="key",
)
_STATES = click.Choice([state.value for state in BatchState])
_FILTER_OPTIONS = (
    click.option("-s", "--state", "states", multiple=True, type=_STATES, help="Batches in this state."),
    click.option("-f", "--function", metavar="NAME", help="Batches of this function; * matches any text."),
    click.option("--name", metavar="NAME", help="Batches with this name or these keys; * matches any text."),
    click.option("--owner", metavar="NAME", help="Batches that this person started; * matches any text."),
    click.option(
        "--since", metavar="WHEN", callback=local_day, help="Started since: 2d, yesterday, or 2030-01-01T06:00:00Z."
    ),
    click.option(
        "--until", metavar="WHEN", callback=local_day, help="Started before: 2d, yesterday, or 2030-01-01T06:00:00Z."
    ),
)
_FILTER_NAMES = ("states", "function", "name", "owner", "since", "until", "older_than")


def with_batch_filter(*more: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options that select batches, and *more*; the function receives the filter as ``chosen``."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def select(*args: Any, **options: Any) -> Any:
            conditions = {name: options.pop(name) for name in _FILTER_NAMES if name in options}
            return function(*args, chosen=batch_filter(**conditions), **options)

        return with_options(*_FILTER_OPTIONS, *more)(select)

    return decorate


@command("ls", answers=Items("batches", BatchView))
@with_batch_filter(
    limit_option(20, 1000),
    click.option(
        "--before", type=click.IntRange(1), metavar="ID", help="List batches before this one (the next page)."
    ),
)
@with_table(BATCHES)
def ls(session: CliSession, *, chosen: BatchFilter, limit: int, before: int | None, table: Table[BatchView]) -> None:
    """List batches, newest first.

    Examples:
      holdfast batch ls --state stopped --function 'resync*'
      holdfast batch ls --owner ada --since 2d
    """
    session.output.items("batches", _matches(session.store, chosen, before, limit), table.lines)


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
    """Show one batch: its counts, its runs, and why it stopped.

    Examples:
      holdfast batch show 7
    """
    view = BatchReader(session.store, batch_id).view
    session.output.value(view, lambda: batch_lines(view))


@command("history", answers=Items("events", BatchEventView))
@click.argument("batch_id", type=click.IntRange(1))
@limit_option(50, 1000)
@with_table(EVENTS)
def history(session: CliSession, *, batch_id: int, limit: int, table: Table[BatchEventView]) -> None:
    """Show the history of a batch, newest first.

    It has the runs, the requests of people, and the reason of each stop.

    Examples:
      holdfast batch history 7 -n 10
    """
    events = BatchReader(session.store, batch_id).history(limit=limit)
    session.output.items("events", events, table.lines)


@command("units", answers=Items("units", UnitLine))
@click.argument("batch_id", type=click.IntRange(1))
@click.option(
    "-s", "--state", type=click.Choice([state.value for state in UnitState]), help="Only units in this state."
)
@with_table(UNITS)
def units(session: CliSession, *, batch_id: int, state: str | None, table: Table[UnitLine]) -> None:
    """List the units of a batch by key.

    Examples:
      holdfast batch units 7 --state failed
    """
    only = None if state is None else UnitState(state)
    session.output.items("units", BatchReader(session.store, batch_id).all_units(state=only), table.lines)


def batch_lines(view: BatchView) -> Iterator[str]:
    yield f"batch {view.id}  {view.shown_state}  {view.kind} over {view.name or view.source}"
    yield f"  generation {view.generation}, {view.runs} runs"
    if view.origin is not None:
        yield f"  function  {view.origin}"
    if view.arguments:
        yield f"  arguments {msgspec.json.encode(view.arguments).decode()}"
    for name, value in msgspec.to_builtins(view.summary).items():
        if value and name not in ("labels", "other_labels"):
            yield f"  {name.replace('_', ' '):9} {value}"
    labels, others = view.summary.largest_labels()
    yield from (f"  {label:9} {count}" for label, count in labels.items())
    if others:
        yield f"  and {others:,} more labels"
    yield from (f"  stopped by {line}" for line in failure_lines(view.failures))
    yield from (f"  held by   {describe_owner(holder)}" for holder in view.holders)
