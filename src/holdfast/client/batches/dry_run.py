"""What a run would do, without doing it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from msgspec import Struct

from holdfast.client.batches.function import BoundFunction
from holdfast.client.batches.keys import chosen
from holdfast.client.batches.local import BatchResult, RunOptions, opening_of, output_of
from holdfast.client.batches.report import RunAnswer
from holdfast.domain.batches.batch import BatchState, Summary, unit_key
from holdfast.store import Store

NOTHING_TO_DO = 13


class DryRun(Struct, frozen=True):
    """What a run would find."""

    batch: int | None
    generation: int
    finished_clean: bool
    units: int
    over: int

    @property
    def summary(self) -> Summary:
        """As a run would tell it, but for what is over: that counts as succeeded, whatever became of it."""
        total = self.units + self.over
        return Summary(total=total, succeeded=self.over, failed=0, skipped=0, cancelled=0, pending=self.units)


def preview(store: Store, bound: BoundFunction, keys: Iterable[Any], options: RunOptions) -> BatchResult | None:
    """The answer of a dry run, or of one that has nothing to do; None: it is to be run."""
    found = would_run(store, bound, keys if options.dry_run else (), options)
    over = options.once and found.finished_clean
    if not options.dry_run and not over:
        return None
    told = RunAnswer(found.batch, found.generation, found.summary, dry_run=True)
    text = "nothing to do: it ended clean" if over else f"{found.units:,} units would be run"
    output_of(options.output).value(told, lambda: [text])
    return BatchResult(None, found.summary, NOTHING_TO_DO if over else 0)


def would_run(store: Store, bound: BoundFunction, keys: Iterable[Any], options: RunOptions) -> DryRun:
    """Look at the ledger, and say what a run would do; nothing is written."""
    opening = opening_of(bound, keys, options)
    # Without a dry run nobody counts, and the keys are not given.
    only = chosen(bound.function, keys, only=options.only, resume_from=None) if options.dry_run else None
    if only is not None:
        keys = [key for key in keys if unit_key(key) in only]
    latest = store.batches.latest(opening.identity)
    clean = latest is not None and latest.state is BatchState.DONE
    if latest is None or clean or latest.state is BatchState.CANCELLED or options.fresh:
        generation = 1 if latest is None else latest.generation + 1
        return DryRun(None if latest is None else latest.id, generation, clean, sum(1 for _ in keys), 0)
    left = over = 0
    for chunk in _chunks(keys, 1000):
        known = store.batches.count_finished(
            latest.id, [unit_key(key) for key in chunk], retry_failed=options.retry_failed
        )
        left, over = left + len(chunk) - known, over + known
    return DryRun(latest.id, latest.generation, clean, left, over)


def _chunks(keys: Iterable[Any], size: int) -> Iterator[list[Any]]:
    found = iter(keys)
    while chunk := list(islice(found, size)):
        yield chunk
