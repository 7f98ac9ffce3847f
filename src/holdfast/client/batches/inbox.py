"""Inboxes: queues of unit results for consumers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from holdfast.domain.quantities import Duration, as_duration, checked_count
from holdfast.errors import ResultLost
from holdfast.store import Store
from holdfast.store.batches.inbox import RESULT_LEASE, InboxItem, parse_receipt
from holdfast.worker import clock

#: Pause between two polls of a waiting consumer.
POLL_INTERVAL_S = 0.2
#: The hint for a consumer that has lost a result.
LOST = "Take it again, unless it was settled: another consumer has it, or it expired."


class InboxResult:
    """A result that this consumer has taken. It is the only one that has it until the lease expires."""

    def __init__(self, store: Store, taken: InboxItem) -> None:
        #: The key of the unit.
        self.key: Any = msgspec.json.decode(taken.key)
        #: The id of its batch.
        self.batch: int = taken.batch_id
        #: The value that the unit handed over.
        self.value: Any = msgspec.json.decode(taken.data)
        #: The right to settle this result, as a text: any process may pass it to :meth:`Inbox.accept`.
        self.receipt: str = taken.receipt
        self._store = store
        self._taken = taken

    def accept(self) -> None:
        """Accept the result: its unit is done, and no consumer gets the result again.

        Raises:
            ResultLost: The lease expired and another consumer has the result, or the result itself expired.
        """
        self._store.inbox.accept(self._taken)

    def refuse(self, error: str) -> None:
        """Refuse the result: its unit has failed, and runs again in the next run of its batch.

        Raises:
            ResultLost: The lease expired and another consumer has the result, or the result itself expired.
        """
        self._store.inbox.refuse(self._taken, error)

    def transaction(self) -> AbstractContextManager[Any]:
        """Accept the result in a transaction on the store's own database.

        The context manager returns the connection. Your writes and the acceptance commit together, or not at all.

        Raises:
            ResultLost: The lease expired and another consumer has the result, or the result itself expired. Nothing
                was committed.
        """
        transaction: AbstractContextManager[Any] = self._store.inbox.result_transaction(self._taken)
        return transaction


class Inbox:
    """The results under one name. Many consumers can take from it; each result goes to one of them at a time."""

    def __init__(self, store: Callable[[], Store], name: str) -> None:
        self._store = store
        self._name = name

    def take(
        self, limit: int = 10, *, wait: Duration = 0, lease_duration: Duration = RESULT_LEASE
    ) -> list[InboxResult]:
        """Take up to *limit* results, those that have been free longest first.

        *wait* is the longest time to wait for a first result. Another consumer can take a result that was not
        accepted within *lease_duration*.
        """
        checked_count(limit)
        store, never_set = self._store(), threading.Event()
        until = clock.now() + as_duration(wait).total_seconds()
        while True:
            taken = store.inbox.take(self._name, limit=limit, lease_duration=as_duration(lease_duration))
            left = until - clock.now()
            if taken or left <= 0:
                return [InboxResult(store, each) for each in taken]
            never_set.wait(min(left, POLL_INTERVAL_S))

    def accept(self, receipt: str) -> None:
        """Accept a result that this or another process has taken: its unit is done.

        Raises:
            ResultLost: The result was settled, has expired, or was taken again. Or it is in another inbox.
        """
        self._settle(receipt, None)

    def refuse(self, receipt: str, error: str) -> None:
        """Refuse a result that this or another process has taken: its unit has failed.

        Raises:
            ResultLost: The result was settled, has expired, or was taken again. Or it is in another inbox.
        """
        self._settle(receipt, error)

    def _settle(self, receipt: str, error: str | None) -> None:
        number, token = parse_receipt(receipt)
        if not self._store().inbox.settle({number: token}, error, inbox=self._name):
            raise ResultLost(f"the result {receipt} is no longer with this consumer", hint=LOST)

    def __len__(self) -> int:
        """The number of results that wait or are with a consumer."""
        return self._store().inbox.size(self._name)
