"""Retention: ended jobs are forgotten after their time, in small steps."""

from __future__ import annotations

from datetime import timedelta

from msgspec import Struct

from holdfast.domain.jobs.job import JobId, State
from holdfast.store.access.records import ANSWERS_FOR
from holdfast.store.engine.backend import Backend
from holdfast.store.engine.operation import Operation, query

ZERO = timedelta(0)


class Retention(Struct, frozen=True, kw_only=True):
    """How long ended jobs, decisions about plans, and acts of people stay; zero keeps them for ever."""

    done: timedelta = timedelta(days=30)
    cancelled: timedelta = timedelta(days=30)
    dead: timedelta = timedelta(days=90)
    plans: timedelta = timedelta(days=90)
    acts: timedelta = timedelta(days=365)

    @property
    def by_state(self) -> dict[State, timedelta]:
        return {State.DONE: self.done, State.CANCELLED: self.cancelled, State.DEAD: self.dead}


class Pruner:
    """Forgets what is past its time."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def prune(self, retention: Retention | None = None, *, limit: int = 1000) -> dict[State, int]:
        """Remove up to *limit* expired jobs of each state, with all their rows; answers how many.

        A job that a live job needs stays. A key that is taken for ever outlives its job.
        """
        ages = (retention or Retention()).by_state
        return {state: self._prune(state, age, limit) if age > ZERO else 0 for state, age in ages.items()}

    def _prune(self, state: State, age: timedelta, limit: int) -> int:
        if not self._backend.look(query("lock_expired_jobs", state=state, age=age, limit=1)):
            return 0
        return self._backend.write(_prune, state, age, limit)

    def prune_keys(self, *, limit: int = 1000) -> int:
        """Remove up to *limit* keys whose period is over and whose job no longer lives; answers how many."""
        return len(self._backend.run(query("prune_keys", limit=limit), repeatable=True))

    def prune_workers(self, retention: Retention | None = None, *, limit: int = 1000) -> int:
        """Remove up to *limit* workers that ended, or fell silent, before every kept job did; answers how many.

        While some jobs are kept for ever, so are the workers that ran them.
        """
        ages = (retention or Retention()).by_state.values()
        if ZERO in ages:
            return 0
        return len(self._backend.run(query("prune_workers", age=max(ages), limit=limit), repeatable=True))

    def prune_plans(self, retention: Retention | None = None, *, limit: int = 1000) -> int:
        """Remove up to *limit* plans, and as many stretches of skipped ones, past their time; answers how many.

        A plan whose job is live stays.
        """
        age = (retention or Retention()).plans
        if age == ZERO:
            return 0
        gone = self._backend.run(query("prune_plans", age=age, limit=limit), repeatable=True)
        return len(gone) + len(self._backend.run(query("prune_skipped_plans", age=age, limit=limit), repeatable=True))

    def prune_autoscaler(self, retention: Retention | None = None, *, limit: int = 1000) -> int:
        """Remove up to *limit* decisions of autoscalers, and as many profiles that no run has touched since.

        They stay as long as done jobs do; answers how many.
        """
        age = (retention or Retention()).done
        if age == ZERO:
            return 0
        gone = self._backend.run(query("prune_decisions", age=age, limit=limit), repeatable=True)
        return len(gone) + len(self._backend.run(query("prune_memory_profiles", age=age, limit=limit), repeatable=True))

    def prune_audit(self, retention: Retention | None = None, *, limit: int = 1000) -> int:
        """Remove up to *limit* acts past their time, and as many answers that are a day old; answers how many."""
        age = (retention or Retention()).acts
        gone = (
            []
            if age == ZERO
            else self._backend.run(query("prune_audit_entries", age=age, limit=limit), repeatable=True)
        )
        old = self._backend.run(query("prune_idempotency_keys", age=ANSWERS_FOR, limit=limit), repeatable=True)
        return len(gone) + len(old)


def _prune(state: State, age: timedelta, limit: int) -> Operation[int]:
    rows = yield query("lock_expired_jobs", state=state, age=age, limit=limit)
    ids = [JobId(row[0]) for row in rows]
    if ids:
        yield query("delete_jobs", ids=ids)
    return len(ids)
