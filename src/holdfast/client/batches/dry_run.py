"""Dry runs of batches."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from holdfast.client.batches.batch_claim import run_request
from holdfast.client.batches.function import BoundFunction
from holdfast.client.batches.keys import KeyFile, first_key, read_input, selected_keys
from holdfast.client.batches.options import RunOptions, Selection
from holdfast.client.batches.report import BatchResult, RunAnswer
from holdfast.domain.batches.batch import Batch, BatchState, Summary
from holdfast.domain.batches.unit import UnitKey
from holdfast.store import Store
from holdfast.store.batches.runs import FOLLOWED, refuse_elsewhere
from holdfast.worker.batches.source import numbered

NOTHING_TO_DO_EXIT_CODE = 13
LOOKUP_CHUNK = 1000


def dry_run(store: Store, bound: BoundFunction, keys: Iterable[Any], options: RunOptions) -> BatchResult | None:
    """The result of a dry run, or of ``once`` when nothing is left to do; None when the run has to happen.

    Raises:
        Drift: A function of the same name, but from another place, made the last run of the open batch.
    """
    request = run_request(bound, keys, options)
    generations = store.batches.generations(request.identity)
    if generations:
        refuse_elsewhere(generations[0], request.origin, accept_drift=options.accept_drift)
    own = [each for each in generations if options.accept_drift or not each.is_elsewhere(request.origin)]
    nothing_to_do = options.once and bool(own) and _is_done(store, own[0], bound, keys, options.selection)
    if not options.dry_run and not nothing_to_do:
        return None
    answer = _plan(store, generations, bound, keys if options.dry_run else (), options)
    text = "nothing to do: the batch is done" if nothing_to_do else f"{answer.summary.pending:,} units would be run"
    options.printer().value(answer, lambda: [text])
    return BatchResult(None, answer.summary, NOTHING_TO_DO_EXIT_CODE if nothing_to_do else 0)


def _is_done(store: Store, last: Batch, bound: BoundFunction, keys: Iterable[Any], selection: Selection) -> bool:
    """Whether the last generation finished without failures, and has all keys of this input.

    The keys of a range are part of the identity. An input that can be read only once is not read: it belongs to the
    run.
    """
    if last.state is not BatchState.DONE:
        return False
    is_file = isinstance(keys, KeyFile) and not keys.reads_once
    if isinstance(keys, range) or not (is_file or isinstance(keys, Collection)):
        return True
    chosen = _selected(bound, keys, selection)
    while chunk := list(islice(chosen, LOOKUP_CHUNK)):
        if store.batches.count_finished(last.id, chunk) < len(set(chunk)):
            return False
    return True


def _plan(
    store: Store, generations: Sequence[Batch], bound: BoundFunction, keys: Iterable[Any], options: RunOptions
) -> RunAnswer:
    """Compare the keys with the ledger of the newest of the *generations*, without writing."""
    chosen = _selected(bound, keys, options.selection) if options.dry_run else iter(())
    latest = next(iter(generations), None)
    origin = bound.function.origin
    limit = options.selection.limit
    if latest is None or latest.state in FOLLOWED or options.fresh:
        generation = 1 if latest is None else latest.generation + 1
        summary = _summary(sum(1 for _ in chosen), 0, limit=limit)
        return RunAnswer(None if latest is None else latest.id, generation, summary, dry_run=True, origin=origin)
    to_run, finished, again = 0, 0, options.selection.resume_from is not None
    while chunk := list(islice(chosen, LOOKUP_CHUNK)):
        known = store.batches.count_finished(latest.id, chunk, retry_failed=options.retry_failed, again=again)
        to_run, finished = to_run + len(chunk) - known, finished + known
    summary = _summary(to_run, finished, limit=limit)
    return RunAnswer(latest.id, latest.generation, summary, dry_run=True, origin=origin)


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
