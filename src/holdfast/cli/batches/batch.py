"""``batch`` with its sub-commands: batches of units, from run to export, and the actions on them."""

from __future__ import annotations

import csv
import os
import threading
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

import click
import msgspec
from msgspec import Struct

from holdfast.admin.actions.actions import Actions
from holdfast.admin.actions.batches import DEFAULT_STATES
from holdfast.admin.actions.changed import Changed
from holdfast.admin.actions.table import Action, Target, actions_on
from holdfast.admin.views.batches import BatchReader, BatchView
from holdfast.cli.action import action_command, action_flags, action_help, perform_confirmed
from holdfast.cli.batches.list import batch_lines, history, ls, show, units, with_batch_filter
from holdfast.cli.command import CommandGroup, HoldfastCommand, command
from holdfast.cli.session import CliSession, load_object
from holdfast.client.batches.function import UnitFunction
from holdfast.client.batches.options import UnitOptions, run_options
from holdfast.client.batches.report import RunAnswer, UnitLine
from holdfast.client.batches.run import run_anywhere
from holdfast.domain.access.audit import Via
from holdfast.domain.batches.batch import BatchId
from holdfast.domain.batches.batch_filter import BatchFilter
from holdfast.domain.batches.unit import UnitState
from holdfast.errors import ConfigurationError, InvalidInput
from holdfast.options import BatchArguments, own_options, parse_arguments
from holdfast.output.progress_bar import progress

POLL_INTERVAL_S = 0.5
ONE_BATCH = click.argument("batch_id", type=click.IntRange(1))
OLDER_THAN = click.option(
    "--older-than", metavar="AGE", help="Batches that finished or started longer ago than this: 7d."
)


class ExportAnswer(Struct, frozen=True):
    """The file with the units of a batch."""

    batch: int
    file: str
    units: int


@click.group("batch", cls=CommandGroup)
def batch() -> None:
    """Run a function over many units, and continue after a stop. List, pause, resume, cancel and retry batches."""


@command("run", group=batch, answers=RunAnswer, changes=True)
@click.argument("target", metavar="MODULE:FUNCTION")
@own_options
@click.option("--set", "arguments", multiple=True, metavar="NAME=JSON", help="Argument of the function.")
def run(session: CliSession, *, target: str, batch: BatchArguments, arguments: tuple[str, ...]) -> int:
    """Run a function over many units. The same command continues where it stopped.

    The first parameter of the function is the key. Ctrl-C lets running units finish (exit 7); a second one stops at
    once (130). Exit 6: some units failed; 1: all failed; 8: too many failures; 9: another run holds the batch.

    Examples:
      holdfast batch run mail.jobs:resync --range 53000-53100 --jobs 8
      holdfast batch run mail.jobs:resync --from ids.txt --set replace=true
    """
    function = _function(target)
    bound = function.bind(**parse_arguments(arguments))
    keys = batch.keys(function)
    own = function.store if session.url_flag is None else None
    store = session.store if own is None else own()
    audit = Actions(store, actor=session.actor, via=Via.CLI).describe(
        "batch run",
        lambda batch_ids: f"batch={batch_ids[0]}",
        note=target,
        changes=lambda opened: [] if opened is None else [opened.batch.id],
    )
    options = run_options(**{**batch.run, "output": session.output, "actor": session.actor, "audit": audit})
    if not options.dry_run:
        session.output.keep_stdout()
    return run_anywhere(store, bound, keys, options).exit_code


def _function(target: str) -> UnitFunction[..., Any]:
    function = load_object(target)
    if isinstance(function, UnitFunction):
        return function
    if not callable(function):
        raise ConfigurationError(
            f"{target} is not a function", hint="Name a function whose first parameter is the key."
        )
    return UnitFunction(function, UnitOptions(name=target), origin=target)


@command("attach", group=batch, answers=BatchView)
@ONE_BATCH
def attach(session: CliSession, *, batch_id: int) -> int:
    """Watch a batch until its run ends. The exit code is that of the run.

    Examples:
      holdfast batch attach 7
    """
    batch, pause = BatchReader(session.store, batch_id), threading.Event()
    with progress(session.output, f"batch {batch_id}", batch.view.summary.total) as update:
        while batch.is_active:
            summary = batch.view.summary
            update(summary.over + summary.in_inbox, summary.failed)
            pause.wait(POLL_INTERVAL_S)
            batch = BatchReader(session.store, batch_id)
    session.output.value(batch.view, lambda: batch_lines(batch.view))
    return batch.exit_code


@command("export", group=batch, answers=ExportAnswer)
@ONE_BATCH
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "-s", "--state", type=click.Choice([state.value for state in UnitState]), help="Only units in this state."
)
def export(session: CliSession, *, batch_id: int, file: Path, state: str | None) -> None:
    """Write the units of a batch to a .csv or .ndjson file.

    Examples:
      holdfast batch export 7 units.csv
      holdfast batch export 7 failed.ndjson --state failed
    """
    write = {".csv": _write_csv, ".ndjson": _write_ndjson, ".jsonl": _write_ndjson}.get(file.suffix)
    if write is None:
        raise InvalidInput(f"{file.name!r} has no known format", hint="End its name with .csv or .ndjson.")
    batch = BatchReader(session.store, batch_id)
    only = None if state is None else UnitState(state)
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with open(unfinished, "x", encoding="utf-8", newline="", opener=partial(os.open, mode=0o600)) as out:
            count = write(out, batch.all_units(state=only))
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


def _perform(name: str, session: CliSession, *, batch_id: int, dry_run: bool) -> Changed:
    with progress(session.output, f"{name} {batch_id}", None) as update:
        return session.actions.batches.perform(
            name, BatchId(batch_id), dry_run=dry_run, on_step=lambda count: update(count, 0)
        )


def _command_on_many(action: Action) -> HoldfastCommand:
    @command(action.name, answers=Changed, changes=True, creates=False)
    @click.argument("ids", nargs=-1, type=click.IntRange(1))
    @with_batch_filter(OLDER_THAN, *action_flags(action, None))
    def change(session: CliSession, *, ids: tuple[int, ...], chosen: BatchFilter, dry_run: bool, yes: bool) -> int:
        matches = session.actions.batches.select(action.name, chosen, ids=ids)
        perform = partial(_perform_on_many, action.name)
        return perform_confirmed(session, action, perform, dry_run=dry_run, yes=yes, ids=matches)

    change.help = action_help(action)
    return change


def _perform_on_many(name: str, session: CliSession, *, ids: Sequence[BatchId], dry_run: bool) -> Changed:
    with progress(session.output, f"{name} {len(ids)} batches", None) as update:
        return session.actions.batches.perform_on_many(
            name, ids, dry_run=dry_run, on_step=lambda count: update(count, 0)
        )


for each in (ls, show, units, history):
    batch.add_command(each)
for action in actions_on(Target.BATCH).values():
    if action.name in DEFAULT_STATES:
        batch.add_command(_command_on_many(action))
    else:
        action_command(action, partial(_perform, action.name), ONE_BATCH, group=batch)
