"""What people look at in a batch: pages of its ledger, its errors, its counters; and what they do to some units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from holdfast.domain.batches.batch import (
    Batch,
    BatchId,
    BatchState,
    Counters,
    UnitKey,
    UnitRow,
    UnitState,
    counters,
    state_after,
)
from holdfast.domain.jobs.job import JobId
from holdfast.errors import InvalidInput
from holdfast.store.batches.finishing import PEOPLE, counted, locked
from holdfast.store.batches.in_flight import count
from holdfast.store.batches.shards import reopen
from holdfast.store.engine.backend import Backend
from holdfast.store.engine.operation import Operation, query

#: Units that a page looks at where no index finds what it wants.
WINDOW = 5000
#: Units that are changed in one transaction.
CHUNK = 1000


class UnitPage(Struct, frozen=True):
    """Some units, and where the next page begins; a page with a filter may be short, or empty, and yet have a next."""

    units: list[UnitRow]
    next: str | None


class UnitError(Struct, frozen=True):
    """How a unit failed; a long error is cut."""

    key: UnitKey
    error: str


class UnitsInFlight(Struct, frozen=True):
    """Who works on a batch: a JSON text of the holder, its job, and since when."""

    owner: str
    job_id: JobId
    since: datetime | None


class BatchStatus(Struct, frozen=True):
    """How far a batch is, and who works on it."""

    counters: Counters
    holders: list[UnitsInFlight]


class _Part(Struct, frozen=True):
    batch_id: BatchId
    part: str
    name: str
    count: int
    since: datetime | None


class LedgerQueries:
    """Looks into the ledgers of batches; every look is limited."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def standings(self, batch_ids: Sequence[BatchId]) -> dict[BatchId, BatchStatus]:
        """Counters and holders of several batches, in one statement."""
        parts: list[_Part] = self._backend.look(query("list_batch_details", _Part, ids=list(batch_ids)))
        return {each: _standing([part for part in parts if part.batch_id == each]) for each in batch_ids}

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
        """Units by key, or pending ones in the order in which they run; *after* is the ``next`` of the page before.

        *text* is looked for in keys, errors and warnings. Where no index helps, a page looks at 5,000 units.
        """
        if state is UnitState.PENDING and label is None and text is None:
            place = int(after) if after.isascii() and after.isdigit() and len(after) < 19 else -1
            units: list[UnitRow] = self._look("list_pending_units", batch_id, after=place, limit=limit)
            return UnitPage(units, str(units[-1].position) if len(units) == limit else None)
        if state not in (None, UnitState.DONE, UnitState.PENDING):
            size = limit if label is None and text is None else WINDOW
            found = self._look("list_units_by_state", batch_id, state=state, after=after, limit=size)
        else:
            size = limit if state is None and label is None and text is None else WINDOW
            found = self._look("list_units_window", batch_id, after=after, limit=size)
        return _page(found, size, limit, lambda unit: _fits(unit, state, label, text))

    def errors(self, batch_id: BatchId, *, after: str = "", limit: int = 1000) -> list[UnitError]:
        """How units failed, by key."""
        told = {"batch_id": batch_id, "after": after, "limit": limit}
        return self._backend.look(query("list_unit_errors", UnitError, **told))

    def all_errors(self, batch_id: BatchId) -> Iterator[UnitError]:
        """The same of all that failed, page by page."""
        after = ""
        while found := self.errors(batch_id, after=after):
            yield from found
            after = found[-1].key

    def retry(self, batch_id: BatchId, keys: Sequence[UnitKey]) -> int:
        """Let these of the failed units run again; answers how many. An ended batch is open again."""
        return self._turn(batch_id, keys, UnitState.PENDING, None)

    def skip(self, batch_id: BatchId, keys: Sequence[UnitKey], *, label: str = "skipped") -> int:
        """Give these of the failed units up: they count as skipped; answers how many."""
        return self._turn(batch_id, keys, UnitState.SKIPPED, label)

    def _turn(self, batch_id: BatchId, keys: Sequence[UnitKey], state: UnitState, label: str | None) -> int:
        if not isinstance(keys, Sequence) or isinstance(keys, str):
            raise InvalidInput("keys are a list")
        turned = 0
        for start in range(0, len(keys), CHUNK):
            turned += self._backend.write(_turn, batch_id, list(keys[start : start + CHUNK]), state, label)
        if turned and state is UnitState.PENDING:
            self._backend.write(_open_again, batch_id)
            self._backend.notify()
        return turned

    def _look(self, statement: str, batch_id: BatchId, **told: Any) -> list[UnitRow]:
        return self._backend.look(query(statement, UnitRow, batch_id=batch_id, **told))


def _standing(parts: list[_Part]) -> BatchStatus:
    rows = {part.name: part.count for part in parts if part.part == "count"}
    holders = [UnitsInFlight(part.name, JobId(part.count), part.since) for part in parts if part.part == "holder"]
    return BatchStatus(counters(rows), holders)


def _fits(unit: UnitRow, state: UnitState | None, label: str | None, text: str | None) -> bool:
    said = f"{unit.key}\n{unit.error or ''}\n{unit.warning or ''}".lower()
    return (
        (state is None or unit.state is state)
        and (label is None or unit.label == label)
        and (text is None or text.lower() in said)
    )


def _page(found: list[UnitRow], size: int, limit: int, fits: Any) -> UnitPage:
    chosen = [unit for unit in found if fits(unit)]
    if len(chosen) > limit or (len(chosen) == limit and len(found) == size == limit):
        return UnitPage(chosen[:limit], chosen[limit - 1].key)
    return UnitPage(chosen, found[-1].key if len(found) == size else None)


def _turn(batch_id: BatchId, keys: list[UnitKey], state: UnitState, label: str | None) -> Operation[int]:
    batch = yield from locked(batch_id)
    if batch.state is BatchState.CANCELLED:
        return 0
    told = {"batch_id": batch_id, "keys": keys, "state": state, "label": label}
    changed = {}
    for before in (UnitState.FAILED, UnitState.IN_DOUBT):
        rows = yield query("change_failed_units", before=before, **told)
        changed[str(before)] = -len(rows)
    turned = -sum(changed.values())
    if state is UnitState.SKIPPED:
        changed["skipped"] = turned
        changed[f"label:{label}"] = turned
    yield from count(batch_id, PEOPLE, changed)
    if turned and state is UnitState.SKIPPED and batch.state.finished:
        yield from _judge_again(batch)
    return turned


def _judge_again(batch: Batch) -> Operation[None]:
    """An ended batch whose last failure was given up is done now."""
    now = yield from counted(batch.id)
    state = state_after(now, now.over, None)
    if state is not batch.state:
        yield query("finish_batch", id=batch.id, state=state, aborted_by=batch.aborted_by, total=batch.total)


def _open_again(batch_id: BatchId) -> Operation[None]:
    batch = yield from locked(batch_id)
    if batch.state.finished and batch.state is not BatchState.CANCELLED:
        yield from reopen(batch)
