"""Batches and their units as programs and people see them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.admin.views.masking import values_of
from holdfast.client.batches.report import UnitLine, unit_line
from holdfast.domain.access.masking import mask_cut, mask_text, masked_json
from holdfast.domain.batches.batch import Batch, Summary, UnitRow, summarise
from holdfast.domain.jobs.error_clusters import Cluster, SeenError, clustered
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
    holders: list[str]
    requested: str | None = None
    started_at: datetime | None = None
    actor: str | None = None


def batch_view(batch: Batch, standing: BatchStatus) -> BatchView:
    """A batch as programs see it, without secrets."""
    counted, secrets = standing.counters, batch_secrets(batch)
    total = max(batch.total or 0, counted.over)
    return BatchView(
        id=batch.id,
        generation=batch.generation,
        kind=batch.kind,
        name=batch.name,
        source=batch.source,
        arguments=masked_json(batch.arguments),
        state=batch.state,
        aborted_by=batch.aborted_by,
        runs=batch.run_number,
        created_at=batch.created_at,
        finished_at=batch.finished_at,
        summary=_masked(summarise(counted, total, batch.aborted_by), secrets),
        holders=[holder.owner for holder in standing.holders],
        requested=batch.requested,
        started_at=batch.started_at,
        actor=batch.actor,
    )


def batch_secrets(batch: Batch) -> list[str]:
    """The secrets in a batch's arguments, to be blotted out of what its units say."""
    return values_of(batch.kind, batch.arguments)


def _masked(summary: Summary, secrets: Sequence[str]) -> Summary:
    """Labels that become the same are counted together."""
    labels: Counter[str] = Counter()
    for label, count in summary.labels.items():
        labels[mask_text(label, secrets)] += count
    return msgspec.structs.replace(summary, labels=dict(labels))


def unit_view(unit: UnitRow, secrets: Sequence[str] = ()) -> UnitLine:
    """A unit as programs see it, without secrets."""
    line = unit_line(unit)
    said = {name: getattr(line, name) for name in ("error", "warning", "label")}
    texts = {name: mask_cut(value, secrets) for name, value in said.items() if isinstance(value, str)}
    return msgspec.structs.replace(line, **texts)


def unit_clusters(batch: Batch, errors: Sequence[UnitError]) -> list[Cluster]:
    """Failed units whose errors look alike."""
    secrets = batch_secrets(batch)
    return clustered(SeenError(error.key, batch.kind, mask_cut(error.error, secrets)) for error in errors)
