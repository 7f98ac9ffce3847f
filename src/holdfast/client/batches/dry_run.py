"""Dry runs of batches."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from holdfast.client.batches.batch_claim import run_request
from holdfast.client.batches.function import BoundFunction
from holdfast.client.batches.keys import selected_keys
from holdfast.client.batches.options import RunOptions, Selection
from holdfast.client.batches.report import BatchResult, RunAnswer
from holdfast.domain.batches.batch import BatchState, Summary
from holdfast.domain.batches.unit import unit_key
from holdfast.store import Store

NOTHING_TO_DO_EXIT_CODE = 13
LOOKUP_CHUNK = 1000


def dry_run(store: Store, bound: BoundFunction, keys: Iterable[Any], options: RunOptions) -> BatchResult | None:
    """The result of a dry run, or of ``once`` when nothing is left to do; None when the run has to happen."""
    answer, clean = _plan(store, bound, keys if options.dry_run else (), options)
    nothing_to_do = options.once and clean
    if not options.dry_run and not nothing_to_do:
        return None
    text = "nothing to do: it ended clean" if nothing_to_do else f"{answer.summary.pending:,} units would be run"
    options.printer().value(answer, lambda: [text])
    return BatchResult(None, answer.summary, NOTHING_TO_DO_EXIT_CODE if nothing_to_do else 0)


def _plan(store: Store, bound: BoundFunction, keys: Iterable[Any], options: RunOptions) -> tuple[RunAnswer, bool]:
    """Compare the keys with the ledger, without writing. Also returns whether the last generation finished clean."""
    identity = run_request(bound, keys, options).identity
    if options.dry_run:  # otherwise there are no keys, and their number does not matter
        only = selected_keys(bound.function, keys, Selection(only=options.selection.only))
        keys = keys if only is None else [key for key in keys if unit_key(key) in only]
    latest = store.batches.latest(identity)
    clean = latest is not None and latest.state is BatchState.DONE
    if latest is None or clean or latest.state is BatchState.CANCELLED or options.fresh:
        generation = 1 if latest is None else latest.generation + 1
        summary = _summary(to_run=sum(1 for _ in keys), finished=0)
        return RunAnswer(None if latest is None else latest.id, generation, summary, dry_run=True), clean
    to_run = finished = 0
    iterator = map(unit_key, keys)
    while chunk := list(islice(iterator, LOOKUP_CHUNK)):
        known = store.batches.count_finished(latest.id, chunk, retry_failed=options.retry_failed)
        to_run, finished = to_run + len(chunk) - known, finished + known
    return RunAnswer(latest.id, latest.generation, _summary(to_run, finished), dry_run=True), clean


def _summary(to_run: int, finished: int) -> Summary:
    """The summary before a run; all finished units count as succeeded, whatever their state."""
    return Summary(total=to_run + finished, succeeded=finished, failed=0, skipped=0, cancelled=0, pending=to_run)
