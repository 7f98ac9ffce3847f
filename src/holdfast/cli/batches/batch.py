"""``batch`` with its sub-commands: batches of units, from run to export."""

from __future__ import annotations

import csv
import os
import threading
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

import click
import msgspec
from msgspec import Struct

from holdfast.admin.actions.actions import Actions
from holdfast.admin.actions.changed import Changed
from holdfast.admin.actions.table import Target, actions_on
from holdfast.admin.views.batches import BatchView, batch_secrets, batch_view, unit_view
from holdfast.cli.action import action_command
from holdfast.cli.command import CommandGroup, Items, command
from holdfast.cli.session import CliSession, load_object
from holdfast.cli.text import age, table
from holdfast.client.batches.function import UnitFunction
from holdfast.client.batches.options import UnitOptions, run_options
from holdfast.client.batches.remote import run_anywhere
from holdfast.client.batches.report import RunAnswer, UnitLine, failure_lines
from holdfast.domain.access.roles import Via
from holdfast.domain.batches.batch import Batch, BatchId, BatchState, exit_code, sharding_of
from holdfast.domain.batches.unit import UnitState
from holdfast.errors import ConfigurationError, InvalidInput
from holdfast.options import BatchArguments, own_options, parse_arguments
from holdfast.output.printer import Line
from holdfast.output.progress_bar import progress
from holdfast.store import Store
from holdfast.store.access.audit import AuditedAction
from holdfast.worker.batches.conflicts import describe_owner

POLL_INTERVAL_S = 0.5


class ExportAnswer(Struct, frozen=True):
    """The file with the units of a batch."""

    batch: int
    file: str
    units: int


@click.group("batch", cls=CommandGroup)
def batch() -> None:
    """Run a function over many units, resumable; look at batches, pause, resume, cancel and retry them."""


@command("run", group=batch, answers=RunAnswer, changes=True)
@click.argument("target", metavar="MODULE:FUNCTION")
@own_options
@click.option("--set", "arguments", multiple=True, metavar="NAME=JSON", help="An argument of the function.")
def run(session: CliSession, *, target: str, batch: BatchArguments, arguments: tuple[str, ...]) -> int:
    """Run a function over many units, here and now; the same line again goes on where it stopped.

    The function's first parameter is the key. Ctrl-C lets units under way end (exit 7), twice leaves
    at once (130). Exit 6: some failed; 1: all failed; 8: too many failures; 9: another run is at it.

    \b
    Examples:
      holdfast batch run mail.jobs:resync --range 53000-53100 --jobs 8
      holdfast batch run mail.jobs:resync --from ids.txt --set replace=true
    """
    function = _function(target)
    bound = function.bind(**parse_arguments(arguments))
    keys = batch.keys(function)
    own = function.store if session.url_flag is None else None
    store = session.store if own is None else own()
    audit = _describe_run(Actions(store, actor=session.actor, via=Via.CLI), target)
    options = run_options(**{**batch.run, "output": session.output, "actor": session.actor, "audit": audit})
    if not options.dry_run:
        session.output.keep_stdout()
    return run_anywhere(store, bound, keys, options).exit_code


def _describe_run(actions: Actions, target: str) -> AuditedAction:
    return actions.describe(
        "batch run",
        lambda batch_ids: f"batch={batch_ids[0]}",
        note=target,
        changes=lambda opened: [] if opened is None else [opened.batch.id],
    )


def _function(target: str) -> UnitFunction[..., Any]:
    function = load_object(target)
    if isinstance(function, UnitFunction):
        return function
    if not callable(function):
        raise ConfigurationError(f"{target} is no function", hint="Name a function whose first parameter is the key.")
    return UnitFunction(function, UnitOptions(name=target))


@command("ls", group=batch, answers=Items("batches", BatchView))
@click.option("-n", "--limit", default=20, show_default=True, type=click.IntRange(1, 1000), help="At most so many.")
def ls(session: CliSession, *, limit: int) -> None:
    """List batches, the newest first."""
    session.output.items("batches", _views(session.store, *session.store.batches.page(limit=limit)), _batch_table)


@command("show", group=batch, answers=BatchView)
@click.argument("batch_id", type=click.IntRange(1))
def show(session: CliSession, *, batch_id: int) -> None:
    """Show one batch: its counts, who works on it, what stopped it."""
    view = _view(session.store, batch_id)
    session.output.value(view, lambda: _batch_lines(view))


@command("units", group=batch, answers=Items("units", UnitLine))
@click.argument("batch_id", type=click.IntRange(1))
@click.option("-s", "--state", type=click.Choice([state.value for state in UnitState]), help="Only these.")
def units(session: CliSession, *, batch_id: int, state: str | None) -> None:
    """List the units of a batch's ledger, by key."""
    batch = session.store.batches.get(BatchId(batch_id))
    session.output.items("units", _all_units(session.store, batch, state), _unit_table)


@command("attach", group=batch, answers=BatchView)
@click.argument("batch_id", type=click.IntRange(1))
def attach(session: CliSession, *, batch_id: int) -> int:
    """Watch a batch from here until its run ends; the exit code is that of the run."""
    store, pause = session.store, threading.Event()
    with progress(session.output, f"batch {batch_id}", _view(store, batch_id).summary.total) as update:
        while _is_active(store, BatchId(batch_id)):
            summary = _view(store, batch_id).summary
            update(summary.total - summary.pending, summary.failed)
            pause.wait(POLL_INTERVAL_S)
    view = _view(store, batch_id)
    session.output.value(view, lambda: _batch_lines(view))
    return exit_code(store.batches.counters(BatchId(batch_id)), view.summary.aborted_by)


def _is_active(store: Store, batch_id: BatchId) -> bool:
    """Whether a run holds the batch, or workers will continue it."""
    batch = store.batches.get(batch_id)
    on_workers = batch.state is BatchState.RUNNING and sharding_of(batch) is not None
    return on_workers or bool(store.batches.holders(batch_id))


@command("export", group=batch, answers=ExportAnswer)
@click.argument("batch_id", type=click.IntRange(1))
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("-s", "--state", type=click.Choice([state.value for state in UnitState]), help="Only these.")
def export(session: CliSession, *, batch_id: int, file: Path, state: str | None) -> None:
    """Write the units of a batch to a file: .csv, or .ndjson with one JSON object per line."""
    write = {".csv": _write_csv, ".ndjson": _write_ndjson, ".jsonl": _write_ndjson}.get(file.suffix)
    if write is None:
        raise InvalidInput(f"{file.name!r} says no format", hint="End its name with .csv or .ndjson.")
    batch = session.store.batches.get(BatchId(batch_id))
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with open(unfinished, "x", encoding="utf-8", newline="", opener=partial(os.open, mode=0o600)) as out:
            count = write(out, _all_units(session.store, batch, state))
            out.flush()
            os.fsync(out.fileno())
        unfinished.replace(file)
    except OSError as error:
        raise InvalidInput(f"{file} cannot be written: {error.strerror or error}") from None
    finally:
        unfinished.unlink(missing_ok=True)
    answer = ExportAnswer(batch_id, str(file), count)
    session.output.value(answer, lambda: [f"{count:,} units of batch {batch_id} are in {file}"])


def _all_units(store: Store, batch: Batch, state: str | None) -> Iterator[UnitLine]:
    """The units of a batch in the order of their keys, read page by page."""
    after, only, secrets = "", None if state is None else UnitState(state), batch_secrets(batch)
    while page := store.batches.units(batch.id, state=only, after=after):
        yield from (unit_view(unit, secrets) for unit in page)
        after = page[-1].key


def _write_csv(out: IO[str], units: Iterable[UnitLine]) -> int:
    names = UnitLine.__struct_fields__
    rows, count = csv.writer(out), 0
    rows.writerow(names)
    for unit in units:
        cells = (getattr(unit, name) for name in names)
        rows.writerow([msgspec.json.encode(cell).decode() if isinstance(cell, dict | list) else cell for cell in cells])
        count += 1
    return count


def _write_ndjson(out: IO[str], units: Iterable[UnitLine]) -> int:
    count = 0
    for unit in units:
        out.write(msgspec.json.encode(unit).decode() + "\n")
        count += 1
    return count


def _perform(name: str, session: CliSession, *, batch_id: int, dry_run: bool) -> Changed:
    with progress(session.output, f"{name} {batch_id}", None) as update:
        return session.actions.batches.perform(
            name, BatchId(batch_id), dry_run=dry_run, on_step=lambda count: update(count, 0)
        )


for _action in actions_on(Target.BATCH).values():
    action_command(
        _action, partial(_perform, _action.name), click.argument("batch_id", type=click.IntRange(1)), group=batch
    )


def _views(store: Store, *batches: Batch) -> list[BatchView]:
    statuses = store.ledger.statuses([batch.id for batch in batches])
    return [batch_view(batch, statuses[batch.id]) for batch in batches]


def _view(store: Store, batch_id: int) -> BatchView:
    return _views(store, store.batches.get(BatchId(batch_id)))[0]


def _batch_table(views: Iterable[BatchView]) -> Iterator[Line]:
    def row(view: BatchView) -> list[str]:
        counts = [view.summary.succeeded, view.summary.failed, view.summary.pending, view.runs]
        names = [str(view.id), view.state, view.kind, view.name or view.source]
        return [*names, *(f"{n:,}" for n in counts), age(view.created_at)]

    heads = ("ID", "STATE", "FUNCTION", "OVER", "DONE", "FAILED", "PENDING", "RUNS", "AGE")
    return table(heads, (row(view) for view in views))


def _batch_lines(view: BatchView) -> Iterator[str]:
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


def _unit_table(units: Iterable[UnitLine]) -> Iterator[Line]:
    def row(unit: UnitLine) -> list[str]:
        note = (unit.error or unit.warning or "").partition("\n")[0]
        return [str(unit.key), unit.status, str(unit.attempts), unit.label or "", note]

    return table(("KEY", "STATE", "TRIES", "LABEL", "NOTE"), (row(unit) for unit in units))
