"""Retention: ended jobs are forgotten after their time, in small steps."""

from __future__ import annotations

from datetime import timedelta

from msgspec import Struct

from holdfast.domain.job import JobId, State
from holdfast.store.backend import Backend
from holdfast.store.flow import Flow, ask

ZERO = timedelta(0)


class Retention(Struct, frozen=True, kw_only=True):
    """How long ended jobs stay; zero keeps them for ever."""

    done: timedelta = timedelta(days=30)
    cancelled: timedelta = timedelta(days=30)
    dead: timedelta = timedelta(days=90)


class Pruner:
    """Forgets what is past its time."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def prune(self, retention: Retention | None = None, *, limit: int = 1000) -> dict[State, int]:
        """Remove up to *limit* expired jobs of each state, with all their rows; answers how many.

        A job that a live job needs stays. A key that is taken for ever outlives its job.
        """
        ages = retention or Retention()
        wanted = {State.DONE: ages.done, State.CANCELLED: ages.cancelled, State.DEAD: ages.dead}
        return {
            state: self._backend.write(_prune, state, age, limit) if age > ZERO else 0 for state, age in wanted.items()
        }


def _prune(state: State, age: timedelta, limit: int) -> Flow[int]:
    rows = yield ask("expired", state=state, age=age, limit=limit)
    ids = [JobId(row[0]) for row in rows]
    if ids:
        yield ask("forget", ids=ids)
    return len(ids)
