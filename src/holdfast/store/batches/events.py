"""Events and counts of batches: each change writes its own in its transaction."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import msgspec

from holdfast.domain.batches.batch import AbortedBy, Batch, BatchId, BatchState
from holdfast.domain.batches.history import BatchEventName
from holdfast.store.engine.operation import Operation, query

#: Fewer counts of ends are left as they are: a reader adds them up.
FEWEST_TALLIES = 100


def record(
    batch_id: BatchId, run_number: int, name: BatchEventName, *, actor: str | None = None, **detail: Any
) -> Operation[None]:
    """Write an event of a batch."""
    known = {key: value for key, value in detail.items() if value is not None}
    text = msgspec.json.encode(known).decode() if known else None
    values = {"batch_id": batch_id, "run_number": run_number, "name": name, "actor": actor, "detail": text}
    yield query("insert_batch_event", **values)


def record_change(batch: Batch, name: BatchEventName, *, actor: str | None = None, **detail: Any) -> Operation[None]:
    """Write an event of a batch in its present run."""
    return record(batch.id, batch.run_number, name, actor=actor, **detail)


def finish(
    batch: Batch, state: BatchState, aborted_by: AbortedBy | None, total: int | None, *, actor: str | None = None
) -> Operation[None]:
    """Finish a run of a batch, unless the batch was cancelled: write the event that says why, and count the end."""
    values = {"id": batch.id, "state": state, "aborted_by": aborted_by, "total": total}
    if (yield query("finish_batch", **values)):
        failures = None if batch.failures is None else msgspec.Raw(batch.failures.encode())
        reason = {"aborted_by": aborted_by, "failures": failures}
        yield from record_change(batch, BatchEventName(state), actor=actor, **reason)
        yield query("insert_batch_tally", result=state, count=1)


def fold_tallies(_: timedelta, limit: int) -> Operation[int]:
    """Add up the oldest *limit* counts of ends, if there are many; returns the number of rows added up."""
    rows: list[tuple[str, int]] = yield query("take_batch_tallies", limit=limit, fewest=FEWEST_TALLIES)
    ends = Counter[str]()
    for result, number in rows:
        ends[result] += number
    for result, number in sorted(ends.items()):
        yield query("insert_batch_tally", result=result, count=number)
    return len(rows)
