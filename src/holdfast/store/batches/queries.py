"""Queries of ledgers: pages of units, errors and counters; and changes by people to single units."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from holdfast.domain.batches.batch import BatchId
from holdfast.domain.batches.history import BatchEvent
from holdfast.domain.batches.unit import MAX_LABELS, Counters, UnitKey, UnitRow, UnitState, sum_counters
from holdfast.domain.jobs.job import JobId
from holdfast.errors import InvalidInput
from holdfast.store.batches.unit_steps import change_units
from holdfast.store.engine.operation import Noun

#: Units that one page examines where no index serves its filter.
WINDOW_SIZE = 5000
#: Units that one transaction changes.
CHUNK_SIZE = 1000
NEWEST = 2**62
#: Batches that metrics count.
COUNTED_BATCHES = 1000


class UnitPage(Struct, frozen=True):
    """Some units, and the start of the next page. A filtered page may be short or empty and still have a next."""

    units: list[UnitRow]
    next: str | None


class UnitError(Struct, frozen=True):
    """The error of a unit, cut if it is long."""

    key: UnitKey
    error: str


class UnitTotal(Struct, frozen=True):
    """The sum of one counter over the batches of a function."""

    kind: str
    name: str
    count: int


class UnitsInFlight(Struct, frozen=True):
    """A holder of a batch: its owner as JSON, its job, the start of its work, and whether its lease has expired."""

    owner: str
    job_id: JobId
    since: datetime | None
    expired: bool


class BatchStatus(Struct, frozen=True):
    """The progress of a batch, and its holders."""

    counters: Counters
    holders: list[UnitsInFlight]


class _Part(Struct, frozen=True):
    batch_id: BatchId
    part: str
    name: str
    count: int
    since: datetime | None
    expired: bool


class LedgerQueries(Noun):
    """Reads the ledgers of batches. Every read has a limit."""

    def statuses(self, batch_ids: Sequence[BatchId]) -> dict[BatchId, BatchStatus]:
        """Counters and holders of several batches, in one statement."""
        rows: list[_Part] = self._fetch("list_batch_details", _Part, ids=list(batch_ids), labels=MAX_LABELS)
        return {each: _status([row for row in rows if row.batch_id == each]) for each in batch_ids}

    def page(
        self,
        batch_id: BatchId,
        *,
        state: UnitState | None = None,
        label: str | None = None,
        text: str | None = None,
        after: str = "",
        limit: int = 50,
    ) -> UnitPage:
        """Units by key, or pending ones in the order of their runs; *after* is the ``next`` of the previous page.

        *text* is searched in keys, errors and warnings. Where no index helps, a page examines 5,000 units.
        """
        filtered = label is not None or text is not None
        if state is UnitState.PENDING and not filtered:
            last_run, _, place = after.rpartition(".")
            values = {"last_run": _number(last_run, 0), "position": _number(place, -1)}
            units = self._units("list_pending_units", batch_id, limit=limit, **values)
            full = len(units) == limit
            return UnitPage(units, f"{units[-1].last_run}.{units[-1].position}" if full else None)
        if state in (None, UnitState.DONE, UnitState.PENDING):
            size = WINDOW_SIZE if filtered or state is not None else limit
            units = self._units("list_units_window", batch_id, after=after, limit=size)
        else:
            size = WINDOW_SIZE if filtered else limit
            units = self._units("list_units_by_state", batch_id, state=state, after=after, limit=size)
        return _page(units, size, limit, lambda unit: _matches(unit, state, label, text))

    def count_batches(self) -> dict[str, int]:
        """The newest 1,000 batches, by state."""
        return dict(self._fetch("count_batches", limit=COUNTED_BATCHES))

    def count_ends(self) -> dict[str, int]:
        """Ends of batches since the store exists, by the state in which they ended.

        - Each end is counted in the transaction that ends the batch, wherever it ends; a batch may end again.
        """
        return dict(self._fetch("count_batch_ends"))

    def count_units(self) -> list[UnitTotal]:
        """The counters of the newest 1,000 batches, by function and name: 100 labels of each, and ``other``."""
        return self._fetch("count_units_by_kind", UnitTotal, limit=COUNTED_BATCHES, labels=MAX_LABELS)

    def history(self, batch_id: BatchId, *, before: int = NEWEST, limit: int = 50) -> list[BatchEvent]:
        """The events of a batch, newest first, below an id."""
        return self._fetch("list_batch_events", BatchEvent, batch_id=batch_id, before=before, limit=limit)

    def _units(self, statement: str, batch_id: BatchId, **values: Any) -> list[UnitRow]:
        return self._fetch(statement, UnitRow, batch_id=batch_id, **values)

    def errors(self, batch_id: BatchId, *, after: str = "", limit: int = 1000) -> list[UnitError]:
        """The errors of failed units, by key."""
        return self._fetch("list_unit_errors", UnitError, batch_id=batch_id, after=after, limit=limit)

    def all_errors(self, batch_id: BatchId) -> Iterator[UnitError]:
        """The errors of all failed units, by key, page by page."""
        after = ""
        while errors := self.errors(batch_id, after=after):
            yield from errors
            after = errors[-1].key

    def retry(self, batch_id: BatchId, keys: Sequence[UnitKey], *, actor: str | None = None) -> int:
        """Make failed units among *keys* pending again; returns their number. A finished batch reopens."""
        return self._change(batch_id, keys, UnitState.PENDING, None, actor)

    def skip(
        self, batch_id: BatchId, keys: Sequence[UnitKey], *, label: str = "skipped", actor: str | None = None
    ) -> int:
        """Skip failed units among *keys*; returns their number."""
        return self._change(batch_id, keys, UnitState.SKIPPED, label, actor)

    def _change(
        self, batch_id: BatchId, keys: Sequence[UnitKey], state: UnitState, label: str | None, actor: str | None
    ) -> int:
        """Change units in chunks, each in its own transaction: a call that fails half-way can be repeated."""
        if not isinstance(keys, Sequence) or isinstance(keys, str):
            raise InvalidInput("keys are a list")
        total = 0
        for start in range(0, len(keys), CHUNK_SIZE):
            chunk = list(keys[start : start + CHUNK_SIZE])
            total += self._wake(self._backend.write(change_units, batch_id, chunk, state, label, actor))
        return total


def _number(text: str, default: int) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else default


def _status(rows: list[_Part]) -> BatchStatus:
    counts = {row.name: row.count for row in rows if row.part == "count"}
    held = (row for row in rows if row.part == "holder")
    holders = [UnitsInFlight(row.name, JobId(row.count), row.since, row.expired) for row in held]
    return BatchStatus(sum_counters(counts), holders)


def _matches(unit: UnitRow, state: UnitState | None, label: str | None, text: str | None) -> bool:
    searched = f"{unit.key}\n{unit.error or ''}\n{unit.warning or ''}".lower()
    return (
        (state is None or unit.state is state)
        and (label is None or unit.label == label)
        and (text is None or text.lower() in searched)
    )


def _page(units: list[UnitRow], size: int, limit: int, matches: Callable[[UnitRow], bool]) -> UnitPage:
    """A page of the matching units; *size* is the number of units requested from the ledger."""
    chosen = [unit for unit in units if matches(unit)]
    if len(chosen) > limit or (len(chosen) == limit and len(units) == size == limit):
        return UnitPage(chosen[:limit], chosen[limit - 1].key)
    return UnitPage(chosen, units[-1].key if len(units) == size else None)
