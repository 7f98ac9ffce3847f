"""Leases of claims whose answer was lost: the store knows them, and their worker does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from holdfast.domain.jobs.job import JobId
from holdfast.worker import clock
from holdfast.worker.backoff import EXCESS_FACTOR
from holdfast.worker.options import WorkerSetup

#: A claim may be committed this long after its answer was lost; until then unknown leases are searched for.
IN_DOUBT_S, INTERVAL_S = 60.0, 5.0


class UnknownLeases:
    """Searches for them after an error of a claim, and releases them."""

    def __init__(self, setup: WorkerSetup) -> None:
        self._store, self._worker, self._served = setup.store, setup.worker, setup.served
        #: The queues of claims whose answer was lost.
        self._queues: set[str] = set()
        #: Until when, and when next, to search.
        self._until = self._search_at = float("-inf")

    @contextmanager
    def after_errors(self) -> Iterator[None]:
        """After an error, search: perhaps only an answer was lost, or some runs could not begin."""
        try:
            yield
        except Exception:
            self._until, self._search_at = clock.now() + IN_DOUBT_S, clock.now()
            self._queues.update(self._served.queues)
            raise

    @property
    def possible(self) -> bool:
        """Whether there may be some."""
        return clock.now() < self._until

    def postpone(self) -> None:
        """The search begins anew after a pause."""
        if self.possible:
            self._until = clock.now() + IN_DOUBT_S

    def release(self, known: Callable[[], Sequence[JobId]]) -> None:
        """Release those of all jobs but the *known* ones, if it is time. No claim may be on its way.

        A claim whose answer was given up may be committed late, so the search is repeated.
        """
        now = clock.now()
        if self._search_at <= now < self._until:
            self._store.leases.release_unknown(self._worker, queues=sorted(self._queues), known=known())
            self._search_at = now + max(INTERVAL_S, EXCESS_FACTOR * (clock.now() - now))
