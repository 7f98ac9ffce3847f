"""Inboxes as consumers see them: results of units, each of them for one consumer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from holdfast.domain.text import Duration, as_duration, checked_count
from holdfast.store import Store
from holdfast.store.batches.inbox import RESULT_LEASE, InboxItem
from holdfast.worker import clock

#: How often a consumer that waits looks again, in seconds.
LOOK_EVERY = 0.2


class InboxResult:
    """A result that this consumer has taken, until its term is over."""

    def __init__(self, store: Store, taken: InboxItem) -> None:
        #: The key of the unit, its batch, and what it handed over.
        self.key: Any = msgspec.json.decode(taken.key)
        self.batch: int = taken.batch_id
        self.value: Any = msgspec.json.decode(taken.data)
        self._store = store
        self._taken = taken

    def accept(self) -> None:
        """It has been used: the unit is done, and nobody gets the result again.

        Raises:
            ResultLost: The term was over, and another consumer has it, or it has expired.
        """
        self._store.inbox.accept(self._taken)

    def refuse(self, error: str) -> None:
        """It is of no use: the unit has failed, and runs again with the next run of its batch.

        Raises:
            ResultLost: The term was over, and another consumer has it, or it has expired.
        """
        self._store.inbox.refuse(self._taken, error)

    def transaction(self) -> AbstractContextManager[Any]:
        """A connection to the store's own database; what is done with it is kept if and only if it is accepted.

        Raises:
            ResultLost: The term was over, and another consumer has it, or it has expired; nothing was kept.
        """
        transaction: AbstractContextManager[Any] = self._store.inbox.result_transaction(self._taken)
        return transaction


class Inbox:
    """Results under one name. Any number of consumers may take from it: each result is with one of them."""

    def __init__(self, store: Callable[[], Store], name: str) -> None:
        self._store = store
        self._name = name

    def take(
        self, limit: int = 10, *, wait: Duration = 0, lease_duration: Duration = RESULT_LEASE
    ) -> list[InboxResult]:
        """Take up to *limit* results, the longest free first; *wait* for the first one at most so long.

        What is not accepted within *term*, or whose consumer died, is taken by another.
        """
        checked_count(limit)
        store, pause = self._store(), threading.Event()
        until = clock.now() + as_duration(wait).total_seconds()
        while True:
            taken = store.inbox.take(self._name, limit=limit, lease_duration=as_duration(lease_duration))
            rest = until - clock.now()
            if taken or rest <= 0:
                return [InboxResult(store, each) for each in taken]
            pause.wait(min(rest, LOOK_EVERY))

    def __len__(self) -> int:
        """How many results wait, or are with a consumer."""
        return self._store().inbox.size(self._name)
