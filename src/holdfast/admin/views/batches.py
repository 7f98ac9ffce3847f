"""Views of batches, their units and their history, with secrets masked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.admin.views.masking import values_of
from holdfast.client.batches.report import UnitLine, failure_lines, unit_line
from holdfast.domain.access.masking import mask_cut, mask_json, mask_text, mask_value
from holdfast.domain.batches.batch import AbortedBy, Batch, BatchId, Summary, summarise
from holdfast.domain.batches.batch_filter import ALL_BATCHES, BatchFilter
from holdfast.domain.batches.failures import FailureGroup, failure_groups
from holdfast.domain.batches.history import BatchEvent
from holdfast.domain.batches.unit import UnitRow, UnitState
from holdfast.domain.jobs.error_clusters import Cluster, SeenError, cluster_errors
from holdfast.store import Store
from holdfast.store.batches.batches import FIRST
from holdfast.store.batches.queries import NEWEST, BatchStatus, UnitError
from holdfast.worker.batches.conflicts import describe_owner


class BatchView(Struct, frozen=True):
    """A batch and how far it is."""

    id: int
    generation: int
    kind: str
    name: str | None
    source: str
    arguments: Any
    state: str
    aborted_by: str | None
    runs: int
    created_at: datetime
    finished_at: datetime | None
    summary: Summary
    #: The processes that work on it: host, pid, start, command.
    holders: list[dict[str, Any]]
    requested: str | None = None
    started_at: datetime | None = None
    actor: str | None = None
    #: The failures for which a breaker stopped the last run, grouped.
    failures: list[FailureGroup] = []


class BatchList(Struct, frozen=True):
    """A page of batches, newest first. A page with a filter may be short, or empty, and still have a next."""

    batches: list[BatchView]
    next: int | None


class BatchEventView(Struct, frozen=True):
    """A change of a batch. *actor* is the person who made it; None: the batch itself. *text* says more about it."""

    id: int
    at: datetime
    event: str
    actor: str | None
    run: int
    aborted_by: str | None
    text: str


def list_batches(
    store: Store, chosen: BatchFilter = ALL_BATCHES, *, before: int | None = None, limit: int = 20
) -> BatchList:
    page = store.batches.page(chosen, before=FIRST if before is None else BatchId(before), limit=limit)
    return BatchList(batch_views(store, page.batches), page.next)


def batch_views(store: Store, batches: Sequence[Batch]) -> list[BatchView]:
    statuses = store.ledger.statuses([batch.id for batch in batches]) if batches else {}
    return [batch_view(batch, statuses[batch.id]) for batch in batches]


def batch_history(store: Store, batch: Batch, *, before: int | None = None, limit: int = 50) -> list[BatchEventView]:
    """The events of a batch, newest first, below an id."""
    secrets = batch_secrets(batch)
    events = store.ledger.history(batch.id, before=NEWEST if before is None else before, limit=limit)
    return [_event_view(event, secrets) for event in events]


def _event_view(event: BatchEvent, secrets: Sequence[str]) -> BatchEventView:
    detail: dict[str, Any] = {} if event.detail is None else msgspec.json.decode(event.detail)
    aborted_by = detail.get("aborted_by")
    by_person = aborted_by in (None, AbortedBy.PAUSE, AbortedBy.CANCEL)
    parts = [] if by_person else [f"stopped by {str(aborted_by).replace('_', ' ')}"]
    parts += failure_lines(msgspec.convert(detail.get("failures", []), list[FailureGroup]))
    if "units" in detail:
        parts.append(f"{detail['units']:,} units")
    if "shards" in detail:
        parts.append(f"{detail['shards']} shards on the queue {detail['queue']}")
    if "owner" in detail:
        parts.append(describe_owner(detail["owner"]))
    text = mask_cut("; ".join(parts), secrets)
    return BatchEventView(event.id, event.at, event.name, event.actor, event.run_number, aborted_by, text)


def batch_view(batch: Batch, status: BatchStatus) -> BatchView:
    counters, secrets = status.counters, batch_secrets(batch)
    total = max(batch.total or 0, counters.over)
    fields = {name: getattr(batch, name) for name in BatchView.__struct_fields__ if hasattr(batch, name)}
    fields["arguments"] = mask_json(batch.arguments, (), secrets)
    fields["source"] = mask_text(batch.source, secrets)
    fields["name"] = None if batch.name is None else mask_text(batch.name, secrets)
    fields["failures"] = _masked_failures(batch)
    summary = _masked(summarise(counters, total, batch.aborted_by), secrets)
    holders = [mask_json(holder.owner, (), secrets) for holder in status.holders]
    return BatchView(**fields, runs=batch.run_number, summary=summary, holders=holders)


def batch_secrets(batch: Batch) -> list[str]:
    """The secret values in the arguments of a batch; texts of its units may contain them."""
    return values_of(batch.kind, batch.arguments)


def _masked(summary: Summary, secrets: Sequence[str]) -> Summary:
    """Mask the labels. Those that become equal are counted together."""
    labels: Counter[str] = Counter()
    for label, count in summary.labels.items():
        labels[mask_text(label, secrets)] += count
    return msgspec.structs.replace(summary, labels=dict(labels))


def _masked_failures(batch: Batch) -> list[FailureGroup]:
    secrets = batch_secrets(batch)
    groups = failure_groups(batch)
    return [
        msgspec.structs.replace(group, error=mask_cut(group.error, secrets), key=mask_text(group.key, secrets))
        for group in groups
    ]


def unit_view(unit: UnitRow, secrets: Sequence[str] = ()) -> UnitLine:
    line = unit_line(unit)
    texts = {name: getattr(line, name) for name in ("error", "warning", "label")}
    masked: dict[str, Any] = {name: mask_cut(text, secrets) for name, text in texts.items() if isinstance(text, str)}
    masked |= {name: mask_value(getattr(line, name), (), secrets) for name in ("key", "data")}
    masked["earlier_errors"] = [mask_cut(error, secrets) for error in line.earlier_errors]
    return msgspec.structs.replace(line, **masked)


def all_units(store: Store, batch_id: BatchId, *, state: UnitState | None = None) -> Iterator[UnitLine]:
    """The units of a batch by key, read page by page."""
    secrets, after = batch_secrets(store.batches.get(batch_id)), ""
    while page := store.batches.units(batch_id, state=state, after=after):
        yield from (unit_view(unit, secrets) for unit in page)
        after = page[-1].key


def unit_clusters(batch: Batch, errors: Sequence[UnitError]) -> list[Cluster]:
    secrets = batch_secrets(batch)
    return cluster_errors(
        SeenError(mask_text(error.key, secrets), batch.kind, mask_cut(error.error, secrets)) for error in errors
    )
