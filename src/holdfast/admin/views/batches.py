"""Views of batches and their units, with secrets masked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.admin.views.masking import values_of
from holdfast.client.batches.report import UnitLine, unit_line
from holdfast.domain.access.masking import mask_cut, mask_json, mask_text, mask_value
from holdfast.domain.batches.batch import Batch, Summary, summarise
from holdfast.domain.batches.failures import FailureGroup, failure_groups
from holdfast.domain.batches.unit import UnitRow
from holdfast.domain.jobs.error_clusters import Cluster, SeenError, cluster_errors
from holdfast.store.batches.queries import BatchStatus, UnitError


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
    return msgspec.structs.replace(line, **masked)


def unit_clusters(batch: Batch, errors: Sequence[UnitError]) -> list[Cluster]:
    secrets = batch_secrets(batch)
    return cluster_errors(
        SeenError(mask_text(error.key, secrets), batch.kind, mask_cut(error.error, secrets)) for error in errors
    )
