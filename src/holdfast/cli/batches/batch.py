"""``batch`` with its sub-commands: batches of units, from run to export."""

from __future__ import annotations

import csv
import os
import threading
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import IO, Any

import click
import msgspec
from msgspec import Struct

from holdfast.admin.actions.actions import Actions
from holdfast.admin.views.batches import BatchView, all_units
from holdfast.cli.batches.actions import add_actions
from holdfast.cli.batches.list import batch_lines, history, ls, show, units, view_of
from holdfast.cli.command import CommandGroup, command
from holdfast.cli.session import CliSession, load_object
from holdfast.client.batches.function import UnitFunction
from holdfast.client.batches.options import UnitOptions, run_options
from holdfast.client.batches.remote import run_anywhere
from holdfast.client.batches.report import RunAnswer, UnitLine
from holdfast.domain.access.roles import Via
from holdfast.domain.batches.batch import BatchId, BatchState, exit_code, sharding_of
from holdfast.domain.batches.unit import UnitState
from holdfast.errors import ConfigurationError, InvalidInput
from holdfast.options import BatchArguments, own_options, parse_arguments
from holdfast.output.progress_bar import progress
from holdfast.store import Store
from holdfast.store.access.audit import AuditedAction

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


@command("attach", group=batch, answers=BatchView)
@click.argument("batch_id", type=click.IntRange(1))
def attach(session: CliSession, *, batch_id: int) -> int:
    """Watch a batch from here until its run ends; the exit code is that of the run."""
    store, pause = session.store, threading.Event()
    with progress(session.output, f"batch {batch_id}", view_of(store, batch_id).summary.total) as update:
        while _is_active(store, BatchId(batch_id)):
            summary = view_of(store, batch_id).summary
            update(summary.total - summary.pending, summary.failed)
            pause.wait(POLL_INTERVAL_S)
    view = view_of(store, batch_id)
    session.output.value(view, lambda: batch_lines(view))
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
    session.store.batches.get(BatchId(batch_id))
    only = None if state is None else UnitState(state)
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with open(unfinished, "x", encoding="utf-8", newline="", opener=partial(os.open, mode=0o600)) as out:
            count = write(out, all_units(session.store, BatchId(batch_id), state=only))
            out.flush()
            os.fsync(out.fileno())
        unfinished.replace(file)
    except OSError as error:
        raise InvalidInput(f"{file} cannot be written: {error.strerror or error}") from None
    finally:
        unfinished.unlink(missing_ok=True)
    answer = ExportAnswer(batch_id, str(file), count)
    session.output.value(answer, lambda: [f"{count:,} units of batch {batch_id} are in {file}"])


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


for each in (ls, show, units, history):
    batch.add_command(each)
add_actions(batch)
