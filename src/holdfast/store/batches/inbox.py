"""Inboxes: results of units that wait for a consumer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from msgspec import Struct

from holdfast.domain.batches.batch import BatchId
from holdfast.domain.batches.history import BatchEventName
from holdfast.domain.batches.unit import MAX_UNIT_ERROR, InboxDepth, UnitKey, UnitState, withdrawal_deltas
from holdfast.domain.names import clean_text
from holdfast.errors import InvalidInput, NoSuchBatch, ResultLost
from holdfast.store.batches.events import record_change
from holdfast.store.batches.state import PEOPLE, conclude, count, locked
from holdfast.store.engine.operation import Noun, Operation, query, transaction

#: How long a consumer holds a result before another may take it.
RESULT_LEASE = timedelta(seconds=60)
#: Results that are counted per inbox.
DEPTH_CAP = 10_000
#: The error of a unit whose result expired.
EXPIRED = "its result expired before a consumer accepted it"


class InboxItem(Struct, frozen=True):
    """A result that a consumer has taken. *data* is JSON."""

    id: int
    token: int
    batch_id: BatchId
    key: UnitKey
    data: str

    @property
    def receipt(self) -> str:
        """The right to settle the result, as a text that any process may use until the result is taken again."""
        return f"{self.id}.{self.token}"


def parse_receipt(receipt: str) -> tuple[int, int]:
    """The id and the token in a receipt."""
    number, _, token = receipt.partition(".")
    if not all(part.isascii() and part.isdecimal() and len(part) < 19 for part in (number, token)):
        raise InvalidInput(f"{receipt[:40]!r} is not a receipt", hint="A take returns them: 17.2.")
    return int(number), int(token)


class WaitingResult(InboxItem, frozen=True):
    """A result in an inbox. *available_at*: when it became free, or when the lease of its consumer ends."""

    available_at: datetime
    expires_at: datetime
    taken: bool


class _Result(Struct, frozen=True):
    id: int
    token: int
    batch_id: BatchId
    key: UnitKey
    inbox: str


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
    def settle(self, tokens: Mapping[int, int], error: str | None, *, inbox: str | None = None) -> Operation[list[int]]:
        """Accept results by id and token, or with an *error* refuse them; returns the ids of those that were settled.

        - A result that another consumer took, or that has expired, is left as it is.
        - With an *inbox*, the results of all others are left as they are.
        """
        state = UnitState.DONE if error is None else UnitState.FAILED
        text = None if error is None else clean_text(error, limit=MAX_UNIT_ERROR)
        rows: list[_Result] = yield query("get_inbox_results", _Result, ids=list(tokens))
        settled: list[int] = []
        own = [row for row in rows if tokens[row.id] == row.token and inbox in (None, row.inbox)]
        for result in sorted(own, key=_batch_of):
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
    def expire(self, *, limit: int = 100) -> Operation[dict[str, int]]:
        """Fail the units of results that no consumer accepted in time; returns their number by inbox.

        - The history of each batch says how many results expired, and in which inbox.
        """
        rows: list[_Result] = yield query("list_expired_inbox_results", _Result, limit=limit)
        expired = Counter[str]()
        for batch_id, results in groupby(sorted(rows, key=_batch_of), key=_batch_of):
            expired.update((yield from _expire(batch_id, list(results))))
        return dict(expired)

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


def _take_out(result: InboxItem | _Result, state: UnitState, error: str | None) -> Operation[bool]:
    """Delete a result and finish its unit; whether the result still existed."""
    try:
        batch = yield from locked(result.batch_id)
    except NoSuchBatch:
        return False  # it was deleted, and its results will be
    if not (yield from _finish_unit(result, state, error)):
        return False
    yield from conclude(batch)
    return True


def _finish_unit(result: InboxItem | _Result, state: UnitState, error: str | None) -> Operation[bool]:
    """Delete a result and finish its unit; whether the result still existed. The batch is locked."""
    if not (yield query("delete_inbox_result", id=result.id, token=result.token)):
        return False
    values = {"batch_id": result.batch_id, "key": result.key, "state": state, "error": error}
    finished = yield query("finish_delivered_unit", **values)
    changed = {"in_inbox": -len(finished)} if state is UnitState.DONE else withdrawal_deltas(finished)
    yield from count(result.batch_id, PEOPLE, {**changed, str(state): len(finished)})
    return True


def _expire(batch_id: BatchId, results: Sequence[_Result]) -> Operation[Counter[str]]:
    """Fail the units of expired results of one batch; returns the number of results by inbox."""
    expired = Counter[str]()
    try:
        batch = yield from locked(batch_id)
    except NoSuchBatch:
        return expired  # it was deleted, and its results will be
    for result in results:
        expired[result.inbox] += yield from _finish_unit(result, UnitState.FAILED, EXPIRED)
    for inbox, number in sorted(expired.items()):
        if number:
            yield from record_change(batch, BatchEventName.EXPIRED, inbox=inbox, results=number)
    yield from conclude(batch)
    return expired


def _batch_of(result: _Result) -> BatchId:
    return result.batch_id
