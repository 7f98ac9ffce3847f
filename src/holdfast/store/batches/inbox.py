"""Inboxes: results of units that wait for their consumer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from msgspec import Struct

from holdfast.domain.batches.batch import MAX_UNIT_ERROR, BatchId, UnitKey, UnitState, undone
from holdfast.domain.text import clean_text
from holdfast.errors import ResultLost
from holdfast.store.batches.finishing import PEOPLE, conclude, locked
from holdfast.store.batches.in_flight import count
from holdfast.store.engine.backend import Backend
from holdfast.store.engine.operation import Operation, query

#: How long a consumer has what it took, before another may take it.
TERM = timedelta(seconds=60)


class InboxItem(Struct, frozen=True):
    """A result that a consumer has taken. *data* is JSON."""

    id: int
    token: int
    batch_id: BatchId
    key: UnitKey
    data: str


class _Expired(Struct, frozen=True):
    id: int
    token: int
    batch_id: BatchId
    key: UnitKey


class InboxStore:
    """Hands results to their consumers, each to one at a time; their units turn when they are accepted."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def take(self, inbox: str, *, limit: int = 1, lease_duration: timedelta = TERM) -> list[InboxItem]:
        """Take results, the longest free first. What is not accepted within *term* may be taken by another."""
        taken: list[InboxItem] = self._backend.run(
            query("claim_inbox_results", InboxItem, inbox=inbox, limit=limit, lease_duration=lease_duration)
        )
        return sorted(taken, key=lambda result: result.id)

    def accept(self, result: InboxItem) -> None:
        """The result has been used: its unit is done.

        Raises:
            ResultLost: It was taken by another, or has expired; whoever has it now decides.
        """
        self._backend.write(_end, result, UnitState.DONE, None)

    def refuse(self, result: InboxItem, error: str) -> None:
        """The result is of no use: its unit has failed, and runs again with the next run of its batch.

        Raises:
            ResultLost: It was taken by another, or has expired; whoever has it now decides.
        """
        self._backend.write(_end, result, UnitState.FAILED, clean_text(error, limit=MAX_UNIT_ERROR))

    @contextmanager
    def transaction(self, result: InboxItem) -> Iterator[Any]:
        """A connection to the store's own database: what is done with it and the acceptance are kept together.

        Raises:
            ResultLost: It was taken by another, or has expired; nothing was kept.
        """
        with self._backend.transaction() as connection:
            yield connection
            self._backend.run_on(connection, _end(result, UnitState.DONE, None))

    def expire(self, *, limit: int = 100) -> int:
        """End the units of results that nobody accepted in time; answers how many."""
        return self._backend.write(_expire, limit)

    def size(self, inbox: str) -> int:
        """How many results wait, or are with a consumer."""
        (row,) = self._backend.look(query("count_inbox_results", inbox=inbox))
        n: int = row[0]
        return n


def _end(result: InboxItem, state: UnitState, error: str | None) -> Operation[None]:
    there = yield from _drop(result, state, error)
    if not there:
        raise ResultLost(f"the result of unit {result.key} is no longer with this consumer", batch_id=result.batch_id)


def _drop(result: InboxItem | _Expired, state: UnitState, error: str | None) -> Operation[bool]:
    """Drop a result and end its unit; whether it was still there."""
    batch = yield from locked(result.batch_id)
    rows = yield query("delete_inbox_result", id=result.id, token=result.token)
    if not rows:
        return False
    told = {"batch_id": batch.id, "key": result.key, "state": state, "error": error}
    finished = yield query("finish_delivered_unit", **told)
    changed = {"in_inbox": -len(finished)} if state is UnitState.DONE else undone(finished)
    yield from count(batch.id, PEOPLE, {**changed, str(state): len(finished)})
    yield from conclude((yield from locked(batch.id)))
    return True


def _expire(limit: int) -> Operation[int]:
    rows: list[_Expired] = yield query("list_expired_inbox_results", _Expired, limit=limit)
    expired = 0
    for result in sorted(rows, key=lambda row: row.batch_id):
        expired += yield from _drop(result, UnitState.FAILED, "nobody accepted its result before it expired")
    return expired
