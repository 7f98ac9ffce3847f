"""Retention: finished jobs and other old rows are pruned after their time, in small steps."""

from __future__ import annotations

from datetime import timedelta

from msgspec import Struct

from holdfast.domain.jobs.job import JobId, State
from holdfast.store.engine.operation import Noun, Operation, query, transaction

ZERO = timedelta(0)


class Retention(Struct, frozen=True, kw_only=True):
    """How long finished jobs, decisions about plans, and audit entries stay; zero keeps them forever."""

    done: timedelta = timedelta(days=30)
    cancelled: timedelta = timedelta(days=30)
    dead: timedelta = timedelta(days=90)
    plans: timedelta = timedelta(days=90)
    audit: timedelta = timedelta(days=365)

    @property
    def by_state(self) -> dict[State, timedelta]:
        return {State.DONE: self.done, State.CANCELLED: self.cancelled, State.DEAD: self.dead}


class Pruner(Noun):
    """Prunes rows past their retention. Each method returns the number of pruned rows."""

    def prune(self, retention: Retention | None = None, *, limit: int = 1000) -> dict[State, int]:
        """Prune up to *limit* expired jobs of each state, with all their rows.

        A job that a live job depends on stays. A key that is taken forever outlives its job.
        """
        ages = (retention or Retention()).by_state
        return {state: self._prune_state(state, age, limit) if age > ZERO else 0 for state, age in ages.items()}

    def _prune_state(self, state: State, age: timedelta, limit: int) -> int:
        if not self._fetch("lock_expired_jobs", state=state, age=age, limit=1):
            return 0
        return self._prune_jobs(state, age, limit)

    @transaction()
    def _prune_jobs(self, state: State, age: timedelta, limit: int) -> Operation[int]:
        rows = yield query("lock_expired_jobs", state=state, age=age, limit=limit)
        ids = [JobId(row[0]) for row in rows]
        if ids:
            yield query("delete_jobs", ids=ids)
        return len(ids)

    def prune_keys(self, *, limit: int = 1000) -> int:
        """Prune up to *limit* keys whose period is over and whose job is not live."""
        return len(self._backend.run(query("prune_keys", limit=limit), repeatable=True))

    def prune_workers(self, retention: Retention | None = None, *, limit: int = 1000) -> int:
        """Prune up to *limit* workers that stopped, or were last seen, before every kept job finished.

        While jobs are kept forever, the workers that ran them are too.
        """
        ages = (retention or Retention()).by_state.values()
        return 0 if ZERO in ages else self._prune("prune_workers", age=max(ages), limit=limit)

    def prune_plans(self, retention: Retention | None = None, *, limit: int = 1000) -> int:
        """Prune up to *limit* expired plans, and as many ranges of skipped plans. A plan whose job is live stays."""
        age = (retention or Retention()).plans
        return self._prune("prune_plans", "prune_skipped_plans", age=age, limit=limit)

    def prune_autoscaler(self, retention: Retention | None = None, *, limit: int = 1000) -> int:
        """Prune up to *limit* decisions of autoscalers, and as many unused profiles. They stay as long as done jobs."""
        age = (retention or Retention()).done
        return self._prune("prune_decisions", "prune_memory_profiles", age=age, limit=limit)

    def prune_audit(self, retention: Retention | None = None, *, limit: int = 1000) -> int:
        """Prune up to *limit* expired audit entries, and as many stored responses that are a day old."""
        entries = self._prune("prune_audit_entries", age=(retention or Retention()).audit, limit=limit)
        from holdfast.store.access.credentials import RESPONSE_RETENTION  # loads the modules of tokens

        return entries + self._prune("prune_idempotency_keys", age=RESPONSE_RETENTION, limit=limit)

    def _prune(self, *statements: str, age: timedelta, limit: int) -> int:
        if age == ZERO:
            return 0
        return sum(len(self._backend.run(query(name, age=age, limit=limit), repeatable=True)) for name in statements)
