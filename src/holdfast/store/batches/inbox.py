"""Inboxes: results of units that wait for a consumer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from holdfast.domain.batches.batch import BatchId
from holdfast.domain.batches.unit import MAX_UNIT_ERROR, InboxDepth, UnitKey, UnitState, withdrawal_deltas
from holdfast.domain.names import clean_text
from holdfast.errors import NoSuchBatch, ResultLost
from holdfast.store.batches.state import PEOPLE, conclude, count, locked
from holdfast.store.engine.operation import Noun, Operation, query, transaction

#: How long a consumer holds a result before another may take it.
RESULT_LEASE = timedelta(seconds=60)
#: Results that are counted per inbox.
DEPTH_CAP = 10_000


class InboxItem(Struct, frozen=True):
    """A result that a consumer has taken. *data* is JSON."""

    id: int
    token: int
    batch_id: BatchId
    key: UnitKey
    data: str


class WaitingResult(InboxItem, frozen=True):
    """A result in an inbox. *available_at*: when it became free, or when the lease of its consumer ends."""

    available_at: datetime
    expires_at: datetime
    taken: bool


class _Expired(Struct, frozen=True):
    id: int
    token: int
    batch_id: BatchId
    key: UnitKey


class InboxStore(Noun):
    """Gives each result to one consumer at a time; its unit is done when the consumer accepts it."""

    def take(self, inbox: str, *, limit: int = 1, lease_duration: timedelta = RESULT_LEASE) -> list[InboxItem]:
        """Take results, the longest free first. After *lease_duration* another consumer may take them."""
        taken: list[InboxItem] = self._backend.run(
            query("claim_inbox_results", InboxItem, inbox=inbox, limit=limit, lease_duration=lease_duration)
        )
        return sorted(taken, key=lambda result: result.id)

    @transaction()
    def accept(self, result: InboxItem) -> Operation[None]:
        """Accept a result: its unit is done.

        Raises:
            ResultLost: Another consumer took it, or it has expired; its new holder decides.
        """
        return _end(result, UnitState.DONE, None)

    @transaction()
    def refuse(self, result: InboxItem, error: str) -> Operation[None]:
        """Refuse a result: its unit has failed, and runs again with the next run of its batch.

        Raises:
            ResultLost: Another consumer took it, or it has expired; its new holder decides.
        """
        return _end(result, UnitState.FAILED, clean_text(error, limit=MAX_UNIT_ERROR))

    @transaction()
    def settle(self, tokens: Mapping[int, int], error: str | None) -> Operation[list[int]]:
        """Accept results by id and token, or with an *error* refuse them; returns the ids of those that were settled.

        - A result that another consumer took, or that has expired, is left as it is.
        """
        state = UnitState.DONE if error is None else UnitState.FAILED
        text = None if error is None else clean_text(error, limit=MAX_UNIT_ERROR)
        rows: list[_Expired] = yield query("get_inbox_results", _Expired, ids=list(tokens))
        settled: list[int] = []
        for result in sorted((row for row in rows if tokens[row.id] == row.token), key=lambda row: row.batch_id):
            settled += [result.id] if (yield from _take_out(result, state, text)) else []
        return settled

    @contextmanager
    def result_transaction(self, result: InboxItem) -> Iterator[Any]:
        """A connection to the store's database: its changes and the acceptance are kept together.

        Raises:
            ResultLost: Another consumer took the result, or it has expired; nothing was kept.
        """
        with self._backend.transaction() as connection:
            yield connection
            self._backend.run_on(connection, _end(result, UnitState.DONE, None))

    @transaction()
    def expire(self, *, limit: int = 100) -> Operation[int]:
        """Fail the units of results that no consumer accepted in time; returns their number."""
        rows: list[_Expired] = yield query("list_expired_inbox_results", _Expired, limit=limit)
        expired = 0
        for result in sorted(rows, key=lambda row: row.batch_id):
            expired += yield from _take_out(
                result, UnitState.FAILED, "its result expired before a consumer accepted it"
            )
        return expired

    def depths(self, *, cap: int = DEPTH_CAP) -> list[InboxDepth]:
        """All inboxes that hold a result, by name; each is counted up to *cap*."""
        return self._fetch("list_inboxes", InboxDepth, limit=cap)

    def results(self, inbox: str, *, limit: int = 50) -> list[WaitingResult]:
        """The results in an inbox, the longest free first, those of consumers last. Nothing is taken."""
        values = {"inbox": inbox, "limit": limit}
        return self._fetch("list_inbox_results", WaitingResult, **values)

    def size(self, inbox: str) -> int:
        """The number of results that wait or that a consumer has."""
        (row,) = self._fetch("count_inbox_results", inbox=inbox)
        return int(row[0])


def _end(result: InboxItem, state: UnitState, error: str | None) -> Operation[None]:
    if not (yield from _take_out(result, state, error)):
        raise ResultLost(f"the result of unit {result.key} is no longer with this consumer", batch_id=result.batch_id)


def _take_out(result: InboxItem | _Expired, state: UnitState, error: str | None) -> Operation[bool]:
    """Delete a result and finish its unit; whether the result still existed."""
    try:
        batch = yield from locked(result.batch_id)
    except NoSuchBatch:
        return False  # it was deleted, and its results will be
    rows = yield query("delete_inbox_result", id=result.id, token=result.token)
    if not rows:
        return False
    values = {"batch_id": batch.id, "key": result.key, "state": state, "error": error}
    finished = yield query("finish_delivered_unit", **values)
    changed = {"in_inbox": -len(finished)} if state is UnitState.DONE else withdrawal_deltas(finished)
    yield from count(batch.id, PEOPLE, {**changed, str(state): len(finished)})
    yield from conclude((yield from locked(batch.id)))
    return True
