"""Views of batches, their units and their history, with secrets masked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.admin.views.payload_secrets import values_of
from holdfast.client.batches.report import UnitLine, failure_lines, unit_line
from holdfast.domain.access.masking import mask_cut, mask_json, mask_text, mask_value
from holdfast.domain.access.tokens import seal, unseal
from holdfast.domain.batches.batch import (
    AbortedBy,
    Batch,
    BatchId,
    BatchState,
    Summary,
    exit_code,
    known_total,
    sharding_of,
    summarise,
)
from holdfast.domain.batches.batch_filter import ALL_BATCHES, BatchFilter
from holdfast.domain.batches.breaker import FailureGroup, failure_groups
from holdfast.domain.batches.history import BatchEvent
from holdfast.domain.batches.unit import UnitRow, UnitState
from holdfast.domain.jobs.error_clusters import Cluster, SeenError, cluster_errors
from holdfast.store import Store
from holdfast.store.batches.batches import FIRST
from holdfast.store.batches.queries import NEWEST, BatchStatus, UnitsInFlight
from holdfast.worker.batches.conflicts import describe_owner, is_owner_dead


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
    #: The processes that work on it: host, pid, start, command; *problem*: why a process does not work any more.
    holders: list[dict[str, Any]]
    requested: str | None = None
    started_at: datetime | None = None
    actor: str | None = None
    #: The failures for which a breaker stopped the last run, grouped.
    failures: list[FailureGroup] = []
    #: Where the function of the last run lives: ``module:qualname``.
    origin: str | None = None

    @property
    def shown_state(self) -> str:
        """Its state, with the problem of its only holder."""
        problem = self.holders[0].get("problem") if len(self.holders) == 1 else None
        return f"{self.state}: {problem}" if problem else self.state


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


class UnitsPage(Struct, frozen=True):
    """Some units; a page with a filter may be short, or empty, and yet have a next."""

    units: list[UnitLine]
    next: str | None


def list_batches(
    store: Store, chosen: BatchFilter = ALL_BATCHES, *, before: int | None = None, limit: int = 20
) -> BatchList:
    page = store.batches.page(chosen, before=FIRST if before is None else BatchId(before), limit=limit)
    statuses = store.ledger.statuses([batch.id for batch in page.batches]) if page.batches else {}
    return BatchList([batch_view(batch, statuses[batch.id]) for batch in page.batches], page.next)


class BatchReader:
    """One batch, read part by part as they are needed. Secrets of its arguments are masked in every part."""

    def __init__(self, store: Store, batch_id: int) -> None:
        self._store = store
        self._batch = store.batches.get(BatchId(batch_id))
        self._secrets = batch_secrets(self._batch)

    @cached_property
    def _status(self) -> BatchStatus:
        return self._store.ledger.statuses([self._batch.id])[self._batch.id]

    @cached_property
    def view(self) -> BatchView:
        """The batch and how far it is."""
        return batch_view(self._batch, self._status)

    @property
    def is_sharded(self) -> bool:
        """Whether workers run it, and not a program of its own."""
        return sharding_of(self._batch) is not None

    @property
    def is_active(self) -> bool:
        """Whether a run holds the batch, or workers will continue it."""
        return (self._batch.state is BatchState.RUNNING and self.is_sharded) or bool(self._status.holders)

    @property
    def exit_code(self) -> int:
        """The exit code of its last run."""
        return exit_code(self._status.counters, self._batch.aborted_by)

    def history(self, *, before: int | None = None, limit: int = 50) -> list[BatchEventView]:
        """The events of the batch, newest first, below an id."""
        events = self._store.ledger.history(self._batch.id, before=NEWEST if before is None else before, limit=limit)
        return [_event_view(event, self._secrets) for event in events]

    def clusters(self, *, limit: int = 1000) -> list[Cluster]:
        """Failed units by how they failed, the largest cluster first; at most *limit* units are read."""
        errors, batch = self._store.ledger.errors(self._batch.id, limit=limit), self._batch
        return cluster_errors(
            SeenError(mask_json(each.key, values=self._secrets), batch.kind, mask_cut(each.error, self._secrets))
            for each in errors
        )

    def units(
        self,
        *,
        state: UnitState | None = None,
        label: str | None = None,
        text: str | None = None,
        after: str = "",
        limit: int = 50,
    ) -> UnitsPage:
        """A page of units by key; *after* is the ``next`` of the previous page.

        A key may be secret, so a client gets it sealed.
        """
        credentials, purpose = self._store.credentials, f"units of batch {self._batch.id}"
        begin = unseal(after, credentials.server_secret(), purpose) if after else ""
        page = self._store.ledger.page(self._batch.id, state=state, label=label, text=text, after=begin, limit=limit)
        sealed = None if page.next is None else seal(page.next, credentials.server_secret(), purpose)
        return UnitsPage([_unit_view(unit, self._secrets) for unit in page.units], sealed)

    def all_units(self, *, state: UnitState | None = None) -> Iterator[UnitLine]:
        """All units by key, read page by page."""
        after = ""
        while page := self._store.batches.units(self._batch.id, state=state, after=after):
            yield from (_unit_view(unit, self._secrets) for unit in page)
            after = page[-1].key


def _event_view(event: BatchEvent, secrets: Sequence[str]) -> BatchEventView:
    detail: dict[str, Any] = {} if event.detail is None else msgspec.json.decode(event.detail)
    aborted_by = detail.get("aborted_by")
    by_person = aborted_by in (None, AbortedBy.PAUSE, AbortedBy.CANCEL)
    parts = [] if by_person else [f"stopped by {str(aborted_by).replace('_', ' ')}"]
    parts += failure_lines(msgspec.convert(detail.get("failures", []), list[FailureGroup]))
    if "units" in detail:
        parts.append(f"{detail['units']:,} units")
    if "results" in detail:
        noun = "result" if detail["results"] == 1 else "results"
        parts.append(f"{detail['results']:,} {noun} of the inbox {detail['inbox']} expired")
    if "shards" in detail:
        parts.append(f"{detail['shards']} shards on the queue {detail['queue']}")
    if "owner" in detail:
        parts.append(describe_owner(detail["owner"]))
    text = mask_cut("; ".join(parts), secrets)
    return BatchEventView(event.id, event.at, event.name, event.actor, event.run_number, aborted_by, text)


def batch_view(batch: Batch, status: BatchStatus) -> BatchView:
    counters, secrets = status.counters, batch_secrets(batch)
    fields = {name: getattr(batch, name) for name in BatchView.__struct_fields__ if hasattr(batch, name)}
    fields["arguments"] = mask_json(batch.arguments, (), secrets)
    fields["source"] = mask_text(batch.source, secrets)
    fields["name"] = None if batch.name is None else mask_text(batch.name, secrets)
    fields["failures"] = _masked_failures(batch)
    summary = _masked(summarise(counters, known_total(batch, counters), batch.aborted_by), secrets)
    holders = [mask_json(holder.owner, (), secrets) | _problem(holder) for holder in status.holders]
    return BatchView(**fields, runs=batch.run_number, summary=summary, holders=holders)


def _problem(holder: UnitsInFlight) -> dict[str, str]:
    if is_owner_dead(holder.owner):
        return {"problem": "its process is dead"}
    return {"problem": "its lease has expired"} if holder.expired else {}


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


def _unit_view(unit: UnitRow, secrets: Sequence[str]) -> UnitLine:
    line = unit_line(unit)
    texts = {name: getattr(line, name) for name in ("error", "warning", "label")}
    masked: dict[str, Any] = {name: mask_cut(text, secrets) for name, text in texts.items() if isinstance(text, str)}
    masked |= {name: mask_value(getattr(line, name), (), secrets) for name in ("key", "data")}
    masked["earlier_errors"] = [mask_cut(error, secrets) for error in line.earlier_errors]
    return msgspec.structs.replace(line, **masked)
