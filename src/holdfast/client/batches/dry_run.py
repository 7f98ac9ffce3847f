"""Dry runs of batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from holdfast.client.batches.batch_claim import run_request
from holdfast.client.batches.function import BoundFunction
from holdfast.client.batches.keys import first_key, read_input, selected_keys
from holdfast.client.batches.options import RunOptions, Selection
from holdfast.client.batches.report import BatchResult, RunAnswer
from holdfast.domain.batches.batch import BatchState, Summary
from holdfast.domain.batches.unit import UnitKey
from holdfast.store import Store
from holdfast.worker.batches.source import numbered

NOTHING_TO_DO_EXIT_CODE = 13
LOOKUP_CHUNK = 1000


def dry_run(store: Store, bound: BoundFunction, keys: Iterable[Any], options: RunOptions) -> BatchResult | None:
    """The result of a dry run, or of ``once`` when nothing is left to do; None when the run has to happen."""
    answer, clean = _plan(store, bound, keys, options)
    nothing_to_do = options.once and clean
    if not options.dry_run and not nothing_to_do:
        return None
    text = "nothing to do: the batch is done" if nothing_to_do else f"{answer.summary.pending:,} units would be run"
    options.printer().value(answer, lambda: [text])
    return BatchResult(None, answer.summary, NOTHING_TO_DO_EXIT_CODE if nothing_to_do else 0)


def _plan(store: Store, bound: BoundFunction, keys: Iterable[Any], options: RunOptions) -> tuple[RunAnswer, bool]:
    """Compare the keys with the ledger, without writing. Also returns whether the last generation finished clean."""
    identity = run_request(bound, keys, options).identity
    # ``once`` alone reads no key: an iterator belongs to the run.
    chosen = _selected(bound, keys, options.selection) if options.dry_run else iter(())
    latest = store.batches.latest(identity)
    clean = latest is not None and latest.state is BatchState.DONE
    if latest is None or clean or latest.state is BatchState.CANCELLED or options.fresh:
        generation = 1 if latest is None else latest.generation + 1
        summary = _summary(sum(1 for _ in chosen), 0, limit=options.selection.limit)
        return RunAnswer(None if latest is None else latest.id, generation, summary, dry_run=True), clean
    to_run, finished, again = 0, 0, options.selection.resume_from is not None
    while chunk := list(islice(chosen, LOOKUP_CHUNK)):
        known = store.batches.count_finished(latest.id, chunk, retry_failed=options.retry_failed, again=again)
        to_run, finished = to_run + len(chunk) - known, finished + known
    summary = _summary(to_run, finished, limit=options.selection.limit)
    return RunAnswer(latest.id, latest.generation, summary, dry_run=True), clean


def _selected(bound: BoundFunction, keys: Iterable[Any], selection: Selection) -> Iterator[UnitKey]:
    """The keys that a run would consider: all, from ``resume_from`` on, or ``only`` some."""
    only = selected_keys(bound.function, keys, selection)
    first = first_key(bound.function, keys, selection)
    return (key for key, _ in numbered(read_input(keys), first) if only is None or key in only)


def _summary(to_run: int, finished: int, *, limit: int | None) -> Summary:
    """The summary before a run; all finished units count as succeeded, independent of their state.

    *pending* are the units that would be run: no more than *limit*.
    """
    pending = to_run if limit is None else min(to_run, limit)
    return Summary(total=to_run + finished, succeeded=finished, failed=0, skipped=0, cancelled=0, pending=pending)
