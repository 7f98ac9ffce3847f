"""``batch``: long work over many units, run here, looked at and steered from anywhere."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

import click
import msgspec

from holdfast.admin.actions.actions import Steered
from holdfast.admin.views.batches import BatchView, batch_view
from holdfast.cli.app_loader import load_object
from holdfast.cli.batches.export import all_units, export
from holdfast.cli.command import CommandGroup, Items, command
from holdfast.cli.session import Session
from holdfast.cli.text import age, table
from holdfast.client.batches.function import UnitFunction, UnitOptions
from holdfast.client.batches.local import RunOptions
from holdfast.client.batches.remote import run_anywhere
from holdfast.client.batches.report import RunAnswer, UnitLine
from holdfast.domain.batches.batch import Batch, BatchId, BatchState, UnitState, exit_code
from holdfast.domain.batches.sharding import sharding_of
from holdfast.errors import ConfigurationError
from holdfast.options import BatchArguments, own_options, parse_arguments
from holdfast.output.printer import Line
from holdfast.output.progress import progress
from holdfast.store import Store
from holdfast.worker.batches import owner

#: How often a watcher looks, in seconds.
LOOK_EVERY = 0.5


@click.group("batch", cls=CommandGroup)
def batch() -> None:
    """Run a function over many units, resumable; look at batches, pause, resume, cancel and retry them."""


@command("run", answers=RunAnswer, changes=True)
@click.argument("target", metavar="MODULE:FUNCTION")
@own_options
@click.option("--set", "arguments", multiple=True, metavar="NAME=JSON", help="An argument of the function.")
def run(
    session: Session,
    *,
    target: str,
    batch: BatchArguments,
    arguments: tuple[str, ...],
) -> int:
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
    options = RunOptions(**{**batch.run, "output": session.output, "actor": session.actor})
    if not options.dry_run:
        session.output.keep_stdout()
    return run_anywhere(_store(session, function), bound, keys, options).exit_code


def _function(target: str) -> UnitFunction[..., Any]:
    found = load_object(target)
    if isinstance(found, UnitFunction):
        return found
    if not callable(found):
        raise ConfigurationError(f"{target} is no function", hint="Name a function whose first parameter is the key.")
    return UnitFunction(found, UnitOptions(name=target))


def _store(session: Session, function: UnitFunction[..., Any]) -> Store:
    """The store of the function's own application, unless the line names another."""
    own = function.store
    return own() if own is not None and session.asked_url is None else session.store


@command("ls", answers=Items("batches", BatchView))
@click.option("-n", "--limit", default=20, show_default=True, type=click.IntRange(1, 1000), help="At most so many.")
def ls(session: Session, *, limit: int) -> None:
    """List batches, the newest first."""
    found = _facts(session.store, *session.store.batches.page(limit=limit))
    session.output.items("batches", found, _table)


@command("show", answers=BatchView)
@click.argument("batch_id", type=click.IntRange(1))
def show(session: Session, *, batch_id: int) -> None:
    """Show one batch: its counts, who works on it, what stopped it."""
    facts = _one(session.store, batch_id)
    session.output.value(facts, lambda: _lines(facts))


@command("units", answers=Items("units", UnitLine))
@click.argument("batch_id", type=click.IntRange(1))
@click.option("-s", "--state", type=click.Choice([state.value for state in UnitState]), help="Only these.")
def units(session: Session, *, batch_id: int, state: str | None) -> None:
    """List the units of a batch's ledger, by key."""
    session.store.batches.get(BatchId(batch_id))
    found = all_units(session.store, BatchId(batch_id), state)
    session.output.items("units", found, _unit_table)


@command("attach", answers=BatchView)
@click.argument("batch_id", type=click.IntRange(1))
def attach(session: Session, *, batch_id: int) -> int:
    """Watch a batch from here until its run ends; the exit code is that of the run."""
    store, pause = session.store, threading.Event()
    found = _one(store, batch_id)
    with progress(session.output, f"batch {batch_id}", found.summary.total) as tell:
        while _is_under_way(store, BatchId(batch_id)):
            found = _one(store, batch_id)
            tell(found.summary.total - found.summary.pending, found.summary.failed)
            pause.wait(LOOK_EVERY)
    found = _one(store, batch_id)
    session.output.value(found, lambda: _lines(found))
    return exit_code(store.batches.counters(BatchId(batch_id)), found.summary.aborted_by)


def _is_under_way(store: Store, batch_id: BatchId) -> bool:
    """Whether somebody works on it, or the workers will."""
    found = store.batches.get(batch_id)
    return (found.state is BatchState.RUNNING and sharding_of(found) is not None) or bool(
        store.batches.holders(batch_id)
    )


def _verb(name: str, text: str) -> Any:
    @command(name, answers=Steered, changes=True)
    @click.argument("batch_id", type=click.IntRange(1))
    def action(session: Session, *, batch_id: int) -> None:
        done = session.actions.batch(name, BatchId(batch_id))
        told = "" if done.units is None else f", {done.units:,} units"
        text = f"{name} {batch_id}{told}" if done.changed else f"{name} {batch_id}: nothing to do"
        session.output.value(done, lambda: [text])

    action.help = text
    return action


for _command in (
    run,
    ls,
    show,
    units,
    attach,
    export,
    _verb("pause", "Start no more units; what runs may end."),
    _verb("resume", "Let a paused batch go on: the workers do, a run here when it is started again."),
    _verb("cancel", "Cancel every unit that has not ended."),
    _verb("retry-failed", "Let failed units run again: on workers at once, here in the next run."),
    _verb("rm", "Forget a batch with its ledger, if nobody runs it."),
):
    batch.add_command(_command)


def _facts(store: Store, *found: Batch) -> list[BatchView]:
    standings = store.ledger.statuses([each.id for each in found])
    return [batch_view(each, standings[each.id]) for each in found]


def _one(store: Store, batch_id: int) -> BatchView:
    return _facts(store, store.batches.get(BatchId(batch_id)))[0]


def _table(batches: Iterable[BatchView]) -> Iterator[Line]:
    heads = ("ID", "STATE", "FUNCTION", "OVER", "DONE", "FAILED", "PENDING", "RUNS", "AGE")
    return table(heads, (_row(each) for each in batches))


def _row(facts: BatchView) -> list[str]:
    counts = [facts.summary.succeeded, facts.summary.failed, facts.summary.pending, facts.runs]
    over = facts.name or facts.source
    return [str(facts.id), facts.state, facts.kind, over, *(f"{n:,}" for n in counts), age(facts.created_at)]


def _lines(facts: BatchView) -> Iterator[str]:
    yield f"batch {facts.id}  {facts.state}  {facts.kind} over {facts.name or facts.source}"
    yield f"  generation {facts.generation}, {facts.runs} runs"
    if facts.arguments:
        yield f"  arguments {msgspec.json.encode(facts.arguments).decode()}"
    for name, value in msgspec.to_builtins(facts.summary).items():
        if value and name != "labels":
            yield f"  {name.replace('_', ' '):9} {value}"
    yield from (f"  {label:9} {count}" for label, count in facts.summary.labels.items())
    yield from (f"  held by   {owner.say(holder)}" for holder in facts.holders)


def _unit_table(found: Iterable[UnitLine]) -> Iterator[Line]:
    def row(unit: UnitLine) -> list[str]:
        note = (unit.error or unit.warning or "").partition("\n")[0]
        return [str(unit.key), unit.status, str(unit.attempts), unit.label or "", note]

    return table(("KEY", "STATE", "TRIES", "LABEL", "NOTE"), (row(unit) for unit in found))
